//! The marker where a store's blobs are: whose they are. "All absent" is what a wrong prefix, or a directory that is not mounted, looks like,
//! so a worker goes by a marker that is there and says what it should. Another canister's marker in a folder above, or below where the
//! layout writes, says that two canisters would own the same objects.

use super::contents::{Contents, FORMAT, NAME};
use super::place::Selector;
use super::store::Store;
use crate::exit::{Exit, WRONG_STORE};
use anyhow::Result;
use candid::Principal;
use std::collections::BTreeMap;

/// What a store's marker must say.
fn expected(store: &Store, canister: Principal) -> Contents {
    Contents {
        format: FORMAT,
        canister: canister.to_string(),
        store: store.url.to_string(),
        endpoint: store.endpoint.clone(),
        layout: store.layout.to_string(),
        blobs: store.of.iter().map(ToString::to_string).collect(),
        more: BTreeMap::new(),
    }
}

/// Looks whether a store is a canister's, by its marker and, where these are asked for, those in the folders above it.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] where it is not; when a marker cannot be read.
pub async fn look(store: &Store, canister: Principal, above: bool) -> Result<()> {
    // A file system that hangs is asked again when it has answered, because each request costs a thread.
    let (store, turn) = (store.clone(), store.looks.clone().lock_owned().await);
    let look = async move {
        let _turn = turn;
        let above = if above { store.markers_above().await? } else { Vec::new() };
        check(&store, canister, store.marker().await?.as_ref())?;
        above.iter().try_for_each(|(at, above)| check_near(&store, canister, at, above))
    };
    tokio::spawn(look).await?
}

/// Gives a store the marker of a canister. Answers false where it had it.
///
/// # Errors
/// When it is another's, or in a folder that is, or has such a folder where its layout writes; or cannot be written.
pub async fn mark(store: &Store, canister: Principal) -> Result<bool> {
    let near = [store.markers_above().await?, store.markers_below().await?].concat();
    near.iter().try_for_each(|(at, near)| check_near(store, canister, at, near))?;
    let found = store.marker().await?;
    let Some(marker) = merged(store, canister, found.as_ref())? else { return Ok(false) };
    store.mark(&marker, found.is_some()).await?;
    check(store, canister, store.marker().await?.as_ref())?;
    Ok(true)
}

/// Compares a marker with what it must say; it may name more blobs.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] and why a worker does not touch the store.
fn check(store: &Store, canister: Principal, found: Option<&Contents>) -> Result<()> {
    let (url, wrong) = (&store.url, |why: String| Err(Exit::error(WRONG_STORE, why)));
    let Some(found) = found else {
        return wrong(format!(
            "{url} has no marker {NAME}, so it may be the wrong bucket or prefix, or is not mounted: if it is the right one, \
             `coppice blob-worker init` writes the marker"
        ));
    };
    let expected = expected(store, canister);
    let blobs = found.blobs.iter().cloned().collect::<Vec<_>>().join(", ");
    let missing = expected.blobs.difference(&found.blobs).map(|missing| ("blobs", blobs.clone(), missing.clone()));
    let fields = found.fields().into_iter().zip(expected.fields()).map(|((what, is), (_, should))| (what, is, should));
    match fields.filter(|(_, is, should)| is != should).chain(missing).next() {
        Some((what, is, should)) => {
            wrong(format!("{url}: its marker {NAME} names {what} {is}, and this worker {should}"))
        }
        None => Ok(()),
    }
}

/// The marker that a store is to get: that of before, where it is this canister's, with the new blobs and all that it has besides; none where
/// it has it.
///
/// # Errors
/// As [`check`], where it has another one.
fn merged(store: &Store, canister: Principal, found: Option<&Contents>) -> Result<Option<Contents>> {
    let wanted = expected(store, canister);
    let Some(contents) = found else { return Ok(Some(wanted)) };
    let mut widened = contents.clone();
    widened.blobs.extend(wanted.blobs);
    check(store, canister, Some(&widened))?;
    Ok((widened != *contents).then_some(widened))
}

