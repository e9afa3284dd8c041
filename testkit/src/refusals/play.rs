//! Process that runs one command: first with an honest canister, then once for each case of the error of each method that was called.
//! Lines between the command's own tell its output apart.

use super::cases;
use super::commands::Commands;
use super::liar::{FEW, Lie, MANY};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Environment variable with the command's name.
const NAME: &str = "COPPICE_REFUSED_COMMAND";
/// Processes at one time.
const PROCESSES: usize = 2;

/// First word of the line before a run's output.
const BEGINS: &str = "@begins ";
/// First word of the line after a run's output.
const ENDS: &str = "@ends ";

/// Time after which a run does not end any more; each takes seconds, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);

/// A run: its output, its end and its calls.
#[derive(Debug)]
pub struct Ran {
    pub command: &'static str,
    /// The refused method and the number of the case; `None` with an honest canister.
    pub refused: Option<(String, usize)>,
    pub output: String,
    /// The exit code.
    pub code: u8,
    /// The methods that were called, and the number of refusals.
    pub called: BTreeSet<String>,
    pub told: u32,
}

/// Runs the command that the environment names.
pub fn play(commands: &Commands) {
    let Ok(name) = std::env::var(NAME) else { return };
    let (world, run) = (commands.command)(&name);
    let runs = Arc::new(AtomicU32::new(0));
    end_if_stuck(runs.clone());
    let one = |lie: Option<Lie>, of: &str| {
        runs.fetch_add(1, Ordering::Relaxed);
        let client = world.restored(lie);
        mark(&format!("{BEGINS}{of}"));
        let code = (commands.end)(run(&client));
        let liar = client.transport();
        mark(&format!("{ENDS}{code} {} {}", liar.told(), liar.record().methods().join(",")));
        liar.record()
    };
    let record = Arc::new(one(None, ""));
    let (called, is_endless) = (record.methods(), (commands.is_endless)(&name));
    for method in cases::all().into_iter().filter(|method| called.iter().any(|called| called == method.name)) {
        let due = (commands.due)(&name, &method);
        for (number, case) in method.cases.into_iter().enumerate().filter(|(number, _)| due.contains(number)) {
            let (times, record) = if is_endless { (FEW, None) } else { (MANY, Some(record.clone())) };
            let lie = Lie { method: method.name, case: Arc::new(case), times, record };
            one(Some(lie), &format!("{} {number}", method.name));
        }
    }
}

/// Ends the process with an error if no further run begins for too long.
fn end_if_stuck(runs: Arc<AtomicU32>) {
    std::thread::spawn(move || {
        loop {
            let before = runs.load(Ordering::Relaxed);
            std::thread::sleep(LONGEST);
            if runs.load(Ordering::Relaxed) == before {
                mark("a run does not end");
                std::process::exit(1);
            }
        }
    });
}

/// Writes a line to stdout and stderr.
fn mark(line: &str) {
    for out in [&mut std::io::stdout() as &mut dyn Write, &mut std::io::stderr()] {
        writeln!(out, "\n{line}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs each command in a process of its own, by the test with this name, and returns all runs.
pub fn played(commands: &Commands, test: &str) -> Vec<Ran> {
    let (left, ran) = (Mutex::new(commands.names.to_vec()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                while let Some(command) = { left.lock().unwrap().pop() } {
                    let runs = one_played(command, test);
                    ran.lock().unwrap().extend(runs);
                }
            });
        }
    });
    ran.into_inner().unwrap()
}

fn one_played(command: &'static str, test: &str) -> Vec<Ran> {
    let dir = tempfile::tempdir().unwrap();
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| dir.path().join(name));
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([test, "--exact", "--ignored", "--nocapture"]).env(NAME, command).env_remove("COPPICE_IDENTITY");
    process.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    let status = process.status().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|path| std::fs::read_to_string(path).unwrap());
    assert!(status.success(), "{command}: {}", stderr.lines().rev().take(20).collect::<Vec<_>>().join("\n"));
    let (stdout, stderr) = (runs(command, &stdout), runs(command, &stderr));
    assert_eq!(stdout.len(), stderr.len(), "{command}");
    let both = |(out, of): (Ran, Ran)| Ran { output: of.output + &out.output, ..out };
    stdout.into_iter().zip(stderr).map(both).collect()
}

/// Splits an output into its runs.
fn runs(command: &'static str, output: &str) -> Vec<Ran> {
    let run = |part: &str| {
        let (begins, rest) = part.split_once('\n').unwrap();
        let (output, ends) = rest.split_once(&format!("\n{ENDS}")).unwrap();
        let refused = begins.split_once(' ').map(|(method, case)| (method.to_string(), case.parse().unwrap()));
        let ends: Vec<&str> = ends.lines().next().unwrap().split(' ').collect();
        let [code, told, called] = ends[..] else { panic!("{ends:?}") };
        let called = called.split(',').filter(|method| !method.is_empty()).map(str::to_string).collect();
        let output = output.to_string();
        Ran { command, refused, output, code: code.parse().unwrap(), called, told: told.parse().unwrap() }
    };
    output.split(BEGINS).skip(1).map(run).collect()
}
