//! Owns what must hold over all loops of a cluster at every moment, and what was found not to.
//! Never stops a test by itself: with a seeded bug, findings are what is wanted.

use std::collections::{BTreeMap, BTreeSet};

use node::ids::{Epoch, NodeId, Offset};
use node::node_loop::StateDescription;
use node::trace::TraceEvent;

use crate::outbox::Collected;

/// States and snapshots seen so far, by where they end.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Hash of the state of whoever was there first.
    states: BTreeMap<Offset, (NodeId, String)>,
    snapshots: BTreeMap<(Offset, Epoch), (NodeId, String)>,
    /// Where snapshots of each node end.
    ends: BTreeSet<(NodeId, Offset)>,
    /// Equal positions with unequal states.
    pub(crate) divergences: Vec<String>,
    /// Snapshots of what was not known to be committed.
    pub(crate) uncommitted_snapshots: Vec<String>,
    /// Logs that do not start at the end of a snapshot.
    pub(crate) bare_starts: Vec<String>,
    /// What left a node before it was durable or committed.
    pub(crate) early: Vec<String>,
}

impl Findings {
    /// Everything that was found.
    pub(crate) fn all(&self) -> Vec<&String> {
        let kinds = [
            &self.divergences,
            &self.uncommitted_snapshots,
            &self.bare_starts,
            &self.early,
        ];
        kinds.into_iter().flatten().collect()
    }

    /// Looks at what a node just did and at the state that it is in.
    pub(crate) fn note(&mut self, id: NodeId, outbox: &mut Collected, state: StateDescription) {
        let early = outbox
            .undurable
            .drain(..)
            .chain(outbox.uncommitted.drain(..));
        self.early
            .extend(early.map(|departure| format!("{id}: {departure:?}")));
        for traced in &outbox.events {
            match &traced.event {
                TraceEvent::SnapshotFrozen {
                    end_offset,
                    last_epoch,
                    digest,
                    ..
                } => {
                    self.note_snapshot(id, *end_offset, *last_epoch, digest);
                    if outbox.high_watermark() < Some(*end_offset) {
                        let what = format!("{id}: snapshot up to {end_offset}");
                        self.uncommitted_snapshots.push(what);
                    }
                }
                TraceEvent::SnapshotInstalled {
                    end_offset,
                    last_epoch,
                    digest,
                    ..
                } => self.note_snapshot(id, *end_offset, *last_epoch, digest),
                TraceEvent::LogStartAdvanced { log_start }
                    if !self.ends.contains(&(id, *log_start)) =>
                {
                    self.bare_starts.push(format!("{id}: log from {log_start}"));
                }
                _ => {}
            }
        }
        self.note_state(id, state.applied, &format!("{:016x}", state.digest));
    }

    fn note_snapshot(&mut self, id: NodeId, end_offset: Offset, epoch: Epoch, digest: &str) {
        self.ends.insert((id, end_offset));
        self.note_state(id, end_offset, digest);
        let (first, known) = self
            .snapshots
            .entry((end_offset, epoch))
            .or_insert_with(|| (id, digest.to_owned()));
        if known != digest {
            let what = format!("snapshot {end_offset}-{epoch}: {first} {known}, {id} {digest}");
            self.divergences.push(what);
        }
    }

    fn note_state(&mut self, id: NodeId, applied: Offset, digest: &str) {
        let (first, known) = self
            .states
            .entry(applied)
            .or_insert_with(|| (id, digest.to_owned()));
        if known != digest {
            let what = format!("state at {applied}: {first} {known}, {id} {digest}");
            if self.divergences.last() != Some(&what) {
                self.divergences.push(what);
            }
        }
    }
}
