//! The marker at a store's root: whose blobs it has. "All absent" is what a wrong prefix, or a directory that is not mounted, looks like,
//! so a worker goes by a marker that is there and says what it should.

use super::store::Store;
use anyhow::Result;
use candid::Principal;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The marker's name. No blob has it: their names are hexadecimal.
pub const NAME: &str = "coppice-blob-store.json";
/// The version of its form.
const FORMAT: u32 = 1;

/// What a marker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The version of its form.
    pub format: u32,
    /// The canister whose queue says what goes.
    pub canister: String,
    /// The store, as workers name it.
    pub store: String,
    /// Where its S3 is, where that is not AWS: a bucket of that name elsewhere is another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How blobs are named in it.
    pub layout: String,
    /// Which blobs are in it, as workers name them.
    pub blobs: BTreeSet<String>,
}

/// A marker: what it says, or that it is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A marker.
    Says(Contents),
    /// Something else.
    Unreadable(String),
}

/// Why a worker does not touch a store. Nothing was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongStore(pub String);

impl fmt::Display for WrongStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongStore {}

impl Marker {
    /// Where it lies.
    pub fn path(root: &Path) -> Path {
        root.clone().join(NAME)
    }

    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Self {
        match serde_json::from_slice::<Contents>(bytes) {
            Ok(contents) if contents.format == FORMAT => Self::Says(contents),
            Ok(contents) => {
                Self::Unreadable(format!("it has format {}, and this command knows {FORMAT}", contents.format))
            }
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    /// As it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Says(contents) => serde_json::to_vec_pretty(contents).unwrap_or_default(),
            Self::Unreadable(_) => Vec::new(),
        }
    }
}

/// What a store's marker must say.
fn expected(store: &Store, canister: Principal) -> Contents {
    Contents {
        format: FORMAT,
        canister: canister.to_string(),
        store: store.url.to_string(),
        endpoint: store.endpoint.clone(),
        layout: store.layout.to_string(),
        blobs: store.of.iter().map(ToString::to_string).collect(),
    }
}

/// Compares a marker with what it must say; it may name more blobs.
///
/// # Errors
/// [`WrongStore`].
pub fn check(store: &Store, canister: Principal, found: Option<&Marker>) -> Result<(), WrongStore> {
    let url = &store.url;
    let contents = match found {
        None => {
            return Err(WrongStore(format!(
                "{url} has no marker {NAME}, so it may be the wrong bucket or prefix, or is not mounted: if it is the right one, \
                 `coppice blob-worker init` writes the marker"
            )));
        }
        Some(Marker::Unreadable(why)) => {
            return Err(WrongStore(format!("{url}: its marker {NAME} cannot be read: {why}")));
        }
        Some(Marker::Says(contents)) => contents,
    };
    let expected = expected(store, canister);
    let differs = |what: &str, is: &str, should: &str| {
        Err(WrongStore(format!("{url}: its marker {NAME} names {what} {is}, and this worker {should}")))
    };
    if contents.canister != expected.canister {
        return differs("canister", &contents.canister, &expected.canister);
    }
    if contents.store != expected.store {
        return differs("store", &contents.store, &expected.store);
    }
    if contents.endpoint != expected.endpoint {
        let named = |endpoint: &Option<String>| endpoint.clone().unwrap_or_else(|| "AWS".into());
        return differs("endpoint", &named(&contents.endpoint), &named(&expected.endpoint));
    }
    if contents.layout != expected.layout {
        return differs("layout", &contents.layout, &expected.layout);
    }
    match expected.blobs.difference(&contents.blobs).next() {
        Some(missing) => {
            let named = contents.blobs.iter().cloned().collect::<Vec<_>>().join(", ");
            differs("blobs", &named, missing)
        }
        None => Ok(()),
    }
}

