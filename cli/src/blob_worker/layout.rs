//! Layouts: the path of a blob below the store's root, from the blob's name.
//!
//! | layout | path of the key `01 … 20` (32 bytes), file type `tx` |
//! |---|---|
//! | `hex` | `0102…1f20.tx` |
//! | `teranode` | `201f…0201.tx`: the key's bytes reversed, as a transaction id is shown |
//! | `teranode`, `?hashPrefix=2` | `20/201f…0201.tx` |
//! | `teranode`, `?hashSuffix=2` | `01/201f…0201.tx` |
//!
//! On a file system Teranode keeps a checksum next to each blob, `….tx.sha256`, which is deleted with the blob.

use crate::verify::hex;
use ic_coppice_interface::BlobDeletion;
use object_store::path::Path;
use std::fmt;

/// Bytes of the longest key that S3 accepts.
pub const LONGEST_S3_KEY: usize = 1_024;

/// Suffix of the file name of a blob's checksum.
const CHECKSUM: &str = ".sha256";

/// The layout of a store: the names of its blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// KEY.TYPE, with the key in hexadecimal
    #[default]
    Hex,
    /// Teranode's layout: the key reversed, in the folders that hashPrefix, hashSuffix and subDirectory of the URL name
    Teranode,
    /// Teranode's layout, with a folder for each prefix of this many characters of a name or, if negative, for each suffix.
    #[value(skip)]
    Folders(i32),
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hex => f.write_str("hex"),
            Self::Teranode => f.write_str("teranode"),
            Self::Folders(prefix @ 0..) => write!(f, "teranode hashPrefix={prefix}"),
            Self::Folders(suffix) => write!(f, "teranode hashSuffix={}", suffix.unsigned_abs()),
        }
    }
}

/// Returns whether a file type can be the suffix of a file name. The producer that scheduled the blob chose the file type, so it must not
/// lead to another folder.
fn is_plain(file_type: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !file_type.is_empty() && file_type.bytes().all(plain) && !file_type.starts_with('.') && !file_type.ends_with('.')
}

impl Layout {
    /// Returns a blob's path and, for layouts with checksums, the checksum's path.
    ///
    /// # Errors
    /// The reason why the blob cannot have a path.
    pub fn paths(&self, root: &Path, row: &BlobDeletion, on_disk: bool) -> Result<(Path, Option<Path>), String> {
        let file_type = &row.file_type;
        if !is_plain(file_type) {
            return Err(format!("its file type {file_type:?} cannot be the suffix of a file name"));
        }
        if row.blob_key.is_empty() {
            return Err("its key is empty".into());
        }
        let has_checksum = on_disk && *self != Self::Hex;
        if has_checksum && file_type.to_ascii_lowercase().ends_with(CHECKSUM) {
            return Err(format!("its file type {file_type:?} is that of another blob's checksum"));
        }
        let mut key = row.blob_key.to_vec();
        if *self != Self::Hex {
            key.reverse();
        }
        let (name, mut folder) = (hex(&key), root.clone());
        if let Self::Folders(prefix) = self {
            let many = (prefix.unsigned_abs() as usize).min(name.len());
            folder = folder.join(if *prefix < 0 { &name[name.len() - many..] } else { &name[..many] });
        }
        let path = folder.clone().join(format!("{name}.{file_type}"));
        if !on_disk && path.as_ref().len() > LONGEST_S3_KEY {
            return Err(format!("its name has {} bytes, but S3 accepts at most {LONGEST_S3_KEY}", path.as_ref().len()));
        }
        let checksum = folder.join(format!("{name}.{file_type}{CHECKSUM}"));
        Ok((path, Some(checksum).filter(|_| has_checksum)))
    }

    /// Returns whether the layout writes into a folder of this name below the store's root.
    pub fn writes_into(&self, folder: &str) -> bool {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        matches!(self, Self::Folders(prefix) if folder.len() <= prefix.unsigned_abs() as usize)
            && folder.bytes().all(is_hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::StoreType;

    fn row(key: &[u8], file_type: &str) -> BlobDeletion {
        super::super::tests::named(1, key, file_type, StoreType::Tx)
    }

    fn paths(layout: &Layout, row: &BlobDeletion, on_disk: bool) -> Result<Vec<String>, String> {
        let (path, checksum) = layout.paths(&Path::from("blobs"), row, on_disk)?;
        Ok(checksum.into_iter().chain([path]).map(String::from).collect())
    }

    fn teranode(prefix: i32) -> Layout {
        if prefix == 0 { Layout::Teranode } else { Layout::Folders(prefix) }
    }

    #[test]
    fn layout_writes_into_folders_of_its_prefix_length() {
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
    fn paths_match_the_table_in_the_docs() {
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
            let checksum = format!("{path}.sha256");
            let expected = if layout == Layout::Hex { vec![path] } else { vec![checksum.as_str(), path] };
            assert_eq!(paths(&layout, &row, true).unwrap(), expected, "{layout}");
        }
        // Blobs at the root of a store have no folder.
        assert_eq!(Layout::Hex.paths(&Path::ROOT, &row, false).unwrap(), (Path::from("0102ab.tx"), None));
    }

    #[test]
    fn file_types_that_leave_the_folder_are_refused() {
        for refused in ["", ".", "..", "../tx", "a/b", "a\\b", "a\0", "tx ", "é", "*", ".tx", "tx."] {
            let why = paths(&Layout::Hex, &row(&[1], refused), true).unwrap_err();
            assert!(why.contains("file type"), "{refused:?}: {why}");
        }
        for taken in ["tx", "outputs", "utxo-set", "A_1", "tar.gz"] {
            assert_eq!(paths(&Layout::Hex, &row(&[1], taken), true).unwrap(), [format!("blobs/01.{taken}")]);
        }
        assert!(paths(&Layout::Hex, &row(&[], "tx"), true).is_err());
        // A checksum cannot be scheduled as a blob of its own.
        let checksum = row(&[1], "tx.sha256");
        assert!(paths(&teranode(0), &checksum, true).unwrap_err().contains("checksum"));
        let capitals = row(&[1], "tx.SHA256");
        assert!(
            paths(&teranode(0), &capitals, true).unwrap_err().contains("checksum"),
            "a file system may ignore case"
        );
        assert!(paths(&teranode(0), &checksum, false).is_ok() && paths(&Layout::Hex, &checksum, true).is_ok());
    }

    #[test]
    fn key_longer_than_s3_accepts_is_refused() {
        let fits = (LONGEST_S3_KEY - "blobs/.tx".len()) / 2;
        assert!(paths(&Layout::Hex, &row(&vec![7; fits], "tx"), false).is_ok());
        assert!(paths(&Layout::Hex, &row(&vec![7; fits + 1], "tx"), false).unwrap_err().contains("1024"));
        assert!(paths(&Layout::Hex, &row(&[7; 1_024], "tx"), true).is_ok(), "the file system checks its own limit");
    }
}
