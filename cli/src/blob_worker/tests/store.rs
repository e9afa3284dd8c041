//! Fates of blobs by the answers of stores.

use super::super::s3::{self, BULK};
use super::super::tests::{Row, path, row};
use super::*;
use crate::blob_worker::place::Place;
use crate::blob_worker::stores::Stores;
use crate::exit::why;
use crate::http_server::Server;
use axum::http::StatusCode;
use std::time::Duration;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn open(of: &str, dir: &std::path::Path, layout: Layout) -> Result<Stores> {
    let place = format!("{of}=file://{}", dir.display()).parse::<Place>().unwrap();
    Stores::open(&[place], layout, Store::directory)
}

fn delete(stores: &Stores, row: &Row) -> Fate {
    let (at, target) = stores.find(row).unwrap();
    runtime().block_on(stores.0[at].delete(&[target])).remove(0)
}

#[test]
fn directory_store_deletes_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let stores = open("tx/*", dir.path(), Layout::Hex).unwrap();
    let file = |id| dir.path().join(path(id).as_ref());
    std::fs::write(file(1), "a").unwrap();
    assert_eq!((delete(&stores, &row(1)), file(1).exists()), (Fate::Gone, false));
    assert_eq!(delete(&stores, &row(1)), Fate::Absent);
    std::fs::create_dir(file(2)).unwrap();
    assert!(matches!(delete(&stores, &row(2)), Fate::Failed(_)));
    let long = Row { blob_key: vec![7; 200].into(), ..row(3) };
    assert!(matches!(delete(&stores, &long), Fate::Failed(_)), "a name of 400 characters is too long");
    // A symbolic link is deleted, not its target.
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, "b").unwrap();
    std::os::unix::fs::symlink(&elsewhere, file(4)).unwrap();
    assert_eq!((delete(&stores, &row(4)), elsewhere.exists()), (Fate::Gone, true));
}

#[test]
fn directory_store_takes_names_of_255_bytes_and_linked_folders() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let hex = open("tx/*", dir.path(), Layout::Hex).unwrap();
    let place = format!("tx/*=file://{}?hashPrefix=2", dir.path().display()).parse::<Place>().unwrap();
    let teranode = Stores::open(&[place], Layout::Teranode, Store::directory).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("07")).unwrap();
    for (stores, root, longest) in [(&hex, dir.path(), 126), (&teranode, elsewhere.path(), 122)] {
        let of = |bytes: usize| Row { blob_key: vec![7; bytes].into(), ..row(1) };
        let file = root.join(format!("{}.tx", "07".repeat(longest)));
        std::fs::write(&file, "a").unwrap();
        assert_eq!((delete(stores, &of(longest)), file.exists()), (Fate::Gone, false));
        assert!(matches!(delete(stores, &of(longest + 1)), Fate::Failed(_)), "{longest}");
    }
    assert!(dir.path().join("07").is_symlink() && elsewhere.path().exists(), "the folder stays");
}

#[test]
fn directory_with_special_characters_finds_blobs_and_markers_above() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("a b%20[c]~#^").join("é");
    std::fs::create_dir_all(&dir).unwrap();
    let url = Url::from_directory_path(&dir).unwrap();
    let stores = Stores::open(&[format!("tx/*={url}").parse().unwrap()], Layout::Hex, Store::directory);
    let stores = stores.unwrap();
    let file = dir.join(path(1).as_ref());
    std::fs::write(&file, "a").unwrap();
    assert_eq!((delete(&stores, &row(1)), file.exists()), (Fate::Gone, false));
    let found = || runtime().block_on(stores.0[0].markers_above());
    assert_eq!(found().unwrap(), []);
    let marker = r#"{"format": 1, "canister": "aaaaa-aa", "store": "a", "layout": "hex", "blobs": ["tx/tx"]}"#;
    std::fs::write(above.path().join(NAME), marker).unwrap();
    let [(at, marker)] = &found().unwrap()[..] else { panic!("one marker") };
    let folder = std::fs::canonicalize(above.path()).unwrap();
    assert_eq!((at.as_str(), marker.canister.as_str()), (folder.to_str().unwrap(), "aaaaa-aa"));
    std::fs::write(folder.join(NAME), "half a mark").unwrap();
    assert!(format!("{:#}", found().unwrap_err()).contains("its marker cannot be read"));
}

