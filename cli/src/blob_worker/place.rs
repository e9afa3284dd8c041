//! `--store`: which blobs, and where they are.

use super::layout::{Folders, Layout};
use super::queue::Row;
use coppice_interface::StoreType;
use object_store::path::PathPart;
use std::fmt;
use std::str::FromStr;
use url::Url;

/// Store types by the name that the command line has for them.
pub const STORE_TYPES: [(&str, StoreType); 6] = [
    ("tx", StoreType::Tx),
    ("subtree", StoreType::Subtree),
    ("block", StoreType::Block),
    ("temp", StoreType::Temp),
    ("block-persister", StoreType::BlockPersister),
    ("peer-registry", StoreType::PeerRegistry),
];

/// A store type of that name.
///
/// # Errors
/// When there is none.
pub fn store_type(name: &str) -> Result<StoreType, String> {
    let found = STORE_TYPES.iter().find(|(known, _)| *known == name).map(|(_, store)| *store);
    found.ok_or_else(|| format!("{name:?} is no store type: {}", STORE_TYPES.map(|(known, _)| known).join(", ")))
}

/// Which blobs: of a file type or of any, of a store type or of any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    store: Option<StoreType>,
    file_type: Option<String>,
}

impl Selector {
    /// How narrow it is, where it has a row; none where it has not.
    fn matches(&self, row: &Row) -> Option<u8> {
        let store = self.store.is_none_or(|store| store == row.store);
        let file_type = self.file_type.as_ref().is_none_or(|file_type| *file_type == row.file_type);
        let narrow = 2 * u8::from(self.store.is_some()) + u8::from(self.file_type.is_some());
        (store && file_type).then_some(narrow)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = STORE_TYPES.iter().find(|(_, store)| Some(*store) == self.store) {
            write!(f, "{name}/")?;
        }
        f.write_str(self.file_type.as_deref().unwrap_or("*"))
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (store, file_type) = match text.split_once('/') {
            Some((store, file_type)) => (Some(store_type(store)?), file_type),
            None => (None, text),
        };
        if file_type.is_empty() || file_type.len() > 32 {
            return Err(format!("{text:?} names no file type: 1 to 32 bytes, or *"));
        }
        Ok(Self { store, file_type: (file_type != "*").then(|| file_type.to_string()) })
    }
}

/// Where blobs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which blobs.
    pub of: Selector,
    /// The store, without what it says of folders.
    pub url: Url,
    query: Vec<(String, String)>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, url) = text.split_once('=').ok_or("it is FILE_TYPE=URL, or STORE_TYPE/FILE_TYPE=URL")?;
        let mut url: Url = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let named = match url.scheme() {
            "file" => url.to_file_path().is_ok() && url.host().is_none(),
            "s3" => url.host_str().is_some_and(|bucket| !bucket.is_empty()),
            _ => false,
        };
        if !named || !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(format!("{url} is no store: s3://BUCKET/PREFIX, or file:///DIRECTORY"));
        }
        let query = url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        url.set_query(None);
        url.set_fragment(None);
        // One store has one name.
        let path = url.path().trim_end_matches('/').to_string();
        if path.contains("//") {
            return Err(format!("{url} has an empty folder"));
        }
        url.set_path(if path.is_empty() && url.scheme() == "file" { "/" } else { &path });
        Ok(Self { of: of.parse()?, url, query })
    }
}

/// Which layout a command names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LayoutName {
    /// KEY.TYPE: the key in hexadecimal.
    #[default]
    Hex,
    /// Teranode's: the key reversed, in the folders that hashPrefix, hashSuffix and subDirectory of the URL make.
    Teranode,
}

impl Place {
    /// The store's layout.
    ///
    /// # Errors
    /// When the URL says what the layout does not know.
    pub fn layout(&self, name: LayoutName) -> Result<Layout, String> {
        let mut folders = Folders::default();
        for (key, value) in &self.query {
            let wrong = || format!("{}: {key}={value} is nothing that the layout knows", self.url);
            let many = || value.parse::<u16>().map_err(|_| wrong());
            match (name, key.as_str()) {
                (LayoutName::Teranode, "hashPrefix") => folders.prefix = i32::from(many()?),
                (LayoutName::Teranode, "hashSuffix") => folders.prefix = -i32::from(many()?),
                (LayoutName::Teranode, "subDirectory") => {
                    let path = value.trim_matches('/');
                    // What a path of the store encodes would be another folder than Teranode's.
                    let is_plain = |folder: &str| !folder.is_empty() && PathPart::from(folder).as_ref() == folder;
                    if !path.split('/').all(is_plain) {
                        return Err(wrong());
                    }
                    folders.sub_directory = path.to_string();
                }
                _ => return Err(wrong()),
            }
        }
        Ok(match name {
            LayoutName::Hex => Layout::Hex,
            LayoutName::Teranode => Layout::Teranode(folders),
        })
    }
}

