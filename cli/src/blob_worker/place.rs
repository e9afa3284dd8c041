//! `--store`: a choice of blobs and the URL of their store.

use super::layout::Layout;
use ic_coppice_interface::{BlobDeletion, BlobSelector, StoreType};
use object_store::path::PathPart;
use std::fmt;
use std::str::FromStr;
use url::Url;

/// Store types and their names on the command line.
pub const STORE_TYPES: [(&str, StoreType); 6] = [
    ("tx", StoreType::Tx),
    ("subtree", StoreType::Subtree),
    ("block", StoreType::Block),
    ("temp", StoreType::Temp),
    ("block-persister", StoreType::BlockPersister),
    ("peer-registry", StoreType::PeerRegistry),
];

/// A choice of blobs: one store type, and one file type or all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    pub store: StoreType,
    /// The file type, or `None` for all.
    pub file_type: Option<String>,
}

impl Selector {
    /// Returns the narrowest selector that matches a row.
    pub fn of(row: &BlobDeletion) -> Self {
        Self { store: row.store_type, file_type: Some(row.file_type.clone()) }
    }

    /// Returns whether a blob of each choice can have the same file name, on a file system that ignores case, too, although no blob is in
    /// both choices.
    pub fn clashes(&self, other: &Self) -> bool {
        match (&self.file_type, &other.file_type) {
            (Some(a), Some(b)) if self.store == other.store => a != b && a.eq_ignore_ascii_case(b),
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            _ => self.store != other.store,
        }
    }

    /// Returns whether the other choice includes all blobs of this one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.store == other.store && (other.file_type.is_none() || other.file_type == self.file_type)
    }

    /// Returns the selector in the queue's form.
    pub fn asked(&self) -> BlobSelector {
        BlobSelector { store_type: self.store, file_type: self.file_type.clone() }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STORE_TYPES.iter().find(|(_, store)| *store == self.store).map_or("", |(name, _)| name);
        write!(f, "{name}/{}", self.file_type.as_deref().unwrap_or("*"))
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (store, file_type) = text.split_once('/').ok_or_else(|| {
            format!("{text:?} names no store type: write STORE_TYPE/FILE_TYPE, for example tx/{text}")
        })?;
        let of = STORE_TYPES.iter().find(|(known, _)| *known == store).ok_or_else(|| {
            format!(
                "{store:?} is not a store type; the store types are {}",
                STORE_TYPES.map(|(known, _)| known).join(", ")
            )
        })?;
        if file_type.is_empty() || file_type.len() > 32 {
            return Err(format!("{text:?} names no file type: write 1 to 32 bytes, or * for all"));
        }
        Ok(Self { store: of.1, file_type: (file_type != "*").then(|| file_type.to_string()) })
    }
}

/// A choice of blobs, and the place of these blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The blobs.
    pub of: Selector,
    /// The folder that holds them, `subDirectory` included.
    pub url: Url,
    /// The layout, if the URL names one.
    layout: Option<Layout>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, url) = text.split_once('=').ok_or("write STORE_TYPE/FILE_TYPE=URL")?;
        let mut url: Url = url.parse().map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let named = match url.scheme() {
            "file" => url.to_file_path().is_ok() && url.host().is_none(),
            "s3" => url.host_str().is_some_and(|bucket| !bucket.is_empty()),
            _ => false,
        };
        if !named || !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(format!("{url} is not a store: write s3://BUCKET/PREFIX or file:///DIRECTORY"));
        }
        if url.fragment().is_some() {
            return Err(format!("{url} has a fragment: write %23 for a # within a name"));
        }
        let query: Vec<_> = url.query_pairs().into_owned().collect();
        url.set_query(None);
        // The same store must always get the same name.
        let path = url.path().trim_end_matches('/').to_string();
        if path.contains("//") {
            return Err(format!("{url} has an empty folder name: remove the double slash"));
        }
        url.set_path(if path.is_empty() && url.scheme() == "file" { "/" } else { &path });
        let mut layout = None;
        for (key, value) in query {
            let wrong = || format!("{text}: no layout accepts {key}={value}");
            let many = || value.parse::<u16>().map(i32::from).map_err(|_| wrong());
            layout = match key.as_str() {
                "hashPrefix" => Some(Layout::Folders(many()?)),
                "hashSuffix" => Some(Layout::Folders(-many()?)),
                "subDirectory" => {
                    let folder = value.trim_matches('/');
                    // Names that the store's path type escapes would differ from Teranode's folders.
                    let is_plain = |folder: &str| !folder.is_empty() && PathPart::from(folder).as_ref() == folder;
                    if !folder.split('/').all(is_plain) {
                        return Err(wrong());
                    }
                    url.set_path(&format!("{path}/{folder}"));
                    layout.or(Some(Layout::Teranode))
                }
                _ => return Err(wrong()),
            };
        }
        let layout = layout.map(|layout| if layout == Layout::Folders(0) { Layout::Teranode } else { layout });
        Ok(Self { of: of.parse()?, url, layout })
    }
}

impl Place {
    /// Returns the layout, given the one that the command line names.
    ///
    /// # Errors
    /// When the URL names folders, which the named layout does not have.
    pub fn layout(&self, named: Layout) -> Result<Layout, String> {
        match self.layout {
            Some(_) if named == Layout::Hex => {
                Err(format!("{}: the layout hex has no folders; use --layout teranode", self.url))
            }
            layout => Ok(layout.unwrap_or(named)),
        }
    }
}

