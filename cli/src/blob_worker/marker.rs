//! Marker checks: a worker touches a store only if the store's marker names the worker's canister. A wrong prefix, or a directory that is
//! not mounted, looks like a store in which all blobs are absent, so a missing marker stops the worker. Another canister's marker in a
//! folder above, or in one that the layout writes into, means that two canisters would own the same objects. Blobs that the marker, or one
//! above or below, names for another store type would be the same files as the worker's, and the worker would delete a live record's blob.

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

/// Checks that a store belongs to a canister and keeps no versions, by its marker and, until these were right once, by the markers above
/// and below.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`] if the store does not belong to the canister, or keeps versions; when a marker cannot be read.
pub async fn look(store: &Store, canister: Principal) -> Result<()> {
    // Each request to a file system costs a thread, so one that hangs gets no second request before it has answered the first.
    let (store, mut near_is_right) = (store.clone(), store.looks.clone().lock_owned().await);
    let look = async move {
        let found = store.marker().await?;
        check(&store, canister, found.as_ref().map(|found| &found.contents))?;
        check_version(&store, found.and_then(|found| found.version))?;
        if !*near_is_right {
            look_near(&store, canister).await?;
            *near_is_right = true;
        }
        Ok(())
    };
    tokio::spawn(look).await?
}

/// Checks the markers in the folders above and below a store.
async fn look_near(store: &Store, canister: Principal) -> Result<()> {
    let near = [store.markers_above().await?, store.markers_within().await?].concat();
    // A folder below into which the layout does not write is another canister's own matter.
    let mut below = store.markers_below().await?;
    below.retain(|(_, found)| found.canister == canister.to_string());
    near.iter().chain(&below).try_for_each(|(at, found)| check_near(store, canister, at, found))
}

/// Writes the marker of a canister into a store. Returns false if the store had that marker already.
///
/// # Errors
/// When the store, a folder above it or a folder that its layout writes into belongs to another canister; when another store type has, or
/// may have, the same files there; when the store keeps versions; when the marker cannot be written.
pub async fn mark(store: &Store, canister: Principal) -> Result<bool> {
    look_near(store, canister).await?;
    let found = store.marker().await?;
    let marker = merged(store, canister, found.as_ref().map(|found| &found.contents))?;
    let has = found.is_some();
    check_version(store, found.and_then(|found| found.version))?;
    let Some(marker) = marker else { return Ok(false) };
    check_version(store, store.mark(&marker, has).await?)?;
    check(store, canister, store.marker().await?.as_ref().map(|found| &found.contents))?;
    Ok(true)
}

/// Checks that a store whose marker has this version keeps no versions, unless it may.
///
/// # Errors
/// [`Exit`] with [`WRONG_STORE`].
fn check_version(store: &Store, version: Option<String>) -> Result<()> {
    let Some(version) = version.filter(|_| !store.may_keep_versions) else { return Ok(()) };
    let why = format!(
        "{}: the bucket keeps versions (its marker has the version {version}), so that every deleted blob stays, and is paid for, as an \
         older version. Let a lifecycle rule of the bucket delete noncurrent versions, and give --keep-versions; or use a bucket without \
         versioning",
        store.url
    );
    Err(Exit::error(WRONG_STORE, why))
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
    let blobs = match found.blobs.is_empty() {
        true => "none".into(),
        false => found.blobs.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let missing = expected.blobs.difference(&found.blobs).map(|missing| ("blobs", blobs.clone(), missing.clone()));
    let fields = found.fields().into_iter().zip(expected.fields()).map(|((what, is), (_, should))| (what, is, should));
    if let Some((what, is, should)) = fields.filter(|(_, is, should)| is != should).chain(missing).next() {
        return wrong(format!("{url}: its marker {NAME} names {what} {is}, but this worker expects {should}"));
    }
    match clash(store, found) {
        Some(why) => wrong(format!(
            "{url}: its marker {NAME} {why}. Use separate folders; if one of the names is a mistake, remove it from the marker"
        )),
        None => Ok(()),
    }
}

/// Returns why some blobs of a marker could be the same files as blobs of a store, if they could.
fn clash(store: &Store, found: &Contents) -> Option<String> {
    found.blobs.iter().find_map(|blobs| match blobs.parse::<Selector>() {
        Ok(of) => {
            let own = store.of.iter().find(|own| own.clashes(&of))?;
            Some(format!("names the blobs {of}, which could be the same files as this store's {own}"))
        }
        Err(why) => Some(format!("names blobs that this version of the command does not know: {why}")),
    })
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
/// [`Exit`] with [`WRONG_STORE`] if the marker is another canister's, or if its blobs could be the same files as other blobs of the store.
fn check_near(store: &Store, canister: Principal, at: &str, found: &Contents) -> Result<()> {
    let wrong = |why: String| {
        Err(Exit::error(WRONG_STORE, format!("{}: {at} also has a marker {NAME}, which {why}", store.url)))
    };
    if found.canister != canister.to_string() {
        return wrong(format!("names canister {}, so that two canisters would own the same objects", found.canister));
    }
    match clash(store, found) {
        Some(why) => wrong(why),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::place::Place;
    use super::super::stores::Stores;
    use super::*;
    use std::collections::BTreeSet;

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
        let empty = Contents { blobs: BTreeSet::new(), ..marker.clone() };
        let expected = format!("{}: its marker {NAME} names blobs none, but this worker expects tx/tx", tx.url);
        assert_eq!(why(&tx, a, Some(&empty)), expected);
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
        assert!(near("temp/TX", a).unwrap_err().contains("same files"));
    }

    #[test]
    fn marker_with_blobs_that_could_be_the_same_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let a = Principal::management_canister();
        let of = |of: &str| store(dir.path(), of, Layout::Hex);
        let first = merged(&of("tx/tx"), a, None).unwrap().unwrap();
        for (second, clashes) in [
            ("temp/tx", true),
            ("temp/*", true),
            ("temp/TX", true),
            ("tx/TX", true),
            ("temp/dat", false),
            ("tx/*", false),
        ] {
            let init = merged(&of(second), a, Some(&first)).map_err(|error| error.to_string());
            assert_eq!(init.is_err(), clashes, "{second}: {init:?}");
            assert!(init.is_ok_and(|marker| marker.is_some()) || clashes, "{second}");
            // A marker that has both already stops the workers of both.
            let mut both = first.clone();
            both.blobs.insert(second.into());
            for store in ["tx/tx", second] {
                let why = check(&of(store), a, Some(&both)).err().map(|why| (Exit::code_of(&why), why.to_string()));
                assert_eq!(why.is_some(), clashes, "{second}: {why:?}");
                assert!(
                    why.is_none_or(|(code, why)| code == WRONG_STORE && why.contains("the same files")),
                    "{second}"
                );
            }
        }
        let mut newer = first.clone();
        newer.blobs.insert("nothing/known".into());
        assert!(check(&of("tx/tx"), a, Some(&newer)).unwrap_err().to_string().contains("does not know"));
    }
}