/// Which of several selectors has a row: the narrowest.
pub fn narrowest<'a>(selectors: impl Iterator<Item = &'a Selector>, row: &Row) -> Option<usize> {
    let matching = selectors.enumerate().filter_map(|(at, selector)| Some((selector.matches(row)?, at)));
    matching.max().map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Place, String> {
        text.parse()
    }

    #[test]
    fn places_are_read_and_their_names_are_the_same_for_the_same_store() {
        let tx = place("tx=s3://bucket/a/b/").unwrap();
        assert_eq!((tx.of.to_string().as_str(), tx.url.as_str()), ("tx", "s3://bucket/a/b"));
        assert_eq!(tx.url, place("outputs=s3://bucket/a/b").unwrap().url);
        assert_eq!(place("*=file:///srv/blobs/").unwrap().url.as_str(), "file:///srv/blobs");
        assert_eq!(place("block-persister/*=s3://b").unwrap().of.to_string(), "block-persister/*");
        assert_eq!(place("*=file:///").unwrap().url.as_str(), "file:///");
        for refused in [
            "",
            "tx",
            "=s3://b",
            "tx=",
            "tx=/srv",
            "tx=file://srv/blobs",
            "tx=s3://",
            "tx=http://b",
            "nothing/tx=s3://b",
            "tx/=s3://b",
            "tx=s3://key:secret@b",
            "tx=s3://b//a",
        ] {
            assert!(place(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn what_a_url_says_of_folders_is_teranodes() {
        let layout = |text: &str, name| place(text).unwrap().layout(name);
        let teranode = LayoutName::Teranode;
        let folders =
            |prefix, sub_directory: &str| Ok(Layout::Teranode(Folders { prefix, sub_directory: sub_directory.into() }));
        assert_eq!(layout("tx=file:///a?hashPrefix=2", teranode), folders(2, ""));
        assert_eq!(layout("tx=file:///a?hashSuffix=2&subDirectory=/b/c/", teranode), folders(-2, "b/c"));
        assert_eq!(layout("tx=file:///a", LayoutName::Hex), Ok(Layout::Hex));
        for refused in
            ["hashPrefix=-1", "hashPrefix=x", "hashprefix=1", "subDirectory=a/../b", "subDirectory=", "subDirectory=."]
        {
            assert!(layout(&format!("tx=file:///a?{refused}"), teranode).is_err(), "{refused}");
        }
        for character in "~[]{}%^|".chars() {
            let refused = format!("tx=file:///a?subDirectory=b/%{:02x}c", character as u32);
            assert!(layout(&refused, teranode).is_err(), "{character}");
        }
        assert!(layout("tx=file:///a?subDirectory=b/%23c", teranode).is_err(), "#");
        assert!(layout("tx=file:///a?hashPrefix=2", LayoutName::Hex).is_err());
    }

    #[test]
    fn the_narrowest_selector_has_the_row() {
        let selectors = ["*", "tx", "temp/*", "temp/tx"].map(|text| text.parse::<Selector>().unwrap());
        let of = |store, file_type: &str| {
            let row = Row { id: 1, key: vec![1], file_type: file_type.into(), store, height: 0 };
            narrowest(selectors.iter(), &row).map(|at| selectors[at].to_string())
        };
        assert_eq!(of(StoreType::Tx, "tx").unwrap(), "tx");
        assert_eq!(of(StoreType::Tx, "outputs").unwrap(), "*");
        assert_eq!(of(StoreType::Temp, "tx").unwrap(), "temp/tx");
        assert_eq!(of(StoreType::Temp, "outputs").unwrap(), "temp/*");
        let row = Row { id: 1, key: vec![1], file_type: "a".into(), store: StoreType::Tx, height: 0 };
        assert_eq!(narrowest(selectors[1..].iter(), &row), None);
    }
}
