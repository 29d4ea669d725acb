//! Owns what tests of the real executable share: starting it, its outcome, its leftovers.
//! Never retries: a test that fails now and then has found something.

#![allow(dead_code, reason = "every test binary uses a part of the kit")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder of its own for the runs of one test.
pub(crate) struct Lab {
    folder: tempfile::TempDir,
}

/// What a command did.
pub(crate) struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.path().join("runs")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        command
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs `harness` to its end; its runs go to `runs/` in the lab.
    pub(crate) fn harness(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().unwrap())
    }

    /// Starts `harness` and leaves it running.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Folder of the newest run.
    pub(crate) fn latest(&self) -> PathBuf {
        self.runs().join("latest").canonicalize().unwrap()
    }

    pub(crate) fn verdict(&self) -> Value {
        document(&self.latest().join("verdict.json"))
    }

    /// Processes that belong to this lab, whoever their parent is.
    pub(crate) fn processes(&self) -> Vec<String> {
        let lab = self.path().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(command) = std::fs::read(entry.path().join("cmdline")) else {
                continue;
            };
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.contains(&lab) {
                found.push(format!(
                    "{}: {command}",
                    entry.file_name().to_string_lossy()
                ));
            }
        }
        found
    }

    /// Waits until no process of this lab is left; fails after a while.
    pub(crate) fn assert_nothing_left(&self) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !self.processes().is_empty() {
            assert!(
                Instant::now() < limit,
                "left behind: {:#?}",
                self.processes()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails, showing everything that was said, unless the exit code is the expected one.
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "\n--- standard output\n{}\n--- standard error\n{}",
            self.stdout, self.stderr
        );
        self
    }
}

pub(crate) fn document(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Waits until `condition` holds; fails after a while.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < limit, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