/// The marker that a store is to get: that of before, where it is this canister's, with the new blobs; none where it has it.
///
/// # Errors
/// [`WrongStore`] where it has another one.
pub fn merged(store: &Store, canister: Principal, found: Option<&Marker>) -> Result<Option<Marker>, WrongStore> {
    let mut wanted = expected(store, canister);
    if let Some(Marker::Says(contents)) = found {
        wanted.blobs.extend(contents.blobs.iter().cloned());
        if *contents == wanted {
            return Ok(None);
        }
        let widened = Contents { blobs: wanted.blobs.clone(), ..contents.clone() };
        check(store, canister, Some(&Marker::Says(widened)))?;
    } else if found.is_some() {
        check(store, canister, found)?;
    }
    Ok(Some(Marker::Says(wanted)))
}

#[cfg(test)]
mod tests {
    use super::super::place::{LayoutName, Place};
    use super::super::store::Stores;
    use super::*;
    use std::time::Duration;

    fn store(dir: &std::path::Path, of: &str, layout: LayoutName) -> Store {
        let place: Place = format!("{of}=file://{}", dir.display()).parse().unwrap();
        Stores::open(&[place], layout, Duration::from_secs(1)).unwrap().all()[0].clone()
    }

    #[test]
    fn a_marker_that_is_missing_or_names_another_is_refused_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let tx = store(dir.path(), "tx", LayoutName::Hex);
        let why = |store: &Store, canister, found: Option<&Marker>| check(store, canister, found).unwrap_err().0;
        assert!(why(&tx, a, None).contains("init"));
        let marker = merged(&tx, a, None).unwrap().unwrap();
        check(&tx, a, Some(&marker)).unwrap();
        assert!(why(&tx, b, Some(&marker)).contains(&a.to_string()));
        assert!(why(&store(dir.path(), "tx", LayoutName::Teranode), a, Some(&marker)).contains("layout hex"));
        assert!(why(&store(dir.path(), "outputs", LayoutName::Hex), a, Some(&marker)).contains("outputs"));
        assert!(why(&store(dir.path(), "*", LayoutName::Hex), a, Some(&marker)).contains("blobs tx"));
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(why(&store(elsewhere.path(), "tx", LayoutName::Hex), a, Some(&marker)).contains("names store"));
        for (bytes, says) in [("", "EOF"), ("{}", "missing field"), ("[1", "EOF")] {
            assert!(why(&tx, a, Some(&Marker::parse(bytes.as_bytes()))).contains(says), "{bytes}");
        }
        let Marker::Says(contents) = &marker else { panic!("{marker:?}") };
        let mut mirror = tx.clone();
        mirror.endpoint = Some("http://mirror".into());
        assert!(why(&mirror, a, Some(&marker)).contains("names endpoint AWS, and this worker http://mirror"));
        let there = merged(&mirror, a, None).unwrap().unwrap();
        check(&mirror, a, Some(&Marker::parse(&there.to_bytes()))).unwrap();
        assert!(why(&tx, a, Some(&there)).contains("names endpoint http://mirror"));
        assert!(merged(&tx, a, Some(&there)).is_err(), "and init takes over none");
        let newer = Marker::Says(Contents { format: 2, ..contents.clone() });
        assert!(why(&tx, a, Some(&Marker::parse(&newer.to_bytes()))).contains("format 2"));
    }

    #[test]
    fn init_adds_what_is_new_and_takes_nobody_elses_store() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let [tx, outputs] = ["tx", "outputs"].map(|of| store(dir.path(), of, LayoutName::Hex));
        let first = merged(&tx, a, None).unwrap().unwrap();
        assert_eq!(Marker::parse(&first.to_bytes()), first);
        assert_eq!(merged(&tx, a, Some(&first)).unwrap(), None, "again");
        let both = merged(&outputs, a, Some(&first)).unwrap().unwrap();
        check(&tx, a, Some(&both)).unwrap();
        check(&outputs, a, Some(&both)).unwrap();
        assert!(merged(&tx, b, Some(&both)).is_err());
        assert!(merged(&store(dir.path(), "tx", LayoutName::Teranode), a, Some(&both)).is_err());
        assert!(merged(&tx, a, Some(&Marker::parse(b"mine"))).is_err());
    }
}
