//! Owns what a person sees while a run goes on: a live line on a terminal, plain lines elsewhere.
//! Never prints a result; results go to standard output, progress to standard error.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::explore;
use crate::recorder::Counts;
use crate::simulation::CampaignSummary;

/// How often a live line is redrawn.
const LIVE_NS: u64 = 200_000_000;
/// How often a plain line is printed.
const PLAIN_NS: u64 = 5_000_000_000;

/// Where a run stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of the phase.
    pub phase: &'static str,
    /// Time since the start of the run.
    pub elapsed_ns: u64,
    /// Planned length of the workload.
    pub total_ns: u64,
    /// Operations so far.
    pub counts: Counts,
    /// Leader, as far as clients know; none if that node is down or does nothing.
    pub leader: Option<String>,
    /// The newest epoch of which a leader is, or was, known.
    pub epoch: Option<i32>,
    /// Kinds of the faults that are active.
    pub faults: Vec<String>,
}

/// Shows progress on standard error.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    last_ns: Option<u64>,
    last_phase: &'static str,
}

#[derive(Debug)]
enum Style {
    Quiet,
    Plain,
    Live(ProgressBar),
}

impl Progress {
    /// A live line on a terminal, plain lines elsewhere, nothing if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let style = if quiet {
            Style::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            Style::Live(bar)
        } else {
            Style::Plain
        };
        Self {
            style,
            last_ns: None,
            last_phase: "",
        }
    }

    /// Whether it is time to show where the run stands: that costs something to find out.
    pub fn is_due(&self, phase: &str, elapsed_ns: u64) -> bool {
        let every_ns = match self.style {
            Style::Quiet => return false,
            Style::Live(_) => LIVE_NS,
            Style::Plain => PLAIN_NS,
        };
        let is_recent = |last_ns: u64| elapsed_ns < last_ns.saturating_add(every_ns);
        !self.last_ns.is_some_and(is_recent) || self.last_phase != phase
    }

    /// Shows where the run stands, unless that was shown a moment ago.
    pub fn show(&mut self, snapshot: &Snapshot) {
        if !self.is_due(snapshot.phase, snapshot.elapsed_ns) {
            return;
        }
        self.last_ns = Some(snapshot.elapsed_ns);
        self.last_phase = snapshot.phase;
        match &self.style {
            Style::Live(bar) => bar.set_message(line(snapshot)),
            _ => self.note(&line(snapshot)),
        }
    }

    /// Shows where a campaign stands, unless that was shown a moment ago.
    pub fn show_campaign(&mut self, summary: &CampaignSummary) {
        self.show_line(summary.elapsed, || campaign_line(summary));
    }

    /// Shows where an exploration stands, unless that was shown a moment ago.
    pub fn show_exploration(&mut self, progress: &explore::Progress) {
        self.show_line(progress.elapsed, || exploration_line(progress));
    }

    fn show_line(&mut self, elapsed: Duration, line: impl FnOnce() -> String) {
        let elapsed_ns = elapsed.as_nanos() as u64;
        let every_ns = match self.style {
            Style::Quiet => return,
            Style::Live(_) => LIVE_NS,
            Style::Plain => PLAIN_NS,
        };
        let last_ns = self.last_ns.unwrap_or(0);
        if elapsed_ns < last_ns.saturating_add(every_ns) {
            return;
        }
        self.last_ns = Some(elapsed_ns);
        match &self.style {
            Style::Live(bar) => bar.set_message(line()),
            _ => self.note(&line()),
        }
    }

    /// Prints a line that stays.
    pub fn note(&self, text: &str) {
        match &self.style {
            Style::Quiet => {}
            // Progress that cannot be written is no reason to stop a run.
            Style::Plain => drop(writeln!(std::io::stderr(), "{text}")),
            Style::Live(bar) => bar.suspend(|| drop(writeln!(std::io::stderr(), "{text}"))),
        }
    }

    /// Removes the live line.
    pub fn clear(&self) {
        if let Style::Live(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

fn exploration_line(progress: &explore::Progress) -> String {
    let explore::Progress {
        depth,
        states,
        expanded: (done, all),
        elapsed,
        ..
    } = progress;
    let seconds = elapsed.as_secs_f64();
    format!(
        "exploring  depth {depth}, {done} of {all} states of it, {states} in all, {seconds:.0} s"
    )
}

fn line(snapshot: &Snapshot) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let Counts {
        ok_count,
        fail_count,
        info_count,
    } = snapshot.counts;
    let mut line = format!(
        "{:<11} {:5.1}/{:.0} s  ok {ok_count} fail {fail_count} info {info_count}",
        snapshot.phase,
        seconds(snapshot.elapsed_ns),
        seconds(snapshot.total_ns),
    );
    match (&snapshot.leader, snapshot.epoch) {
        (Some(leader), Some(epoch)) => {
            let _ = write!(line, "  leader {leader} epoch {epoch}");
        }
        (None, Some(_)) => line.push_str("  no leader"),
        (_, None) => {}
    }
    if !snapshot.faults.is_empty() {
        let _ = write!(line, "  faults: {}", snapshot.faults.join(", "));
    }
    line
}

fn campaign_line(summary: &CampaignSummary) -> String {
    let elapsed_s = summary.elapsed.as_secs_f64().max(1e-9);
    format!(
        "seeds {}/{}  {:.1}/s  {:.0} x real time  valid {} invalid {} unknown {}",
        summary.done_count,
        summary.asked_count,
        summary.done_count as f64 / elapsed_s,
        summary.simulated_ns as f64 / 1e9 / elapsed_s,
        summary.valid_count,
        summary.invalid_count,
        summary.unknown_count
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_line_tells_seeds_rates_and_verdicts() {
        let summary = CampaignSummary {
            asked_count: 100,
            done_count: 20,
            valid_count: 17,
            invalid_count: 2,
            unknown_count: 1,
            simulated_ns: 600_000_000_000,
            elapsed: std::time::Duration::from_secs(4),
            ..CampaignSummary::default()
        };
        assert_eq!(
            campaign_line(&summary),
            "seeds 20/100  5.0/s  150 x real time  valid 17 invalid 2 unknown 1"
        );
    }

    #[test]
    fn a_line_tells_phase_time_counts_leader_and_faults() {
        let snapshot = Snapshot {
            phase: "workload",
            elapsed_ns: 12_300_000_000,
            total_ns: 30_000_000_000,
            counts: Counts {
                ok_count: 10,
                fail_count: 2,
                info_count: 1,
            },
            leader: Some("n2".into()),
            epoch: Some(4),
            faults: vec!["partition".into()],
        };
        assert_eq!(
            line(&snapshot),
            "workload     12.3/30 s  ok 10 fail 2 info 1  leader n2 epoch 4  faults: partition"
        );
        let leaderless = Snapshot {
            leader: None,
            ..snapshot
        };
        assert_eq!(
            line(&leaderless),
            "workload     12.3/30 s  ok 10 fail 2 info 1  no leader  faults: partition"
        );
    }
}
