//! Owns how measurements are shown: each next to its target, met or missed.
//! Never leaves out a row that was measured.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What something took: by the clock on the wall, and of processors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) processors: Duration,
}

impl Took {
    /// Time that this process has had of processors so far.
    pub(crate) fn processors_so_far() -> Duration {
        clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
    }
}

pub(crate) struct Table {
    /// Only rows whose name contains one of these, if there are some.
    words: Vec<String>,
    met: u32,
    missed: u32,
}

impl Table {
    pub(crate) fn new(words: Vec<String>) -> Self {
        println!(
            "{:<58}{:>13}{:>13}{:>13}",
            "what", "took ms", "of cpu ms", "target ms"
        );
        Self {
            words,
            met: 0,
            missed: 0,
        }
    }

    /// The name, if the row is wanted.
    pub(crate) fn wants(&self, name: &str) -> Option<String> {
        let is_wanted =
            self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()));
        is_wanted.then(|| name.to_owned())
    }

    pub(crate) fn add(&mut self, name: &str, took: Took, target_ms: f64, note: &str) {
        let ms = took.wall.as_secs_f64() * 1e3;
        let processors_ms = took.processors.as_secs_f64() * 1e3;
        let word = self.count(ms <= target_ms);
        println!(
            "{name:<58}{ms:>13.4}{processors_ms:>13.4}{target_ms:>13.4}  {word:<7} {note} [peak {} MB]",
            peak_mb()
        );
    }

    pub(crate) fn add_rate(&mut self, name: &str, per_second: f64, target: f64) {
        let word = self.count(per_second >= target);
        println!(
            "{name:<58}{per_second:>11.0}/s{:>13}{target:>11.0}/s  {word}",
            ""
        );
    }

    fn count(&mut self, is_met: bool) -> &'static str {
        if is_met {
            self.met += 1;
            "met"
        } else {
            self.missed += 1;
            "MISSED"
        }
    }

    pub(crate) fn end(&self) {
        println!("{} targets met, {} missed", self.met, self.missed);
    }
}

/// Most memory that this process ever had, as the system counts it.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kilobytes.map_or(0, |kilobytes: u64| kilobytes / 1024)
}
