//! Owns judging a run whose trace is watched while it goes on, instead of being kept.
//! Never judges by less than all of the trace; where it cannot tell, it says so.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use results::store::Recording;
use results::trace::{Message, TraceDetail, TraceEvent};
use results::verdict::Verdict;

use crate::liveness::Kept;
use crate::standing::Standings;
use crate::{CONFORMANCE, DISKS, Options, Told, combine, conformance, disks, epoch_history};

/// How many events are looked at together. Each checker sees them one by one, but the code of one checker after
/// the other, rather than that of all of them for every event, stays where the processor finds it at once.
const TOGETHER_COUNT: usize = 512;

/// Sees every event of a trace once, and remembers what the checkers will need of it.
#[derive(Debug)]
pub struct Onlooker {
    /// What nobody has looked at yet.
    pending: Vec<Rc<TraceEvent>>,
    /// What everybody has looked at: the room that events took which nobody keeps is used again.
    seen: Vec<Rc<TraceEvent>>,
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
            pending: Vec::with_capacity(TOGETHER_COUNT),
            seen: Vec::with_capacity(TOGETHER_COUNT),
            epoch_history: Some(epoch_history::Online::new(voter_count)),
            refusals: Vec::new(),
            phase: Kept::default(),
            disks: Some(disks::Claimed::default()),
            conformance: Some(conformance::Specification::default()),
            standings: Standings::default(),
        }
    }

    /// Takes the next event. None may be missing, and they come in the order of their times.
    pub fn observe(&mut self, event: TraceEvent) {
        let event = self.placed(event);
        self.pending.push(event);
        if self.pending.len() >= TOGETHER_COUNT {
            self.look();
        }
    }

    /// The room that a message took which everybody has looked at and nobody keeps.
    pub fn spare_message(&mut self) -> Option<Box<Message>> {
        let seen = Rc::get_mut(self.seen.last_mut()?)?;
        let (TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. }) = seen.detail else {
            return None;
        };
        match std::mem::replace(&mut seen.detail, TraceDetail::Unknown) {
            TraceDetail::RpcSent { message, .. } | TraceDetail::RpcReceived { message, .. } => {
                Some(message)
            }
            _ => None,
        }
    }

    /// Puts an event where an earlier one was, if nobody keeps that: there are so many that asking for room and
    /// giving it back again would be a good part of the work.
    fn placed(&mut self, event: TraceEvent) -> Rc<TraceEvent> {
        while let Some(mut seen) = self.seen.pop() {
            if let Some(place) = Rc::get_mut(&mut seen) {
                *place = event;
                return seen;
            }
        }
        Rc::new(event)
    }

    /// Lets every checker see what is pending.
    fn look(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for event in &pending {
            let is_start = matches!(
                event.detail,
                TraceDetail::Started(_) | TraceDetail::RefusedToStart { .. }
            );
            if self.refusals.is_empty() || is_start {
                self.refusals.push(TraceEvent::clone(event));
            }
            self.phase.observe(event);
            self.standings.observe(event);
        }
        show(&mut self.epoch_history, &pending, |checker, event| {
            checker.observe(event);
        });
        show(&mut self.conformance, &pending, |checker, event| {
            checker.observe(event);
        });
        show(&mut self.disks, &pending, |checker, event| {
            checker.observe(event);
        });
        self.pending = std::mem::replace(&mut self.seen, pending);
        self.pending.clear();
    }

    /// A majority is about to have to recover alone. Without being told so in time, a liveness phase
    /// cannot be judged.
    pub fn phase_begins(&mut self) {
        self.look();
        self.phase.begin();
    }

    /// What [`check`](crate::check) says of the recording with the whole trace; that of `recording` is
    /// not looked at. `None` if only the whole trace can tell.
    pub fn conclude(mut self, recording: &Recording, options: &Options) -> Option<Verdict> {
        self.look();
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
            let clients = disks::Clients::of(recording);
            let compared = AssertUnwindSafe(|| {
                claimed.conclude(&recording.disks, &recording.schedule, clients)
            });
            checkers.insert(DISKS.to_owned(), catch_unwind(compared).ok()?);
        }
        Some(combine(recording, told, checkers, options))
    }
}

/// Shows events to a checker, one by one. One that panics sees no more of them, and is gone.
fn show<Checker>(
    checker: &mut Option<Checker>,
    events: &[Rc<TraceEvent>],
    observe: impl Fn(&mut Checker, &Rc<TraceEvent>),
) {
    let Some(present) = checker else {
        return;
    };
    let shown = catch_unwind(AssertUnwindSafe(|| {
        for event in events {
            observe(present, event);
        }
    }));
    if shown.is_err() {
        *checker = None;
    }
}
