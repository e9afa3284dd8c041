//! A running command and its output so far.

use std::io::Read;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        // A longer wait means a hang.
        assert!(started.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process and its stderr so far. Dropping it kills the process.
pub struct Running {
    pub child: Child,
    log: Arc<Mutex<Vec<u8>>>,
    reads: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut stderr, written): (ChildStderr, _) = (child.stderr.take().unwrap(), log.clone());
        let reads = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = stderr.read(&mut bytes)
                && count > 0
            {
                written.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { child, log, reads: Some(reads) }
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// Waits until stderr contains a text this many times.
    pub fn wait_for_line(&mut self, what: &str, times: usize) {
        wait_for(what, || {
            let ended = self.child.try_wait().unwrap();
            let many = self.log().matches(what).count();
            assert!(ended.is_none() || many >= times, "{ended:?}: {}", self.log());
            many >= times
        });
    }

    /// Returns the peak memory of the process.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Ends the command by SIGTERM, within the time that a service manager waits.
    pub fn terminate(mut self) -> Output {
        let asked = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        wait_for("SIGTERM ends it", || self.child.try_wait().unwrap().is_some());
        assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
        self.end()
    }

    /// Waits until the command has ended.
    pub fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        self.reads.take().unwrap().join().unwrap();
        let stderr = self.log.lock().unwrap().clone();
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr_of(output));
    serde_json::from_slice(&output.stdout).unwrap()
}
