//! Owns the question whether a node program is built from the source that this harness is built from.
//! Never decides whether it is run.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to say its version. One that does not know the question may do anything.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How often to look whether it has.
const LOOK: Duration = Duration::from_millis(5);
/// Longest answer that is read, in bytes.
const ANSWER_MAX_BYTES: u64 = 200;
/// What a node of this repository calls itself.
const OWN_NAME: &str = "kraft-node ";

/// How a node program differs from the node that is built into this harness, for people. `None` if it does not, or
/// is another program altogether, of which nothing can be said.
pub fn difference(program: &Path) -> Option<String> {
    told_difference(program, &version_of(program)?)
}

fn told_difference(program: &Path, said: &str) -> Option<String> {
    let version = said.trim().strip_prefix(OWN_NAME)?;
    (version != node::VERSION).then(|| {
        format!(
            "{} is another build than this harness: it says {version}, and the node in the harness is {}. If it is \
             not meant to be another one, build both (cargo build --release)",
            program.display(),
            node::VERSION
        )
    })
}

fn version_of(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let has_ended = await_end(&mut child);
    if !has_ended {
        // Fails only if it has ended meanwhile.
        let _ = child.kill();
    }
    let _ = child.wait();
    let mut said = String::new();
    let answer = child.stdout.take()?.take(ANSWER_MAX_BYTES);
    has_ended
        .then_some(answer)?
        .read_to_string(&mut said)
        .ok()?;
    Some(said)
}

fn await_end(child: &mut Child) -> bool {
    let limit = Instant::now() + ANSWER_LIMIT;
    while Instant::now() < limit {
        match child.try_wait() {
            Ok(None) => thread::sleep(LOOK),
            Ok(Some(_)) => return true,
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_of_other_source_is_told_of() {
        let told = |said: &str| told_difference(Path::new("bin/kraft-node"), said);
        assert_eq!(told(&format!("kraft-node {}\n", node::VERSION)), None);
        assert_eq!(told("etcd 3.4\n"), None);
        assert_eq!(told(""), None);
        for other in ["kraft-node 0.1.0\n", "kraft-node 0.1.0 (source 0)\n"] {
            let told = told(other).unwrap();
            assert!(
                told.starts_with("bin/kraft-node is another build"),
                "{told}"
            );
            assert!(told.contains("cargo build --release"), "{told}");
        }
    }

    #[test]
    fn a_program_that_says_nothing_or_never_ends_is_let_be() {
        assert_eq!(difference(Path::new("/bin/true")), None);
        assert_eq!(difference(Path::new("/nowhere/at/all")), None);
        let folder = tempfile::tempdir().unwrap();
        let endless = folder.path().join("endless");
        std::fs::write(&endless, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&endless, executable).unwrap();
        assert_eq!(difference(&endless), None);
    }
}
