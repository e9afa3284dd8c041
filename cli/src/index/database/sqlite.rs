//! Connections to an SQLite file: settings that are read back, file systems that are refused, and the identity of the open files.
//!
//! SQLite writes to its open files, wherever their names point. A file that was deleted or replaced takes commits that no later run finds.

use super::access::Access;
use anyhow::{Context, Result, bail, ensure};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The longest time that SQLite waits for another process's lock.
const BUSY: Duration = Duration::from_secs(30);
/// SQLite's page cache, in KiB (negative by SQLite's convention); large, because the index of transaction ids is written at random.
const CACHE: &str = "-262144";
/// Pages of SQLite's write-ahead log between two checkpoints; large, because a page that changes often is then copied back once.
const CHECKPOINT: &str = "65536";
/// SQLite's number of `synchronous = FULL`.
const FULL: i64 = 2;

/// Returns the options of the driver.
///
/// # Errors
/// When the URL is invalid, or the file is on a file system that is refused.
pub(super) fn options(access: &Access, reads: bool, creates: bool) -> Result<SqliteConnectOptions> {
    let options = SqliteConnectOptions::from_str(&access.url)?.busy_timeout(BUSY);
    if reads {
        return Ok(options.read_only(true));
    }
    if !access.volatile {
        ensure_on_disk(options.get_filename())?;
    }
    Ok(options
        .create_if_missing(creates)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", CACHE)
        .pragma("wal_autocheckpoint", CHECKPOINT))
}

/// Values that an open connection reads back.
pub(super) struct ReadBack {
    file: String,
    journal_mode: String,
    synchronous: i64,
}

/// Connects, and reads back the settings. The write-ahead log exists afterwards, because a transaction opens it.
pub(super) async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<(SqliteConnection, ReadBack)> {
    let mut link = SqliteConnection::connect_with(options).await?;
    sqlx::query("SELECT count(*) FROM sqlite_master").fetch_one(&mut link).await?;
    let file = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'");
    let file = file.fetch_one(&mut link).await?;
    let journal_mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut link).await?;
    let synchronous = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut link).await?;
    Ok((link, ReadBack { file, journal_mode, synchronous }))
}

impl ReadBack {
    /// Checks the settings of the database that was opened by the name `named`, and returns the open files.
    ///
    /// # Errors
    /// When the database is in memory, a commit may be lost, or a file is not there.
    pub fn check(&self, named: &Path, volatile: bool) -> Result<Files> {
        // The canister prunes what was acknowledged.
        ensure!(!self.file.is_empty(), "the database would be lost with this command: write sqlite://FILE");
        let Self { file, journal_mode, synchronous } = self;
        ensure!(
            journal_mode == "wal" && *synchronous == FULL,
            "SQLite opens {file} with journal_mode = {journal_mode} and synchronous = {synchronous} instead of wal and {FULL}: write the URL \
             without options (sqlite://FILE), and put the file on a local disk"
        );
        if !volatile {
            // A link may have led to a file that was not there before.
            ensure_on_disk(Path::new(file))?;
        }
        Files::open_at(Path::new(file), named)
    }
}

/// The identities of the open files: the database, its write-ahead log, the memory that its connections share, and the database by the name
/// in the URL, which may be a link.
pub(super) struct Files([(PathBuf, Identity); 4]);

type Identity = (u64, u64);

/// Returns the identity of a file, by `stat`: opening and closing a file would drop SQLite's locks on it.
#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Where files have no numbers, a file that is there counts as the same.
#[cfg(not(unix))]
fn identity(path: &Path) -> std::io::Result<Identity> {
    std::fs::metadata(path).map(|_| (0, 0))
}

impl Files {
    fn open_at(database: &Path, named: &Path) -> Result<Self> {
        let beside = |suffix: &str| -> PathBuf {
            let mut path = database.as_os_str().to_owned();
            path.push(suffix);
            path.into()
        };
        let of = |path: PathBuf| {
            let identity = identity(&path).with_context(|| format!("the open file {} is not there", path.display()))?;
            anyhow::Ok((path, identity))
        };
        Ok(Self([of(database.into())?, of(beside("-wal"))?, of(beside("-shm"))?, of(named.into())?]))
    }

