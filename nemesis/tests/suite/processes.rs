//! Signals to real processes: each effect is seen from outside, not assumed.
#![cfg(target_os = "linux")]
// The lint only spares the test functions themselves, not their helpers.
#![allow(clippy::unwrap_used)]

use nemesis::processes::{Confirmation, ProcessError, ProcessState, kill, resume, state, stop};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that is killed and reaped however the test ends.
struct Owned(Child);

impl Owned {
    fn spawn(program: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time used so far, in clock ticks.
fn ticks_used(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test]
async fn a_stopped_process_does_nothing_until_resumed() {
    let busy = Owned::spawn("sh", &["-c", "while :; do :; done"]);
    assert_eq!(state(busy.pid()), ProcessState::Running);
    assert_eq!(stop(busy.pid()).await, Ok(Confirmation::Verified));
    assert_eq!(state(busy.pid()), ProcessState::Stopped);
    let before = ticks_used(busy.pid());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ticks_used(busy.pid()), before);
    assert_eq!(resume(busy.pid()).await, Ok(Confirmation::Verified));
    assert_eq!(state(busy.pid()), ProcessState::Running);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while ticks_used(busy.pid()) == before {
        assert!(std::time::Instant::now() < deadline, "it never ran again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn stopping_and_resuming_twice_is_harmless() {
    let sleeper = Owned::spawn("sleep", &["60"]);
    for _ in 0..2 {
        assert_eq!(stop(sleeper.pid()).await, Ok(Confirmation::Verified));
    }
    for _ in 0..2 {
        assert_eq!(resume(sleeper.pid()).await, Ok(Confirmation::Verified));
    }
}

#[tokio::test]
async fn a_killed_process_is_dead_even_when_stopped() {
    let mut sleeper = Owned::spawn("sleep", &["60"]);
    let pid = sleeper.pid();
    assert_eq!(stop(pid).await, Ok(Confirmation::Verified));
    assert_eq!(kill(pid).await, Ok(Confirmation::Verified));
    assert_eq!(state(pid), ProcessState::Zombie);
    for result in [stop(pid).await, resume(pid).await, kill(pid).await] {
        assert_eq!(result, Err(ProcessError::Dead { pid }));
    }
    let status = sleeper.0.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}
