//! An SQLite file that is deleted, moved or replaced while the indexer has it open.

use super::World;
use crate::running::{Running, json, stderr_of};
use std::path::Path;

/// Does something to the folder of a database `chain.db`.
type Deed = fn(&Path);

const DEEDS: [(&str, Deed); 7] = [
    ("the file is deleted", |dir| std::fs::remove_file(dir.join("chain.db")).unwrap()),
    ("the file is moved", |dir| std::fs::rename(dir.join("chain.db"), dir.join("moved.db")).unwrap()),
    ("the folder is moved", |dir| std::fs::rename(dir, dir.with_extension("moved")).unwrap()),
    ("the folder is deleted", |dir| std::fs::remove_dir_all(dir).unwrap()),
    ("the log is deleted", |dir| std::fs::remove_file(dir.join("chain.db-wal")).unwrap()),
    ("the shared memory is deleted", |dir| std::fs::remove_file(dir.join("chain.db-shm")).unwrap()),
    ("the file is replaced by a copy", |dir| {
        std::fs::copy(dir.join("chain.db"), dir.join("copy.db")).unwrap();
        std::fs::rename(dir.join("copy.db"), dir.join("chain.db")).unwrap();
    }),
];

#[test]
fn nothing_is_acknowledged_after_the_file_is_gone() {
    let mut world = World::new();
    for (what, deed) in DEEDS {
        let dir = world.net.dir.path().join(what.replace(' ', "-"));
        std::fs::create_dir(&dir).unwrap();
        let url = format!("sqlite://{}", dir.join("chain.db").display());
        let indexing = Running::start(world.index(&url, &[]));
        // An acknowledgement of this run.
        world.append(1);
        world.wait_until_acknowledged();
        let acknowledged = world.next();
        deed(&dir);
        world.append(4);
        let ended = indexing.end();
        let error = stderr_of(&ended);
        assert_eq!(ended.status.code(), Some(1), "{what}: {error}");
        assert!(error.contains("deleted, moved or replaced") && error.contains("chain.db"), "{what}: {error}");
        assert_eq!(world.bound(), acknowledged, "{what}");
        // Another database takes all blocks.
        let next = format!("sqlite://{}", world.net.path(&format!("{}.db", what.replace(' ', "-"))));
        let report = json(&world.index(&next, &["--until-caught-up"]).output().unwrap());
        assert_eq!(report["acknowledged_before"], world.next(), "{what}");
    }
}

/// A file system in memory, which Linux has.
#[cfg(target_os = "linux")]
#[test]
fn database_in_memory_is_refused_unless_its_blocks_may_be_lost() {
    let (world, memory) = (World::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let file = memory.path().join("chain.db").display().to_string();
    let index = |more: &[&str]| {
        let mut command = world.net.command(&[&["index", "--until-caught-up"], more].concat());
        command.env("COPPICE_DATABASE", format!("sqlite://{file}")).output().unwrap()
    };
    let (refused, first) = (index(&[]), world.bound());
    let why = format!(
        "{file} is on a file system in memory (tmpfs), which loses all blocks when the machine ends: put the database on a local disk, or \
         use --volatile-database if the blocks may be lost"
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr_of(&refused).contains(&why), "{}", stderr_of(&refused));
    assert!(!std::fs::exists(&file).unwrap() && first < world.next());
    assert_eq!(json(&index(&["--volatile-database"]))["acknowledged_before"], world.next());
}

#[test]
fn reader_that_acknowledges_nothing_reports_that_its_file_is_gone() {
    let world = World::new();
    let url = format!("sqlite://{}", world.net.path("chain.db"));
    let mut reading = Running::start(world.index(&url, &["--no-ack"]));
    crate::running::wait_for("the file is there", || world.net.dir.path().join("chain.db-wal").exists());
    std::fs::remove_file(world.net.dir.path().join("chain.db")).unwrap();
    assert!(reading.child.try_wait().unwrap().is_none());
    let ended = reading.terminate();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr_of(&ended));
}