    /// Checks that the paths are still those of the open files.
    ///
    /// # Errors
    /// When a file was deleted, moved or replaced.
    pub fn check(&self) -> Result<()> {
        for (path, opened) in &self.0 {
            ensure!(
                identity(path).is_ok_and(|found| found == *opened),
                "{} is not the file that the indexer opened: it was deleted, moved or replaced meanwhile, so rows that were committed since \
                 may be gone. Nothing more is acknowledged; put the database back with its -wal file, and start again",
                path.display()
            );
        }
        Ok(())
    }
}

/// Refuses a file on a network or in user space, where a commit may be on no disk and locks may not hold; and a file in memory.
fn ensure_on_disk(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match [file, folder].into_iter().find_map(volatile) {
        None => Ok(()),
        Some(kind) => bail!(
            "{} is on {kind}: put the database on a local disk, or use --volatile-database if the blocks may be lost",
            file.display()
        ),
    }
}

/// Returns the file system of a path in words, if it is refused.
#[cfg(target_os = "linux")]
fn volatile(path: &Path) -> Option<&'static str> {
    rustix::fs::statfs(path).ok().and_then(|found| refused(found.f_type as u32))
}

/// The other systems have no such numbers.
#[cfg(not(target_os = "linux"))]
fn volatile(_: &Path) -> Option<&'static str> {
    None
}

/// Returns a refused file system in words, by its number in `statfs`.
#[cfg(target_os = "linux")]
fn refused(kind: u32) -> Option<&'static str> {
    match kind {
        0x6969 => Some("a file system (NFS) that may lose committed blocks and breaks SQLite's locks"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => {
            Some("a file system (SMB) that may lose committed blocks and breaks SQLite's locks")
        }
        0x6573_5546 => Some("a file system (FUSE) that may lose committed blocks and breaks SQLite's locks"),
        0x0102_1994 => Some("a file system in memory (tmpfs), which loses all blocks when the machine ends"),
        0x8584_58f6 => Some("a file system in memory (ramfs), which loses all blocks when the machine ends"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_that_lose_commits_are_refused() {
        for (kind, name) in [
            (0x6969, "(NFS)"),
            (0xff53_4d42, "(SMB)"),
            (0xfe53_4d42, "(SMB)"),
            (0x6573_5546, "(FUSE)"),
            (0x0102_1994, "in memory (tmpfs)"),
            (0x8584_58f6, "in memory (ramfs)"),
        ] {
            assert!(refused(kind).is_some_and(|words| words.contains(name)), "{name}");
        }
        // ext4, XFS, Btrfs, overlay.
        for kind in [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(refused(kind), None, "{kind:x}");
        }
        // The file system of the processes, which no number above has.
        ensure_on_disk(Path::new("/proc/a file that is not there")).unwrap();
    }

    #[test]
    fn deleted_replaced_or_moved_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a.db", "a.db-wal", "a.db-shm"] {
            ["a.db", "a.db-wal", "a.db-shm"].into_iter().for_each(|file| std::fs::write(path(file), "").unwrap());
            let files = Files::open_at(&path("a.db"), &path("a.db")).unwrap();
            files.check().unwrap();
            std::fs::rename(path(name), path("moved")).unwrap();
            let error = files.check().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("deleted, moved or replaced"), "{error}");
            std::fs::write(path(name), "").unwrap();
            files.check().unwrap_err();
            std::fs::rename(path("moved"), path(name)).unwrap();
            files.check().unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn link_that_leads_elsewhere_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for file in ["a.db", "a.db-wal", "a.db-shm", "other.db"] {
            std::fs::write(path(file), "").unwrap();
        }
        std::os::unix::fs::symlink(path("a.db"), path("link.db")).unwrap();
        let files = Files::open_at(&path("a.db"), &path("link.db")).unwrap();
        files.check().unwrap();
        std::fs::remove_file(path("link.db")).unwrap();
        std::os::unix::fs::symlink(path("other.db"), path("link.db")).unwrap();
        assert!(files.check().unwrap_err().to_string().contains("link.db is not the file"));
    }
}
