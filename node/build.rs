//! Owns one fact that only the build knows: which source the node is built from.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// What decides how a node behaves, besides how it is compiled.
const PARTS: [&str; 3] = ["src", "Cargo.toml", "../Cargo.lock"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for part in PARTS {
        let path = Path::new(part);
        // A crate on its own has no lock file above it.
        if path.exists() {
            println!("cargo:rerun-if-changed={part}");
            collect(path, &mut files)?;
        }
    }
    files.sort();
    let mut digest = Digest::default();
    for file in files {
        digest.add(file.to_string_lossy().as_bytes());
        digest.add(&fs::read(&file)?);
    }
    println!("cargo:rustc-env=NODE_SOURCE={:016x}", digest.0);
    Ok(())
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

/// FNV-1a: enough to tell two states of a source from each other.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        // The length keeps the end of one part apart from the beginning of the next.
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
