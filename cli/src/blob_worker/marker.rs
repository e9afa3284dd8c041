//! Marker checks: a worker touches a store only if the store's marker names the worker's canister. A wrong prefix, or a directory that is
//! not mounted, looks like a store in which all blobs are absent, so a missing marker stops the worker. Another canister's marker in a
//! folder above, or in one that the layout writes into, means that two canisters would own the same objects.

use super::contents::{Contents, FORMAT, NAME};
use super::place::Selector;
use super::store::Store;
use crate::exit::{Exit, WRONG_STORE};
use anyhow::Result;
use candid::Principal;
use std::collections::BTreeMap;

/// Returns the marker that a store must have.
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

/// Checks that a store belongs to a canister, by its marker and, if `above` is set, by the markers in the folders above it.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] if the store does not belong to the canister; when a marker cannot be read.
pub async fn look(store: &Store, canister: Principal, above: bool) -> Result<()> {
    // Each request to a file system costs a thread, so one that hangs gets no second request before it has answered the first.
    let (store, turn) = (store.clone(), store.looks.clone().lock_owned().await);
    let look = async move {
        let _turn = turn;
        let above = if above { store.markers_above().await? } else { Vec::new() };
        check(&store, canister, store.marker().await?.as_ref())?;
        above.iter().try_for_each(|(at, above)| check_near(&store, canister, at, above))
    };
    tokio::spawn(look).await?
}

/// Writes the marker of a canister into a store. Returns false if the store had that marker already.
///
/// # Errors
/// When the store, a folder above it or a folder that its layout writes into belongs to another canister; when the marker cannot be
/// written.
pub async fn mark(store: &Store, canister: Principal) -> Result<bool> {
    let near = [store.markers_above().await?, store.markers_below().await?].concat();
    near.iter().try_for_each(|(at, near)| check_near(store, canister, at, near))?;
    let found = store.marker().await?;
    let Some(marker) = merged(store, canister, found.as_ref())? else { return Ok(false) };
    store.mark(&marker, found.is_some()).await?;
    check(store, canister, store.marker().await?.as_ref())?;
    Ok(true)
}

/// Compares a marker with the expected one; the marker may name more blobs.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] and the reason why a worker does not touch the store.
fn check(store: &Store, canister: Principal, found: Option<&Contents>) -> Result<()> {
    let (url, wrong) = (&store.url, |why: String| Err(Exit::error(WRONG_STORE, why)));
    let Some(found) = found else {
        return wrong(format!(
            "{url} has no marker {NAME}: the bucket or prefix may be wrong, or the directory not mounted. If the store is right, run \
             `coppice blob-worker init`, which writes the marker"
        ));
    };
    let expected = expected(store, canister);
    let blobs = found.blobs.iter().cloned().collect::<Vec<_>>().join(", ");
    let missing = expected.blobs.difference(&found.blobs).map(|missing| ("blobs", blobs.clone(), missing.clone()));
    let fields = found.fields().into_iter().zip(expected.fields()).map(|((what, is), (_, should))| (what, is, should));
    match fields.filter(|(_, is, should)| is != should).chain(missing).next() {
        Some((what, is, should)) => {
            wrong(format!("{url}: its marker {NAME} names {what} {is}, but this worker expects {should}"))
        }
        None => Ok(()),
    }
}

/// Returns the marker to write: the existing marker of this canister, extended by the new blobs, or `None` if the marker already names
/// them.
///
/// # Errors
/// As [`check`], if the existing marker is another one.
fn merged(store: &Store, canister: Principal, found: Option<&Contents>) -> Result<Option<Contents>> {
    let wanted = expected(store, canister);
    let Some(contents) = found else { return Ok(Some(wanted)) };
    let mut widened = contents.clone();
    widened.blobs.extend(wanted.blobs);
    check(store, canister, Some(&widened))?;
    Ok((widened != *contents).then_some(widened))
}

/// Checks the marker of a folder above or below a store.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] if the marker is another canister's, or if its blobs, of another store type, could be the same files.
fn check_near(store: &Store, canister: Principal, at: &str, found: &Contents) -> Result<()> {
    let wrong = |why| Err(Exit::error(WRONG_STORE, format!("{}: {at} also has a marker {NAME}: {why}", store.url)));
    if found.canister != canister.to_string() {
        return wrong(format!("it names canister {}, so two canisters would own the same objects", found.canister));
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
    fn missing_or_different_marker_is_refused_with_the_reason() {
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
        assert!(why(&mirror, a, Some(&marker)).contains("names endpoint AWS, but this worker expects http://mirror"));
        let there = merged(&mirror, a, None).unwrap().unwrap();
        check(&mirror, a, Some(&Contents::parse(&there.to_bytes()).unwrap())).unwrap();
        assert!(why(&tx, a, Some(&there)).contains("names endpoint http://mirror"));
        assert!(merged(&tx, a, Some(&there)).is_err(), "init does not take over another store");
        let newer = Contents { format: 2, ..marker.clone() };
        assert!(why(&tx, a, Some(&newer)).contains("format 2"));
    }

    #[test]
    fn init_adds_blobs_to_its_own_marker_only() {
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
        // Fields that a newer version of the command added are kept.
        let mut newer = first.clone();
        newer.more.insert("colour".into(), "green".into());
        assert_eq!(merged(&tx, a, Some(&newer)).unwrap(), None);
        let widened = merged(&outputs, a, Some(&newer)).unwrap().unwrap();
        assert_eq!(Contents::parse(&widened.to_bytes()).unwrap().more["colour"], "green");
    }

    #[test]
    fn marker_above_or_below_that_claims_the_same_objects_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Principal::management_canister(), Principal::anonymous());
        let tx = store(dir.path(), "tx/tx", Layout::Hex);
        let near = |of: &str, canister| {
            let marker = merged(&store(dir.path(), of, Layout::Hex), canister, None).unwrap().unwrap();
            check_near(&tx, a, "above", &marker).map_err(|error| error.to_string())
        };
        assert_eq!((near("tx/tx", a), near("temp/outputs", a)), (Ok(()), Ok(())));
        assert!(near("tx/tx", b).unwrap_err().contains("two canisters would own the same objects"));
        assert!(near("temp/*", a).unwrap_err().contains("same files"));
    }
}
