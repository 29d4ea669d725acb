//! Owns disks that fail under a real process: a library that is loaded into it fails its calls.
//! Never needs rights that an ordinary user lacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the library does to calls on files below the data directory.
const LIBRARY: &str = include_str!("failing_calls.rs");

/// How a disk can fail.
#[derive(Debug, Clone, Copy)]
pub enum Failure {
    /// Nothing fits any more.
    Full,
    /// What was written does not become durable.
    Sync,
    /// Nothing can be read.
    Read,
    /// Syncing takes as long as this lasts.
    Hang,
}

/// Lets the disks of processes fail, each for itself.
#[derive(Debug)]
pub struct FailingDisk {
    library: PathBuf,
}

impl FailingDisk {
    /// Builds the library below `directory`.
    pub fn new(directory: &Path) -> Self {
        let source = directory.join("failing_calls.rs");
        let library = directory.join("failing_calls.so");
        fs::write(&source, LIBRARY).unwrap();
        let compiler = Path::new(env!("CARGO")).with_file_name("rustc");
        let compiler = if compiler.exists() {
            compiler
        } else {
            "rustc".into()
        };
        let built = Command::new(compiler)
            .args([
                "--edition=2024",
                "--crate-type=cdylib",
                "-Cpanic=abort",
                "-o",
            ])
            .arg(&library)
            .arg(&source)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        Self { library }
    }

    /// Prepares a process that is to be started with its data at `data`.
    pub fn apply(&self, command: &mut Command, data: &Path) {
        fs::create_dir_all(data).unwrap();
        fs::create_dir_all(flags(data)).unwrap();
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAILING_FLAGS", flags(data))
            .env("FAILING_DATA", data.canonicalize().unwrap());
    }
}

/// Lets the disk with this data fail from now on.
pub fn fail(data: &Path, failure: Failure) {
    fs::write(flag(data, failure), "").unwrap();
}

/// Lets it work again.
pub fn mend(data: &Path, failure: Failure) {
    fs::remove_file(flag(data, failure)).unwrap();
}

fn flags(data: &Path) -> PathBuf {
    data.with_extension("flags")
}

fn flag(data: &Path, failure: Failure) -> PathBuf {
    flags(data).join(match failure {
        Failure::Full => "full",
        Failure::Sync => "sync",
        Failure::Read => "read",
        Failure::Hang => "hang",
    })
}
