//! Scripts print the expected time of a first build, and its progress.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A stand-in for cargo with three crates, one listed twice, of which it builds two.
const CARGO: &str = r#"#!/usr/bin/env bash
if [[ "$1" == tree ]]; then
  [[ "$*" == "tree --locked -p coppice --features network --edges normal,build --prefix none --format {p}" ]] || exit 1
  printf 'a v1.0.0\nb v0.1.0 (/b)\n\na v1.0.0 (*)\nc v2.0.0 (proc-macro)\n'
else
  printf '   Compiling c v2.0.0\n   Compiling b v0.1.0 (/b)\nwarning: odd\n'
  sleep 2
  exit "${CODE:-0}"
fi
"#;

fn build(code: &str, mark: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let cargo = dir.path().join("cargo");
    std::fs::write(&cargo, CARGO).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    let build = format!(
        "set -euo pipefail; source {}/progress.sh; build_with_progress 'a thing' '7 minutes' '{mark}' \
         cargo build --locked -p coppice --features network; echo done",
        scripts.display()
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &build]).env("PATH", path).env("CODE", code).env("COPPICE_PROGRESS_SECS", "1").output().unwrap()
}

#[test]
fn a_build_prints_its_expected_time_and_progress() {
    let output = build("0", "/none");
    let printed = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "building a thing: within 7 minutes on two cores the first time, seconds from then on");
    assert_eq!(lines[1], "building a thing: 0 min, crates begun: 2 of 3");
    assert_eq!((lines.last(), output.stdout.as_slice()), (Some(&"warning: odd"), b"done\n".as_slice()));
    // A build that is cached prints no estimate, and a failure keeps its exit code.
    let output = build("3", "/");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!printed.contains("within") && output.status.code() == Some(3) && output.stdout.is_empty(), "{printed}");
    assert!(printed.contains("building a thing: 0 min, crates begun: 2\n"), "{printed}");
}
