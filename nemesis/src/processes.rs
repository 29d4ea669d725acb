//! Owns signals to processes of nodes, and the proof that they took hold.
//! Never starts or reaps a process, and never claims an effect that it could not see.
//!
//! A process id is only safe to signal while its owner has not reaped it: after `wait`, the kernel may
//! give the number to a stranger. Callers own the `Child`, signal only before they wait for it, and keep
//! the two from racing.

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a signal has to take hold before that counts as a failure.
pub const VERIFY_TIMEOUT_MS: u64 = 5_000;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const PROC: &str = "/proc";

/// What a process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, or could as soon as what it waits for happens.
    Running,
    /// All its threads are stopped.
    Stopped,
    /// It is dead, and its parent has not reaped it yet.
    Zombie,
    /// There is no such process.
    Gone,
    /// This system does not say.
    Indeterminate,
}

/// Whether the effect of a signal was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    /// The process was seen in the state that the signal brings about.
    Verified,
    /// The signal was sent, and this system does not say what became of it.
    Indeterminate,
}

/// Why a signal failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// A number that must never be signalled: 0, 1, this process, or out of range.
    #[error("process id {pid} must not be signalled; it belongs to no node")]
    Forbidden {
        /// The number.
        pid: u32,
    },
    /// The process is dead already.
    #[error("process {pid} is dead already")]
    Dead {
        /// Its id.
        pid: u32,
    },
    /// The operating system refused the signal.
    #[error("process {pid} cannot be signalled: {errno}")]
    Signal {
        /// Its id.
        pid: u32,
        /// What the system said.
        errno: Errno,
    },
    /// The signal was sent but did not take hold in time.
    #[error("process {pid} is still not {expected} {VERIFY_TIMEOUT_MS} ms after the signal")]
    NoEffect {
        /// Its id.
        pid: u32,
        /// What it should have become.
        expected: &'static str,
    },
}

/// Stops a process with `SIGSTOP` and waits until every thread of it is seen stopped.
pub async fn stop(pid: u32) -> Result<Confirmation, ProcessError> {
    signal_and_verify(Path::new(PROC), pid, Signal::SIGSTOP).await
}

/// Lets a stopped process continue with `SIGCONT` and waits until it is seen running.
pub async fn resume(pid: u32) -> Result<Confirmation, ProcessError> {
    signal_and_verify(Path::new(PROC), pid, Signal::SIGCONT).await
}

/// Kills a process with `SIGKILL` and waits until it is seen dead; its parent still has to reap it.
pub async fn kill(pid: u32) -> Result<Confirmation, ProcessError> {
    signal_and_verify(Path::new(PROC), pid, Signal::SIGKILL).await
}

/// Asks a process to end with `SIGTERM`. When it does is its own business, so nothing is verified; one
/// that is stopped learns of it when it continues.
pub fn terminate(pid: u32) -> Result<(), ProcessError> {
    send(signalable(pid)?, pid, Signal::SIGTERM)
}

/// What a process is doing right now.
pub fn state(pid: u32) -> ProcessState {
    state_under(Path::new(PROC), pid)
}