#[test]
fn checksum_is_deleted_with_its_blob() {
    let dir = tempfile::tempdir().unwrap();
    let place = format!("tx/tx=file://{}?hashPrefix=2", dir.path().display()).parse::<Place>().unwrap();
    let stores = Stores::open(&[place], Layout::Teranode, Store::directory).unwrap();
    let blob = |id: u64| format!("{:016x}.tx", id.swap_bytes());
    let folder = dir.path().join(&blob(9)[..2]);
    std::fs::create_dir(&folder).unwrap();
    for name in [blob(9), format!("{}.sha256", blob(9))] {
        std::fs::write(folder.join(name), "a").unwrap();
    }
    assert_eq!(delete(&stores, &row(9)), Fate::Gone);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::write(folder.join(format!("{}.sha256", blob(9))), "a").unwrap();
    assert_eq!(delete(&stores, &row(9)), Fate::Absent, "the blob was not there");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn contradictory_places_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = |text: &str| text.replace("DIR", &dir.path().display().to_string()).parse::<Place>().unwrap();
    let open = |places: &[&str]| {
        let places: Vec<Place> = places.iter().map(|text| place(text)).collect();
        Stores::open(&places, Layout::Teranode, Store::directory)
    };
    let both = open(&["tx/tx=file://DIR", "tx/outputs=file://DIR/"]).unwrap();
    assert_eq!((both.0.len(), both.0[0].of.len()), (1, 2), "one store");
    for refused in [
        &["tx/tx=file://DIR", "tx/tx=file://DIR"][..],
        &["tx/tx=file://DIR", "tx/outputs=file://DIR?hashPrefix=2"],
        &["tx/tx=file://DIR/none"],
        &["tx/tx=file://DIR", "temp/tx=file://DIR"],
        &["tx/tx=file://DIR", "temp/*=file://DIR"],
        &["tx/*=file://DIR", "temp/tx=file://DIR/sub"],
        &["tx/*=file://DIR/sub", "temp/tx=file://DIR"],
        &["tx/*=file://DIR/sub", "temp/tx=file://DIR?subDirectory=sub"],
        &["tx/tx=file://DIR", "tx/TX=file://DIR"],
        &["subtree/subtreeData=file://DIR", "temp/subtreedata=file://DIR/sub"],
    ] {
        assert!(open(refused).is_err(), "{refused:?}");
    }
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    for taken in
        [&["tx/tx=file://DIR", "temp/outputs=file://DIR"][..], &["tx/tx=file://DIR/sub", "temp/dat=file://DIR"]]
    {
        open(taken).unwrap();
    }
}

fn error(why: &str) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: why.to_string().into() }
}

#[test]
fn errors_are_matched_to_paths_and_missing_answers_are_left() {
    let paths: Vec<Path> = (1..=3).map(path).collect();
    let named = || error(&format!("{NAMED}{}: no (code: Locked)", path(2)));
    let fates = by_path(&paths, vec![Ok(path(3)), Err(named()), Ok(path(1))], false);
    assert!(matches!(&fates[&path(2)], Fate::Named(why) if why.contains("Locked")), "{fates:?}");
    assert_eq!((&fates[&path(1)], &fates[&path(3)]), (&Fate::Gone, &Fate::Gone));
    // One error for the whole request, no answer, too few answers, and an error without a path.
    for answers in [
        vec![Err(error("503"))],
        vec![],
        vec![Ok(path(1)), Err(named())],
        vec![Ok(path(1)), Err(error("503")), Ok(path(3))],
    ] {
        let fates = by_path(&paths, answers, false);
        assert!(matches!(fates[&path(2)], Fate::Left(_)), "{fates:?}");
        assert_eq!(fates.len(), 3);
    }
    let named = |code: &str| fate_of(&error(&format!("{NAMED}x: no (code: {code})")));
    assert_eq!(named("NoSuchKey"), Fate::Absent);
    for code in ["AccessDenied", "Locked", "InvalidRequest"] {
        assert!(matches!(named(code), Fate::Named(_)), "{code}");
    }
    for code in OF_THE_KEY {
        assert!(matches!(named(code), Fate::Failed(_)), "{code}");
    }
    for code in OF_THE_STORE {
        assert!(matches!(named(code), Fate::Left(_)), "{code}");
    }
}

