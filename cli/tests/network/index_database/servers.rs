//! A PostgreSQL server that a test crashes, a PgBouncer before it, and a proxy that goes silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The server and PgBouncer refuse to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "env", "HOME=/"]).arg(program);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn succeed(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub fn not_run(test: &str, what: &str) {
    // Written to stderr directly, because the test harness hides the output of passing tests.
    let note = format!("not run: {test}; scripts/setup --with-postgres installed no {what}\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}

/// A directory that the server's user can read.
pub fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// A PostgreSQL server that syncs to disk, unless its settings say otherwise.
pub struct Server {
    bin: PathBuf,
    dir: tempfile::TempDir,
    settings: String,
    pub port: u16,
}

impl Server {
    /// Starts a server; `None` with a note on stderr if none is installed.
    pub fn start(test: &str, settings: &[&str]) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let bin = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").is_file()).max();
        let Some(bin) = bin else {
            not_run(test, "PostgreSQL server");
            return None;
        };
        let (dir, port) = (directory(), free_port());
        let common = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=30"];
        let settings: Vec<String> = common.iter().chain(settings).map(|setting| format!("-c {setting}")).collect();
        let mut server = Self { bin, dir, settings: settings.join(" "), port };
        let mut initdb = as_postgres(&server.bin.join("initdb"));
        initdb.arg("--pgdata").arg(server.data()).args(["--username", "postgres", "--auth", "trust", "--no-sync"]);
        succeed(initdb.args(["--encoding", "UTF8", "--locale", "C"]).current_dir("/").output().unwrap());
        // Another process may take a free port before the server does.
        for _ in 0..4 {
            if server.starts() {
                return Some(server);
            }
            server.port = free_port();
        }
        server.resume();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn ctl(&self, args: &[&str]) -> bool {
        let mut command = as_postgres(&self.bin.join("pg_ctl"));
        command.arg("--pgdata").arg(self.data()).args(args).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    fn starts(&self) -> bool {
        let (log, port) = (self.dir.path().join("data/server.log"), format!("-c port={} {}", self.port, self.settings));
        self.ctl(&["start", "--log", log.to_str().unwrap(), "--options", &port, "--wait", "--silent"])
    }

    /// Starts the server after a crash.
    pub fn resume(&self) {
        assert!(self.starts(), "the server does not start on port {}", self.port);
    }

    /// Stops the server without writing anything more, like a crash.
    pub fn crash(&self) {
        assert!(self.ctl(&["stop", "--mode", "immediate", "--silent"]), "the server does not stop");
    }

    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Runs a statement, and returns the rows.
    pub fn ask(&self, sql: &str) -> String {
        ask(self.port, sql)
    }

    /// The server's own log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("data/server.log")).unwrap()
    }

    pub fn rows(&self) -> u64 {
        self.ask("SELECT count(*) FROM blocks").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = as_postgres(&self.bin.join("pg_ctl"));
        stop.arg("--pgdata").arg(self.data()).args(["stop", "--mode", "immediate", "--silent"]).current_dir("/");
        drop(stop.stdout(Stdio::null()).stderr(Stdio::null()).status());
    }
}

/// Runs OpenSSL as the server's user, which then owns the keys. Returns false if it is not installed.
pub fn openssl(args: &[&str]) -> bool {
    if Command::new("openssl").arg("version").output().is_err() {
        return false;
    }
    succeed(as_postgres(Path::new("openssl")).args(args).current_dir("/").output().unwrap());
    true
}

pub fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Runs a statement at a server or a pooler.
pub fn ask(port: u16, sql: &str) -> String {
    let mut psql = Command::new("psql");
    psql.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-Atqc", sql, "postgres"]);
    succeed(psql.output().unwrap()).trim().into()
}

/// PgBouncer before a server.
pub struct Pooler {
    child: Child,
    pub port: u16,
    _dir: tempfile::TempDir,
}

impl Pooler {
    /// Starts PgBouncer with some settings; `None` with a note on stderr if it is not installed.
    pub fn start(test: &str, server: &Server, settings: &str) -> Option<Self> {
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.is_file() {
            not_run(test, "PgBouncer");
            return None;
        }
        let (dir, port) = (directory(), free_port());
        let file = dir.path().join("pgbouncer.ini");
        let ini = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres dbname=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\n{settings}\n",
            server.port
        );
        std::fs::write(&file, ini).unwrap();
        let mut command = as_postgres(program);
        let child = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").spawn().unwrap();
        let pooler = Self { child, port, _dir: dir };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pooler)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The treatment of a connection's bytes by a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mute {
    /// Passes them on.
    No,
    /// Keeps all connections open, and passes nothing on.
    All,
    /// Passes the next commit on, and nothing more of its connection.
    AfterCommit,
    /// Passes nothing on from the next commit on, the commit included.
    BeforeCommit,
}

/// A proxy before a server.
pub struct Proxy {
    pub port: u16,
    mute: Arc<Mutex<Mute>>,
    /// Connections that fell silent for good at a commit.
    pub silenced: Arc<Mutex<u32>>,
}

impl Proxy {
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mute, silenced) = (Arc::new(Mutex::new(Mute::No)), Arc::new(Mutex::new(0)));
        let shared = (mute.clone(), silenced.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let fell_silent = Arc::new(AtomicBool::new(false));
                for (from, to, is_client) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), true),
                    (server.try_clone().unwrap(), client.try_clone().unwrap(), false),
                ] {
                    let (shared, fell_silent) = (shared.clone(), fell_silent.clone());
                    std::thread::spawn(move || pass(from, to, is_client, &shared, &fell_silent));
                }
            }
        });
        Self { port, mute, silenced }
    }

    pub fn mute(&self, mute: Mute) {
        *self.mute.lock().unwrap() = mute;
    }
}

type Shared = (Arc<Mutex<Mute>>, Arc<Mutex<u32>>);

/// Passes bytes on in one direction, until the connection ends. A silent connection stays open, and keeps its bytes back.
fn pass(mut from: TcpStream, mut to: TcpStream, is_client: bool, (mute, silenced): &Shared, fell_silent: &AtomicBool) {
    let mut bytes = [0; 65_536];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        let mut last = false;
        if is_client && bytes[..count].windows(6).any(|word| word == b"COMMIT") {
            let mut mute = mute.lock().unwrap();
            if matches!(*mute, Mute::AfterCommit | Mute::BeforeCommit) {
                last = *mute == Mute::AfterCommit;
                *mute = Mute::No;
                fell_silent.store(true, Ordering::SeqCst);
                *silenced.lock().unwrap() += 1;
            }
        }
        while !last && (*mute.lock().unwrap() == Mute::All || fell_silent.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !fell_silent.load(Ordering::SeqCst) {
        drop(to.shutdown(Shutdown::Both));
    }
}