async fn signal_and_verify(
    proc: &Path,
    pid: u32,
    signal: Signal,
) -> Result<Confirmation, ProcessError> {
    let target = signalable(pid)?;
    if matches!(
        state_under(proc, pid),
        ProcessState::Zombie | ProcessState::Gone
    ) {
        return Err(ProcessError::Dead { pid });
    }
    send(target, pid, signal)?;
    let deadline = Instant::now() + Duration::from_millis(VERIFY_TIMEOUT_MS);
    loop {
        match (signal, state_under(proc, pid)) {
            (_, ProcessState::Indeterminate) => return Ok(Confirmation::Indeterminate),
            (Signal::SIGSTOP, ProcessState::Stopped)
            | (Signal::SIGCONT, ProcessState::Running)
            | (Signal::SIGKILL, ProcessState::Zombie | ProcessState::Gone) => {
                return Ok(Confirmation::Verified);
            }
            (Signal::SIGSTOP | Signal::SIGCONT, ProcessState::Zombie | ProcessState::Gone) => {
                return Err(ProcessError::Dead { pid });
            }
            _ if Instant::now() >= deadline => {
                let expected = match signal {
                    Signal::SIGSTOP => "stopped",
                    Signal::SIGCONT => "running",
                    _ => "dead",
                };
                return Err(ProcessError::NoEffect { pid, expected });
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn send(target: Pid, pid: u32, signal: Signal) -> Result<(), ProcessError> {
    signal::kill(target, signal).map_err(|errno| match errno {
        Errno::ESRCH => ProcessError::Dead { pid },
        errno => ProcessError::Signal { pid, errno },
    })
}

/// Refuses what would hit more than one process (0 is the own process group), init, or the caller.
fn signalable(pid: u32) -> Result<Pid, ProcessError> {
    match i32::try_from(pid) {
        Ok(raw) if raw > 1 && pid != std::process::id() => Ok(Pid::from_raw(raw)),
        _ => Err(ProcessError::Forbidden { pid }),
    }
}

fn state_under(proc: &Path, pid: u32) -> ProcessState {
    if !proc.join("self/stat").exists() {
        return ProcessState::Indeterminate;
    }
    let folder = proc.join(pid.to_string());
    let leader = match std::fs::read_to_string(folder.join("stat")) {
        Ok(stat) => state_letter(&stat),
        Err(error) if is_gone(&error) => return ProcessState::Gone,
        Err(_) => return ProcessState::Indeterminate,
    };
    match leader {
        None => ProcessState::Indeterminate,
        Some('Z' | 'X' | 'x') if !any_thread(&folder, |letter| !"ZXx".contains(letter)) => {
            ProcessState::Zombie
        }
        // A stop reaches the threads one by one; until the last, the process still does things.
        Some('T' | 't' | 'Z') if !any_thread(&folder, |letter| !"TtZXx".contains(letter)) => {
            ProcessState::Stopped
        }
        Some(_) => ProcessState::Running,
    }
}

/// Whether the state of any thread satisfies `predicate`; threads that end meanwhile do not.
fn any_thread(folder: &Path, predicate: impl Fn(char) -> bool) -> bool {
    let Ok(threads) = std::fs::read_dir(folder.join("task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        std::fs::read_to_string(thread.path().join("stat"))
            .ok()
            .and_then(|stat| state_letter(&stat))
            .is_some_and(&predicate)
    })
}

/// The third field of a `stat` file. The second, the command, may itself contain parentheses.
fn state_letter(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_last_parenthesis() {
        assert_eq!(state_letter("12 (sleep) S 1 2"), Some('S'));
        assert_eq!(state_letter("12 (a) T (b)) T 1"), Some('T'));
        assert_eq!(state_letter("12 (x"), None);
        assert_eq!(state_letter("12 (x)"), None);
    }

    #[test]
    fn numbers_that_are_no_nodes_are_never_signalled() {
        for pid in [0, 1, std::process::id(), u32::MAX, 1 << 31] {
            assert_eq!(signalable(pid), Err(ProcessError::Forbidden { pid }));
        }
        assert!(signalable(4_000_000).is_ok());
    }

    #[tokio::test]
    async fn without_proc_nothing_is_claimed() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let nowhere = Path::new("/nonexistent-proc");
        assert_eq!(
            state_under(nowhere, child.id()),
            ProcessState::Indeterminate
        );
        for signal in [Signal::SIGSTOP, Signal::SIGCONT, Signal::SIGKILL] {
            assert_eq!(
                signal_and_verify(nowhere, child.id(), signal).await,
                Ok(Confirmation::Indeterminate)
            );
        }
        child.wait().unwrap();
    }
}
