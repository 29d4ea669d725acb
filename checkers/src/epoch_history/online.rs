//! Owns checking a trace event by event, while the run goes on, without keeping it.
//! Never concludes anything where the trace as a whole would be needed; it says so instead.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use results::history::Operation;
use results::trace::TraceEvent;
use results::verdict::CheckerResult;

use super::model::Model;
use super::nodes::Nodes;
use super::watch::Watch;
use super::{judge, numbered_voters};

/// The checker of [`check`](super::check) for a trace that is complete, as that of a simulation: all
/// properties see every event, and no event is kept longer than they need it.
#[derive(Debug)]
pub struct Online {
    watch: Watch,
    voter_count: u32,
    /// By node: its incarnation and the number of its next event.
    next: Nodes<(u32, u64)>,
    event_count: u64,
    /// Events are missing: what they may have told depends on what came before, which is gone.
    is_broken: bool,
}

impl Online {
    /// Before the first event of a cluster whose voters are `n1` to `n<voter_count>`.
    pub fn new(voter_count: u32) -> Self {
        let configured = numbered_voters(voter_count as usize);
        Self {
            // Whether voters are in the log matters only where events are missing.
            watch: Watch::of(Model::new(BTreeMap::new(), configured, false)),
            voter_count,
            next: Nodes::default(),
            event_count: 0,
            is_broken: false,
        }
    }

    /// Takes the next event. They come in the order of their times.
    pub fn observe(&mut self, event: &Rc<TraceEvent>) {
        self.event_count += 1;
        if !self.follows(event) {
            self.is_broken = true;
        }
        if !self.is_broken {
            self.watch.take(event);
        }
    }

    fn follows(&mut self, event: &TraceEvent) -> bool {
        let (incarnation, seq) = (event.incarnation, event.seq);
        let next = self.next.enter(&event.node, || (incarnation, 0));
        let follows = if next.0 == incarnation {
            seq == next.1
        } else {
            incarnation > next.0 && seq == 0
        };
        *next = (incarnation, seq + 1);
        follows
    }

    /// What [`check`](super::check) says of the same trace. `None` where that takes the trace as a
    /// whole, because events are missing, or because a voter never spoke.
    pub fn conclude(mut self, history: &[Operation]) -> Option<CheckerResult> {
        let expected = numbered_voters(self.voter_count as usize);
        let spoke: BTreeSet<String> = self.next.iter().map(|(name, _)| name.into()).collect();
        if self.is_broken || !spoke.is_superset(&expected) {
            return None;
        }
        self.watch.settle();
        self.watch.epochs().observe_history(history);
        let doubts = self.watch.take_doubts();
        let lost = doubts.first().map(String::as_str);
        let node_count = spoke.len() as u64;
        Some(judge(self.watch, self.event_count, node_count, lost))
    }
}