#[test]
fn disabled_bulk_delete_is_read_in_every_spelling() {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    let url = Url::parse("s3://b/p").unwrap();
    let chunk = |value: &str| {
        let environment = AmazonS3Builder::new().with_config(AmazonS3ConfigKey::DisableBulkDelete, value);
        s3::open(environment, url.clone(), Duration::from_secs(1)).map(|s3| s3.chunk)
    };
    for yes in ["1", "true", "TRUE", "on", "yes", "y"] {
        assert_eq!(chunk(yes).unwrap(), 1, "{yes}");
    }
    for no in ["0", "false", "off", "no", "n"] {
        assert_eq!(chunk(no).unwrap(), BULK, "{no}");
    }
    assert!(chunk("perhaps").is_err());
    assert_eq!(s3::open(AmazonS3Builder::new(), url.clone(), Duration::from_secs(1)).unwrap().chunk, BULK);
}

#[test]
fn s3_endpoint_wins_over_the_common_endpoint() {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    let url = Url::parse("s3://b/p").unwrap();
    let common = || AmazonS3Builder::new().with_config(AmazonS3ConfigKey::Endpoint, "https://a/");
    let own = common().with_config(AmazonS3ConfigKey::S3Endpoint, "https://b");
    for (environment, endpoint) in
        [(AmazonS3Builder::new(), None), (common(), Some("https://a")), (own, Some("https://b"))]
    {
        assert_eq!(s3::open(environment, url.clone(), Duration::from_secs(1)).unwrap().endpoint.as_deref(), endpoint);
    }
}

#[test]
fn two_rows_with_one_path_share_one_request_and_fate() {
    use super::super::tests::Moody;
    let moody = Arc::<Moody>::default();
    let stores = Stores::of(vec![("tx/*", moody.clone(), 10), ("temp/*", Arc::<Moody>::default(), 10)]);
    let temp = Row { id: 2, ..row(1) };
    let targets: Vec<Target> = [row(1), temp, row(3)].iter().map(|row| stores.find(row).unwrap().1).collect();
    *moody.stubborn.lock().unwrap() = Some(path(1));
    let fates = runtime().block_on(stores.0[0].delete(&targets));
    assert!(matches!(&fates[..], [Fate::Named(_), Fate::Named(_), Fate::Gone]), "{fates:?}");
    assert_eq!(moody.asked.lock().unwrap().len(), 2);
}

#[test]
fn only_s3s_own_404_means_absent() {
    use object_store::aws::AmazonS3Builder;
    let server = Arc::new(Server::bind(0).unwrap());
    let builder = AmazonS3Builder::new()
        .with_bucket_name("b")
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_disable_bulk_delete(true)
        .with_access_key_id("a")
        .with_secret_access_key("b");
    let stores = Stores::of(vec![("tx/tx", Arc::new(builder.build().unwrap()), 1)]);
    let (store, target) = (&stores.0[0], stores.find(&row(1)).unwrap().1);
    let runtime = runtime();
    let ask = |body: &'static str| {
        let answering = server.clone();
        let answers = std::thread::spawn(move || {
            for _ in 0..2 {
                answering.recv().unwrap().respond((StatusCode::NOT_FOUND, body));
            }
        });
        let marker = runtime.block_on(store.marker());
        let fate = runtime.block_on(store.delete(std::slice::from_ref(&target))).remove(0);
        answers.join().unwrap();
        (marker.map_err(|error| format!("{error:#}")), fate)
    };
    assert_eq!(ask("<Error><Code>NoSuchKey</Code></Error>"), (Ok(None), Fate::Absent));
    let (marker, fate) = ask("<Error><Code>NoSuchBucket</Code></Error>");
    assert!(marker == Ok(None) && matches!(fate, Fate::Left(_)), "{fate:?}");
    for body in ["", "<html>no such page</html>"] {
        let (marker, fate) = ask(body);
        assert!(marker.unwrap_err().contains("404") && matches!(fate, Fate::Left(_)), "{fate:?}");
    }
}