/// Returns whether `inner` is `outer` or lies within it.
pub fn is_within(inner: &Url, outer: &Url) -> bool {
    let below = inner.path().strip_prefix(outer.path().trim_end_matches('/'));
    (inner.scheme(), inner.host_str()) == (outer.scheme(), outer.host_str())
        && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::named;
    use super::*;

    fn place(text: &str) -> Result<Place, String> {
        text.parse()
    }

    #[test]
    fn place_has_one_name_for_one_store() {
        let tx = place("tx/tx=s3://bucket/a/b/").unwrap();
        assert_eq!((tx.of.to_string().as_str(), tx.url.as_str()), ("tx/tx", "s3://bucket/a/b"));
        assert_eq!(tx.url, place("tx/outputs=s3://bucket/a/b").unwrap().url);
        assert_eq!(place("temp/*=file:///srv/blobs/").unwrap().url.as_str(), "file:///srv/blobs");
        assert_eq!(place("block-persister/*=s3://b").unwrap().of.to_string(), "block-persister/*");
        assert_eq!(place("tx/*=file:///").unwrap().url.as_str(), "file:///");
        for refused in [
            "",
            "tx",
            "tx=s3://b",
            "*=s3://b",
            "=s3://b",
            "tx/tx=",
            "tx/tx=/srv",
            "tx/tx=file://srv/blobs",
            "tx/tx=s3://",
            "tx/tx=http://b",
            "nothing/tx=s3://b",
            "tx/=s3://b",
            "tx/tx=s3://key:secret@b",
            "tx/tx=s3://b//a",
            "tx/tx=s3://b/a#b",
            "tx/tx=s3://b/a#",
            "tx/tx=file:///srv/blobs#2",
        ] {
            assert!(place(refused).is_err(), "{refused}");
        }
        assert!(place("tx=s3://b").unwrap_err().contains("tx/tx"), "the error shows the right form");
        assert!(place("tx/tx=s3://b/#").unwrap_err().contains("fragment"));
    }

    #[test]
    fn folders_in_a_url_select_the_teranode_layout() {
        let layout = |text: &str, named| {
            let place = place(text)?;
            place.layout(named).map(|layout| (place.url.to_string(), layout))
        };
        let teranode = Layout::Teranode;
        let folders = |path: &str, prefix| Ok((format!("file://{path}"), Layout::Folders(prefix)));
        assert_eq!(layout("tx/tx=file:///a?hashPrefix=2", teranode), folders("/a", 2));
        assert_eq!(layout("tx/tx=file:///a?hashSuffix=2&subDirectory=/b/c/", teranode), folders("/a/b/c", -2));
        assert_eq!(layout("tx/tx=file:///?subDirectory=b", teranode), Ok(("file:///b".into(), teranode)));
        assert_eq!(layout("tx/tx=file:///a?hashPrefix=0", teranode), Ok(("file:///a".into(), teranode)));
        assert_eq!(layout("tx/tx=file:///a", Layout::Hex), Ok(("file:///a".into(), Layout::Hex)));
        for refused in
            ["hashPrefix=-1", "hashPrefix=x", "hashprefix=1", "subDirectory=a/../b", "subDirectory=", "subDirectory=."]
        {
            assert!(layout(&format!("tx/tx=file:///a?{refused}"), teranode).is_err(), "{refused}");
        }
        for character in "~[]{}%^|".chars() {
            let refused = format!("tx/tx=file:///a?subDirectory=b/%{:02x}c", character as u32);
            assert!(layout(&refused, teranode).is_err(), "{character}");
        }
        assert!(layout("tx/tx=file:///a?subDirectory=b/%23c", teranode).is_err(), "#");
        assert!(layout("tx/tx=file:///a?hashPrefix=2", Layout::Hex).is_err());
    }

    #[test]
    fn narrowest_selector_wins() {
        let selectors = ["temp/*", "temp/tx", "tx/tx"].map(|text| text.parse::<Selector>().unwrap());
        let of = |store, file_type: &str| {
            let row = Selector::of(&named(1, &[1], file_type, store));
            selectors.iter().filter(|of| row.is_within(of)).max().map(ToString::to_string)
        };
        assert_eq!(of(StoreType::Tx, "tx").unwrap(), "tx/tx");
        assert_eq!(of(StoreType::Tx, "outputs"), None);
        assert_eq!(of(StoreType::Temp, "tx").unwrap(), "temp/tx");
        assert_eq!(of(StoreType::Temp, "outputs").unwrap(), "temp/*");
    }

    #[test]
    fn selectors_clash_on_overlapping_file_types_and_urls_nest_by_folder() {
        for (a, b, clash) in [
            ("tx/tx", "temp/tx", true),
            ("tx/*", "temp/tx", true),
            ("tx/tx", "temp/*", true),
            ("tx/tx", "temp/outputs", false),
            ("tx/tx", "temp/TX", true),
            ("tx/tx", "tx/TX", true),
            ("tx/tx", "tx/tx", false),
            ("tx/TX", "tx/*", false),
            ("tx/tx", "tx/*", false),
        ] {
            let [a, b] = [a, b].map(|text| text.parse::<Selector>().unwrap());
            assert_eq!((a.clashes(&b), b.clashes(&a)), (clash, clash), "{a} {b}");
        }
        for (inner, outer, within) in [
            ("s3://b/a", "s3://b/a", true),
            ("s3://b/a/c", "s3://b/a", true),
            ("s3://b/a", "s3://b", true),
            ("s3://b/ab", "s3://b/a", false),
            ("s3://b", "s3://b/a", false),
            ("s3://c/a", "s3://b/a", false),
            ("file:///a/b", "file:///", true),
        ] {
            assert_eq!(is_within(&inner.parse().unwrap(), &outer.parse().unwrap()), within, "{inner} {outer}");
        }
    }
}
