//! Scripts print the expected time of a first build, and its progress.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A stand-in for cargo with three crates, one listed twice, of which it builds two.
const CARGO: &str = r#"#!/usr/bin/env bash
if [[ "$1" == tree ]]; then
  [[ "$*" == "tree --locked -p ic-coppice-cli --features network --edges normal,build --prefix none --format {p}" ]] || exit 1
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
         cargo build --locked -p ic-coppice-cli --features network; echo done",
        scripts.display()
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &build]).env("PATH", path).env("CODE", code).env("COPPICE_PROGRESS_SECS", "1").output().unwrap()
}

/// Runs `scripts/run` with an installed toolchain whose builds do nothing; the built command prints its name and arguments.
fn run(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let bin = |name: &str, lines: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{lines}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let toolchain = include_str!("../../../rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    bin("rustup", &format!("printf '%s\\n' {channel} wasm32-unknown-unknown clippy rustfmt"));
    let target = dir.path().display();
    bin(
        "cargo",
        &format!(
            "[[ $1 == metadata ]] && echo '{{\"target_directory\":\"{target}\"}}'\n[[ $1 == build ]] && echo \"it builds\" >&2\nexit 0"
        ),
    );
    for command in ["coppice", "coppice-lab"] {
        bin(&format!("debug/{command}"), &format!("echo {command} \"$@\""));
    }
    let path = format!("{target}:{}", std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run");
    Command::new(script).args(args).env("PATH", path).env("COPPICE_WASM", "/none").output().unwrap()
}

#[test]
fn help_lists_all_commands_and_builds_nothing() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let output = run(args);
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(0), &b""[..]),
            "{args:?}: no word of a build"
        );
        let printed = String::from_utf8(output.stdout).unwrap();
        for command in [
            "demo",
            "ingest",
            "index",
            "serve",
            "bench",
            "get",
            "verify",
            "prove",
            "check-proof",
            "blob-worker",
            "size",
        ] {
            assert!(printed.lines().any(|line| line.starts_with(&format!("  {command} "))), "{command}: {printed}");
        }
    }
    // A command that there is not is refused before a build, too.
    for unknown in ["idnex", "ing", "."] {
        let output = run(&[unknown]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{printed}");
        assert!(printed.starts_with(&format!("scripts/run: there is no command {unknown}\n")), "{printed}");
    }
}

#[test]
fn command_that_has_the_subcommand_is_built_and_run() {
    for (args, ran) in [
        (&[][..], "coppice-lab demo"),
        (&["--blocks", "5"], "coppice-lab demo --blocks 5"),
        (&["demo", "--help"], "coppice-lab demo --help"),
        (&["index", "--database", "a"], "coppice-lab index --database a"),
        (&["index", "--network", "a"], "coppice index --network a"),
        (&["serve", "--network=a"], "coppice serve --network=a"),
        (&["ingest", "--blk", "a", "--network-rules", "regtest"], "coppice-lab ingest --blk a --network-rules regtest"),
        (&["get", "1"], "coppice get 1"),
        (&["size"], "coppice size"),
        (&["prove", "1"], "coppice prove 1"),
        (&["check-proof", "a"], "coppice check-proof a"),
        (&["blob-worker", "init"], "coppice blob-worker init"),
    ] {
        let output = run(args);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{ran}\n"), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("it builds"), "{args:?}");
    }
}

/// Runs a build that cargo reports with this line.
fn waits(line: &str) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    let build = format!(
        "source {}/progress.sh; build_with_progress 'a thing' '7 minutes' / bash -c 'echo \"    Blocking waiting for file lock on {line}\"; sleep 3'",
        scripts.display()
    );
    let output = Command::new("bash").args(["-c", &build]).output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn wait_for_another_build_is_reported_unless_it_is_for_the_common_cache() {
    assert_eq!(waits("build directory"), "building a thing: waiting for another build in the same directory\n");
    // The two builds of `scripts/run` wait for each other there.
    assert_eq!(waits("package cache"), "");
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
