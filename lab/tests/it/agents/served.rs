//! `coppice-lab serve` as a process, until it is dropped; and the code of a page of `docs/`.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The principal of the identity in the pages.
pub const PRINCIPAL: &str = "tek7g-2zmny-nzjwg-ansf7-rkxv6-z32x6-3flbb-ous5d-pygjx-wkhlc-jae";

/// A canister that is served on a port of its own.
pub struct Served {
    child: Child,
    /// The URL without a path.
    pub url: String,
    /// The canister's principal.
    pub canister: String,
}

impl Served {
    /// Starts `coppice-lab serve` with these options, and waits until it serves.
    pub fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_coppice-lab"))
            .args(["serve", "--port", "0", "--json"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let text = |name: &str| line[name].as_str().unwrap().to_string();
        let (url, page) = (text("url"), "/?refresh=5");
        Self { child, url: url.strip_suffix(page).unwrap().into(), canister: text("canister") }
    }

    /// Returns whether the process still serves.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes mainnet's block 702,861 to a file of a directory, and returns its path.
pub fn block(directory: &Path) -> String {
    let path = directory.join("block.raw");
    std::fs::write(&path, bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    path.display().to_string()
}

/// The workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns the code blocks of a page that are marked as tests, each with its file's name.
pub fn code_of(page: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let marked = text.split("<!-- test: ").skip(1).map(|rest| {
        let (name, rest) = rest.split_once(" -->\n```").unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        (name.into(), rest.split_once("\n```").unwrap().0.into())
    });
    marked.collect()
}

/// Returns a page's code, for a served canister instead of the page's.
pub fn adapted(code: &str, served: &Served) -> String {
    for of_page in ["http://127.0.0.1:8080", "rwlgt-iiaaa-aaaaa-aaaaa-cai"] {
        assert!(code.contains(of_page), "{of_page} is missing:\n{code}");
    }
    code.replace("http://127.0.0.1:8080", &served.url).replace("rwlgt-iiaaa-aaaaa-aaaaa-cai", &served.canister)
}

/// Returns a command's stdout; panics with its output if it fails.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout
}

/// Notes that a test cannot run, past the test harness, which hides the output of a passing test.
pub fn not_run(why: &str) {
    std::io::stderr().write_all(format!("not run: {why}\n").as_bytes()).unwrap();
}
