//! Owns judging a run whose trace is watched while it goes on, instead of being kept.
//! Never judges by less than all of the trace; where it cannot tell, it says so.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use results::store::Recording;
use results::trace::{TraceDetail, TraceEvent};
use results::verdict::Verdict;

use crate::liveness::Kept;
use crate::standing::Standings;
use crate::{CONFORMANCE, DISKS, Options, Told, combine, conformance, disks, epoch_history};

/// Sees every event of a trace once, and remembers what the checkers will need of it.
#[derive(Debug)]
pub struct Onlooker {
    /// `None` once it has panicked.
    epoch_history: Option<epoch_history::Online>,
    /// The first event and every refusal to start.
    refusals: Vec<TraceEvent>,
    /// What a liveness phase is judged by.
    phase: Kept,
    /// What nodes say of their disks. `None` once it has panicked.
    disks: Option<disks::Claimed>,
    /// Whether their steps are allowed. `None` once it has panicked.
    conformance: Option<conformance::Specification>,
    /// Where nodes stand.
    standings: Standings,
}

impl Onlooker {
    /// Before the first event of a cluster whose voters are `n1` to `n<voter_count>`.
    pub fn new(voter_count: u32) -> Self {
        Self {
            epoch_history: Some(epoch_history::Online::new(voter_count)),
            refusals: Vec::new(),
            phase: Kept::default(),
            disks: Some(disks::Claimed::default()),
            conformance: Some(conformance::Specification::default()),
            standings: Standings::default(),
        }
    }

    /// Takes the next event. None may be missing, and they come in the order of their times.
    pub fn observe(&mut self, event: &Rc<TraceEvent>) {
        let is_start = matches!(
            event.detail,
            TraceDetail::Started(_) | TraceDetail::RefusedToStart { .. }
        );
        if self.refusals.is_empty() || is_start {
            self.refusals.push(TraceEvent::clone(event));
        }
        self.phase.observe(event);
        self.standings.observe(event);
        if let Some(epoch_history) = &mut self.epoch_history {
            let observed = catch_unwind(AssertUnwindSafe(|| epoch_history.observe(event)));
            if observed.is_err() {
                self.epoch_history = None;
            }
        }
        if let Some(conformance) = &mut self.conformance {
            let observed = catch_unwind(AssertUnwindSafe(|| conformance.observe(event)));
            if observed.is_err() {
                self.conformance = None;
            }
        }
        if let Some(disks) = &mut self.disks {
            let observed = catch_unwind(AssertUnwindSafe(|| disks.observe(event)));
            if observed.is_err() {
                self.disks = None;
            }
        }
    }

    /// A majority is about to have to recover alone. Without being told so in time, a liveness phase
    /// cannot be judged.
    pub fn phase_begins(&mut self) {
        self.phase.begin();
    }

    /// What [`check`](crate::check) says of the recording with the whole trace; that of `recording` is
    /// not looked at. `None` if only the whole trace can tell.
    pub fn conclude(self, recording: &Recording, options: &Options) -> Option<Verdict> {
        let online = self.epoch_history?;
        let history = &recording.history;
        let epoch_history = catch_unwind(AssertUnwindSafe(|| online.conclude(history)));
        let epoch_history = epoch_history.ok().flatten()?;
        let phase = self.phase.into_trace();
        let told = Told {
            refusals: &self.refusals,
            phase: &phase,
            standings: &self.standings,
        };
        let mut checkers = BTreeMap::from([("epoch-history".to_owned(), epoch_history)]);
        let specification = self.conformance?;
        let conformance = catch_unwind(AssertUnwindSafe(|| {
            specification.conclude_run(&recording.manifest, &recording.schedule)
        }))
        .ok()?;
        checkers.insert(CONFORMANCE.to_owned(), conformance);
        if !recording.disks.is_empty() {
            let claimed = self.disks?;
            let compared =
                AssertUnwindSafe(|| claimed.conclude(&recording.disks, &recording.schedule));
            checkers.insert(DISKS.to_owned(), catch_unwind(compared).ok()?);
        }
        Some(combine(recording, told, checkers, options))
    }
}