#[test]
fn missing_bucket_is_named_when_the_marker_is_written_or_folders_are_listed() {
    use object_store::aws::AmazonS3Builder;
    let server = Arc::new(Server::bind(0).unwrap());
    let builder = AmazonS3Builder::new()
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_access_key_id("a")
        .with_secret_access_key("b");
    let mut store = s3::open(builder, "s3://none/tx".parse().unwrap(), Duration::from_secs(60)).unwrap();
    store.layout = Layout::Folders(2);
    let runtime = runtime();
    let answering = server.clone();
    std::thread::spawn(move || {
        let body =
            "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>It does not exist</Message></Error>";
        while let Some(request) = answering.recv() {
            request.respond((StatusCode::NOT_FOUND, body));
        }
    });
    let marker = Contents::parse(br#"{"format": 1, "canister": "", "store": "", "layout": "", "blobs": []}"#).unwrap();
    let expected = "s3://none/tx: there is no such bucket: make it first, or correct the URL or the endpoint";
    assert_eq!(why(&runtime.block_on(store.mark(&marker, false)).unwrap_err()), expected);
    assert_eq!(why(&runtime.block_on(store.markers_within()).unwrap_err()), expected);
    // A refused deletion is told without XML.
    let target = Target { id: 1, path: path(1), checksum: None };
    let fate = runtime.block_on(store.delete(&[target])).remove(0);
    assert!(fate.error().unwrap().ends_with(": NoSuchBucket: It does not exist"), "{fate:?}");
    server.unblock();
}

#[test]
fn marker_that_is_none_is_named_with_what_it_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let stores = open("tx/tx", dir.path(), Layout::Hex).unwrap();
    let should = "it should be a JSON object with format, canister, store, layout and blobs, as `coppice blob-worker init` writes it";
    for (contents, part) in [
        ("null", ""),
        ("5", ""),
        ("[]", ""),
        ("", ""),
        ("{", ""),
        ("{}", "missing field `format` at line 1 column 2; "),
        (r#"{"format": "x"}"#, "invalid type: string \"x\", expected u32 at line 1 column 14; "),
    ] {
        std::fs::write(dir.path().join(NAME), contents).unwrap();
        let error = why(&runtime().block_on(stores.0[0].marker()).unwrap_err());
        let url = &stores.0[0].url;
        assert_eq!(error, format!("{url}: its marker cannot be read: {NAME} is invalid: {part}{should}"), "{contents}");
    }
}

/// Answers of S3, as `object_store` returns them, from a server with scripted answers.
#[test]
fn s3_answers_give_the_right_fates() {
    use object_store::RetryConfig;
    use object_store::aws::AmazonS3Builder;
    let server = Arc::new(Server::bind(0).unwrap());
    let builder = AmazonS3Builder::new()
        .with_bucket_name("b")
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_access_key_id("a")
        .with_secret_access_key("b")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
    let stores = Stores::of(vec![("tx/tx", Arc::new(builder.build().unwrap()), BULK)]);
    let result = |entries: &str| {
        let body = format!("<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{entries}</DeleteResult>");
        (200, body)
    };
    let gone = |id: u64| format!("<Deleted><Key>{}</Key></Deleted>", path(id));
    let failed = |id: u64, code: &str| {
        format!("<Error><Key>{}</Key><Code>{code}</Code><Message>why</Message></Error>", path(id))
    };
    let runtime = runtime();
    let ask = |ids: &[u64], (code, body): (u16, String)| {
        let targets: Vec<Target> = ids.iter().map(|id| stores.find(&row(*id)).unwrap().1).collect();
        let answering = server.clone();
        let answer = std::thread::spawn(move || {
            answering.recv().unwrap().respond((StatusCode::from_u16(code).unwrap(), body));
        });
        let stores = stores.clone();
        let fates =
            runtime.block_on(async move { tokio::spawn(async move { stores.0[0].delete(&targets).await }).await });
        answer.join().unwrap();
        fates.ok()
    };
    assert_eq!(ask(&[1, 2], result(&(gone(1) + &gone(2)))).unwrap(), [Fate::Gone, Fate::Gone]);
    let mixed = ask(&[1, 2, 3], result(&(gone(1) + &failed(2, "Locked") + &failed(3, "AccessDenied")))).unwrap();
    assert!(matches!(&mixed[..], [Fate::Gone, Fate::Named(_), Fate::Named(_)]), "{mixed:?}");
    // In a request for one blob, an error for the key belongs to the blob, but a failed request says nothing about it.
    assert!(matches!(ask(&[1], result(&failed(1, "Locked"))).unwrap()[0], Fate::Named(_)));
    for (code, body) in
        [(503, String::new()), (403, String::new()), (404, "<NoSuchBucket/>".into()), (200, "no XML".into())]
    {
        for ids in [&[1][..], &[1, 2]] {
            let fates = ask(ids, (code, body.clone())).unwrap();
            assert!(fates.iter().all(|fate| matches!(fate, Fate::Left(_))), "{code}: {fates:?}");
        }
    }
    // An answer for a key that was not requested makes the library panic, which the worker treats as a failed request.
    assert_eq!(ask(&[1], result(&failed(9, "Locked"))), None);
}

#[test]
fn markers_above_a_store_in_a_bucket_are_found_and_forbidden_ones_ignored() {
    use object_store::RetryConfig;
    use object_store::aws::AmazonS3Builder;
    let server = Arc::new(Server::bind(0).unwrap());
    let builder = AmazonS3Builder::new()
        .with_bucket_name("b")
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_access_key_id("a")
        .with_secret_access_key("b")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
    let store: Arc<dyn ObjectStore> = Arc::new(builder.build().unwrap());
    let stores = Stores::of(vec![("tx/tx", store, BULK)]).below("a/b/c", &Layout::Hex);
    let runtime = runtime();
    // The bucket's answers for the markers of `/`, `/a` and `/a/b`.
    let above = |answers: [(u16, &'static str); 3]| {
        let answering = server.clone();
        let answers = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for (code, body) in answers {
                let request = answering.recv().unwrap();
                asked.push(request.path().to_string());
                let head = axum::response::Response::builder().status(code).header("etag", "\"1\"");
                let head = head.header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
                request.respond(head.body(axum::body::Body::from(body)).unwrap());
                if code == 503 {
                    break;
                }
            }
            asked
        });
        let found = runtime.block_on(stores.0[0].markers_above());
        let asked = answers.join().unwrap();
        let folders = ["", "/a", "/a/b"].map(|folder| format!("/b{folder}/coppice-blob-store.json"));
        assert_eq!(asked, folders[..asked.len()]);
        let found = found.map_err(|error| format!("{error:#}"))?;
        Ok::<_, String>(found.into_iter().map(|(at, marker)| (at, marker.canister)).collect::<Vec<_>>())
    };
    let none = (404, "<Error><Code>NoSuchKey</Code></Error>");
    let forbidden = (403, "<Error><Code>AccessDenied</Code></Error>");
    let marker = r#"{"format": 1, "canister": "aaaaa-aa", "store": "s3://b/a", "layout": "hex", "blobs": ["tx/tx"]}"#;
    assert_eq!(above([none, none, none]), Ok(vec![]));
    assert_eq!(above([forbidden, (200, marker), none]), Ok(vec![("/a".into(), "aaaaa-aa".into())]));
    assert_eq!(above([forbidden, forbidden, forbidden]), Ok(vec![]));
    // A marker that could not be read leads to an error, and is read again later.
    assert!(above([forbidden, (503, ""), none]).unwrap_err().contains("/a: its marker cannot be read"));
    assert!(above([none, none, (200, "<html>busy</html>")]).unwrap_err().contains("/a/b: its marker cannot be read"));
}

/// A proxy gets the whole URL in a request, a server only the path.
#[test]
fn s3_server_on_this_machine_is_asked_without_a_proxy() {
    use object_store::aws::AmazonS3Builder;
    use std::io::{BufRead as _, BufReader};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = AmazonS3Builder::new()
        .with_endpoint(format!("http://{}", listener.local_addr().unwrap()))
        .with_allow_http(true)
        .with_access_key_id("a")
        .with_secret_access_key("b");
    let store = s3::open(builder, "s3://bucket/tx".parse().unwrap(), Duration::from_millis(500)).unwrap();
    let request = std::thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(listener.accept().unwrap().0).read_line(&mut line).unwrap();
        line
    });
    runtime().block_on(store.marker()).unwrap_err();
    let line = request.join().unwrap();
    assert!(line.contains(" /bucket/tx/"), "{line}");
}
