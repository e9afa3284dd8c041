//! Where a store has a blob: from the blob's name to a path below the store's root.
//!
//! | layout | path of the key `01 … 20` (32 bytes), file type `tx` |
//! |---|---|
//! | `hex` | `0102…1f20.tx` |
//! | `teranode` | `201f…0201.tx`: the key's bytes reversed, as a transaction id is shown |
//! | `teranode`, `?hashPrefix=2` | `20/201f…0201.tx` |
//! | `teranode`, `?hashSuffix=2` | `01/201f…0201.tx` |
//!
//! On a file system Teranode keeps a checksum beside a blob, `….tx.sha256`, which goes with it.

use coppice_interface::BlobDeletion;
use object_store::path::Path;
use std::fmt::{self, Write as _};

/// Bytes of the longest key that S3 takes.
pub const LONGEST_S3_KEY: usize = 1_024;

/// What is behind a blob's name in that of its checksum.
const CHECKSUM: &str = ".sha256";

/// How blobs are named in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The key in hexadecimal, and the file type.
    Hex,
    /// As Teranode's blob stores name them: in a folder of its own for each beginning of so many characters of a name or, where negative,
    /// for each end; 0: in none.
    Teranode(i32),
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hex => f.write_str("hex"),
            Self::Teranode(0) => f.write_str("teranode"),
            Self::Teranode(prefix @ 1..) => write!(f, "teranode hashPrefix={prefix}"),
            Self::Teranode(suffix) => write!(f, "teranode hashSuffix={}", suffix.unsigned_abs()),
        }
    }
}

fn hex<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    bytes.fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a file type can be the end of a file's name. It comes from whoever scheduled the blob: it must not lead anywhere else.
fn is_plain(file_type: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !file_type.is_empty() && file_type.bytes().all(plain) && !file_type.starts_with('.') && !file_type.ends_with('.')
}

impl Layout {
    /// The paths of a blob below the store's root, those that go with it first, itself last.
    ///
    /// # Errors
    /// Why it can have none.
    pub fn paths(&self, root: &Path, row: &BlobDeletion, on_disk: bool) -> Result<Vec<Path>, String> {
        let file_type = &row.file_type;
        if !is_plain(file_type) {
            return Err(format!("its file type {file_type:?} is no end of a file's name"));
        }
        if row.blob_key.is_empty() {
            return Err("its key is empty".into());
        }
        if self.has_checksums(on_disk) && file_type.ends_with(CHECKSUM) {
            return Err(format!("its file type {file_type:?} is that of another blob's checksum"));
        }
        let mut path = root.clone();
        let name = match self {
            Self::Hex => hex(row.blob_key.iter()),
            Self::Teranode(prefix) => {
                let name = hex(row.blob_key.iter().rev());
                let many = (prefix.unsigned_abs() as usize).min(name.len());
                let folder = if *prefix < 0 { &name[name.len() - many..] } else { &name[..many] };
                if !folder.is_empty() {
                    path = path.join(folder);
                }
                name
            }
        };
        let file = path.clone().join(format!("{name}.{file_type}"));
        if !on_disk && file.as_ref().len() > LONGEST_S3_KEY {
            return Err(format!("its name has {} bytes, and S3 takes {LONGEST_S3_KEY}", file.as_ref().len()));
        }
        let checksum = path.join(format!("{name}.{file_type}{CHECKSUM}"));
        Ok([checksum].into_iter().filter(|_| self.has_checksums(on_disk)).chain([file]).collect())
    }

    /// Returns whether the layout writes into a folder of this name below the store's root.
    pub fn writes_into(&self, folder: &str) -> bool {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        matches!(self, Self::Teranode(prefix) if *prefix != 0 && folder.len() <= prefix.unsigned_abs() as usize)
            && folder.bytes().all(is_hex)
    }

    /// Whether there is a checksum beside each blob.
    fn has_checksums(&self, on_disk: bool) -> bool {
        matches!(self, Self::Teranode(_)) && on_disk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_interface::StoreType;

    fn row(key: &[u8], file_type: &str) -> BlobDeletion {
        super::super::tests::named(1, key, file_type, StoreType::Tx)
    }

    fn paths(layout: &Layout, row: &BlobDeletion, on_disk: bool) -> Result<Vec<String>, String> {
        let paths = layout.paths(&Path::from("blobs"), row, on_disk)?;
        Ok(paths.into_iter().map(String::from).collect())
    }

    fn teranode(prefix: i32) -> Layout {
        Layout::Teranode(prefix)
    }

    #[test]
    fn folders_are_those_that_a_layout_writes_into() {
        for (layout, folder, into) in [
            (Layout::Hex, "ab", false),
            (teranode(0), "ab", false),
            (teranode(2), "ab", true),
            (teranode(-2), "0f", true),
            (teranode(2), "abc", false),
            (teranode(2), "zz", false),
            (teranode(100), "ab0201", true),
        ] {
            assert_eq!(layout.writes_into(folder), into, "{layout}: {folder}");
        }
    }

    #[test]
    fn paths_are_as_the_page_says() {
        let row = row(&[0x01, 0x02, 0xab], "tx");
        for (layout, path) in [
            (Layout::Hex, "blobs/0102ab.tx"),
            (teranode(0), "blobs/ab0201.tx"),
            (teranode(2), "blobs/ab/ab0201.tx"),
            (teranode(-2), "blobs/01/ab0201.tx"),
            (teranode(100), "blobs/ab0201/ab0201.tx"),
            (teranode(i32::MIN), "blobs/ab0201/ab0201.tx"),
        ] {
            assert_eq!(paths(&layout, &row, false).unwrap(), [path], "{layout}");
            let beside = format!("{path}.sha256");
            let expected = if layout == Layout::Hex { vec![path] } else { vec![beside.as_str(), path] };
            assert_eq!(paths(&layout, &row, true).unwrap(), expected, "{layout}");
        }
        // At the root there is no folder before the name.
        assert_eq!(Layout::Hex.paths(&Path::ROOT, &row, false).unwrap(), [Path::from("0102ab.tx")]);
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for refused in ["", ".", "..", "../tx", "a/b", "a\\b", "a\0", "tx ", "é", "*", ".tx", "tx."] {
            let why = paths(&Layout::Hex, &row(&[1], refused), true).unwrap_err();
            assert!(why.contains("file type"), "{refused:?}: {why}");
        }
        for taken in ["tx", "outputs", "utxo-set", "A_1", "tar.gz"] {
            assert_eq!(paths(&Layout::Hex, &row(&[1], taken), true).unwrap(), [format!("blobs/01.{taken}")]);
        }
        assert!(paths(&Layout::Hex, &row(&[], "tx"), true).is_err());
        // A blob is not what goes with another one.
        let checksum = row(&[1], "tx.sha256");
        assert!(paths(&teranode(0), &checksum, true).unwrap_err().contains("checksum"));
        assert!(paths(&teranode(0), &checksum, false).is_ok() && paths(&Layout::Hex, &checksum, true).is_ok());
    }

    #[test]
    fn the_longest_key_is_one_that_s3_takes() {
        let fits = (LONGEST_S3_KEY - "blobs/.tx".len()) / 2;
        assert!(paths(&Layout::Hex, &row(&vec![7; fits], "tx"), false).is_ok());
        assert!(paths(&Layout::Hex, &row(&vec![7; fits + 1], "tx"), false).unwrap_err().contains("1024"));
        assert!(
            paths(&Layout::Hex, &row(&[7; 1_024], "tx"), true).is_ok(),
            "the file system says itself what it takes"
        );
    }
}