/// Looks at the marker of a folder above a store, or below it.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] where it is another canister's, or has blobs of another store type that could be the same files.
fn check_near(store: &Store, canister: Principal, at: &str, found: &Contents) -> Result<()> {
    let wrong = |why| Err(Exit::error(WRONG_STORE, format!("{}: {at} has a marker {NAME}, too: {why}", store.url)));
    if found.canister != canister.to_string() {
        return wrong(format!("it names canister {}, so two would own the same objects", found.canister));
    }
    let theirs = found.blobs.iter().filter_map(|of| of.parse::<Selector>().ok());
    match theirs.flat_map(|a| store.of.iter().map(move |b| (a.clone(), b))).find(|(a, b)| a.clashes(b)) {
        Some((a, b)) => wrong(format!("its {a} and this store's {b} would be the same files")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::place::Place;
    use super::super::stores::Stores;
    use super::*;

    fn store(dir: &std::path::Path, of: &str, layout: Layout) -> Store {
        let place: Place = format!("{of}=file://{}", dir.display()).parse().unwrap();
        Stores::open(&[place], layout, Store::directory).unwrap().0[0].clone()
    }

    #[test]
    fn a_marker_that_is_missing_or_names_another_is_refused_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let tx = store(dir.path(), "tx/tx", Layout::Hex);
        let why =
            |store: &Store, canister, found: Option<&Contents>| check(store, canister, found).unwrap_err().to_string();
        assert!(why(&tx, a, None).contains("init"));
        let marker = merged(&tx, a, None).unwrap().unwrap();
        check(&tx, a, Some(&marker)).unwrap();
        assert!(why(&tx, b, Some(&marker)).contains(&a.to_string()));
        assert!(why(&store(dir.path(), "tx/tx", Layout::Teranode), a, Some(&marker)).contains("layout hex"));
        assert!(why(&store(dir.path(), "tx/outputs", Layout::Hex), a, Some(&marker)).contains("outputs"));
        assert!(why(&store(dir.path(), "tx/*", Layout::Hex), a, Some(&marker)).contains("blobs tx/tx"));
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(why(&store(elsewhere.path(), "tx/tx", Layout::Hex), a, Some(&marker)).contains("names store"));
        let bytes = marker.to_bytes();
        for bytes in [&b""[..], b"{}", b"[1", b"<html>503</html>", &bytes[..bytes.len() / 2]] {
            assert!(Contents::parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        let mut mirror = tx.clone();
        mirror.endpoint = Some("http://mirror".into());
        assert!(why(&mirror, a, Some(&marker)).contains("names endpoint AWS, and this worker http://mirror"));
        let there = merged(&mirror, a, None).unwrap().unwrap();
        check(&mirror, a, Some(&Contents::parse(&there.to_bytes()).unwrap())).unwrap();
        assert!(why(&tx, a, Some(&there)).contains("names endpoint http://mirror"));
        assert!(merged(&tx, a, Some(&there)).is_err(), "and init takes over none");
        let newer = Contents { format: 2, ..marker.clone() };
        assert!(why(&tx, a, Some(&newer)).contains("format 2"));
    }

    #[test]
    fn init_adds_what_is_new_and_takes_nobody_elses_store() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let [tx, outputs] = ["tx/tx", "tx/outputs"].map(|of| store(dir.path(), of, Layout::Hex));
        let first = merged(&tx, a, None).unwrap().unwrap();
        assert_eq!(Contents::parse(&first.to_bytes()).unwrap(), first);
        assert_eq!(merged(&tx, a, Some(&first)).unwrap(), None, "again");
        let both = merged(&outputs, a, Some(&first)).unwrap().unwrap();
        check(&tx, a, Some(&both)).unwrap();
        check(&outputs, a, Some(&both)).unwrap();
        assert!(merged(&tx, b, Some(&both)).is_err());
        assert!(merged(&store(dir.path(), "tx/tx", Layout::Teranode), a, Some(&both)).is_err());
        // Fields that a newer command has added stay.
        let mut newer = first.clone();
        newer.more.insert("colour".into(), "green".into());
        assert_eq!(merged(&tx, a, Some(&newer)).unwrap(), None);
        let widened = merged(&outputs, a, Some(&newer)).unwrap().unwrap();
        assert_eq!(Contents::parse(&widened.to_bytes()).unwrap().more["colour"], "green");
    }

    #[test]
    fn a_marker_above_or_below_is_refused_where_the_objects_would_be_anothers_too() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let tx = store(dir.path(), "tx/tx", Layout::Hex);
        let near = |of: &str, canister| {
            let marker = merged(&store(dir.path(), of, Layout::Hex), canister, None).unwrap().unwrap();
            check_near(&tx, a, "above", &marker).map_err(|error| error.to_string())
        };
        assert_eq!((near("tx/tx", a), near("temp/outputs", a)), (Ok(()), Ok(())));
        assert!(near("tx/tx", b).unwrap_err().contains("two would own the same objects"));
        assert!(near("temp/*", a).unwrap_err().contains("same files"));
    }
}
