//! Owns judging a run whose trace is watched while it goes on, instead of being kept.
//! Never judges by less than all of the trace; where it cannot tell, it says so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use results::store::Recording;
use results::trace::{TraceDetail, TraceEvent};
use results::verdict::Verdict;

use crate::{Options, combine, epoch_history};

/// Sees every event of a trace once, and remembers what the checkers will need of it.
#[derive(Debug)]
pub struct Onlooker {
    /// `None` once it has panicked.
    epoch_history: Option<epoch_history::Online>,
    /// What `node_logs` needs: every refusal to start, and whether anything was said at all.
    told: Vec<TraceEvent>,
}

impl Onlooker {
    /// Before the first event of a cluster whose voters are `n1` to `n<voter_count>`.
    pub fn new(voter_count: u32) -> Self {
        Self {
            epoch_history: Some(epoch_history::Online::new(voter_count)),
            told: Vec::new(),
        }
    }

    /// Takes the next event. None may be missing, and they come in the order of their times.
    pub fn observe(&mut self, event: &Rc<TraceEvent>) {
        if self.told.is_empty() || matches!(event.detail, TraceDetail::RefusedToStart { .. }) {
            self.told.push(TraceEvent::clone(event));
        }
        if let Some(epoch_history) = &mut self.epoch_history {
            let observed = catch_unwind(AssertUnwindSafe(|| epoch_history.observe(event)));
            if observed.is_err() {
                self.epoch_history = None;
            }
        }
    }

    /// What [`check`](crate::check) says of the recording with the whole trace; that of `recording` is
    /// not looked at. `None` if only the whole trace can tell.
    pub fn conclude(self, recording: &Recording, options: &Options) -> Option<Verdict> {
        let online = self.epoch_history?;
        let history = &recording.history;
        let epoch_history = catch_unwind(AssertUnwindSafe(|| online.conclude(history)));
        let epoch_history = epoch_history.ok().flatten()?;
        Some(combine(recording, &self.told, epoch_history, options))
    }
}
