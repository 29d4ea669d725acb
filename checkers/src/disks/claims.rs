//! Owns what the trace of one node claims to be on its disk: log, votes, snapshots, log start.
//! Never looks at a disk.

use std::collections::BTreeMap;

use results::disk_image::StoredQuorumState;
use results::trace::{Role, Started, TraceDetail, TraceEvent};

use crate::epoch_history::log::{Batch, Identity, Log};
use crate::incarnations::Sequence;

/// What a node says its disk holds.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) log: Log,
    /// Everything below is said to be durable.
    pub(super) durable_end: i64,
    /// Everything below is known to be committed, and never cut off again.
    pub(super) committed_end: i64,
    pub(super) quorum_state: Option<StoredQuorumState>,
    /// By end offset: the epoch and, where it was told, the hash of the state.
    pub(super) snapshots: BTreeMap<i64, (i32, Option<String>)>,
    pub(super) directory_id: Option<String>,
    /// When the claims last changed.
    pub(super) time: u64,
    pub(super) has_started: bool,
    /// It found its disk in a state that it must not continue from.
    pub(super) has_refused: bool,
    /// Events are missing.
    pub(super) is_broken: bool,
    next: Sequence,
}

impl Claims {
    pub(super) fn observe(&mut self, event: &TraceEvent) {
        self.is_broken |= !self.next.follows(event);
        self.time = event.time;
        match &event.detail {
            TraceDetail::Started(started) => self.start(event.epoch, started),
            TraceDetail::RoleChange {
                role: Role::Leader, ..
            } => {
                // Whoever leads has written that, and need not keep its vote for itself.
                let state = self.quorum_state(event.epoch);
                state.leader = Some(event.node.to_string());
                state.voted_for = None;
            }
            TraceDetail::VotePersisted { candidate } => {
                self.quorum_state(event.epoch).voted_for = Some(candidate.clone());
            }
            TraceDetail::EpochAdopted { leader } => {
                self.quorum_state(event.epoch).leader.clone_from(leader);
            }
            TraceDetail::Append {
                base_offset,
                last_offset,
                batch_epoch,
                crc,
            } => {
                self.cut(*base_offset);
                self.log.append(Batch {
                    base_offset: *base_offset,
                    last_offset: *last_offset,
                    identity: Some(Identity {
                        epoch: *batch_epoch,
                        crc: *crc,
                    }),
                });
            }
            TraceDetail::Flush { log_end } => self.durable_end = *log_end,
            TraceDetail::Truncate { log_end } => self.cut(*log_end),
            TraceDetail::HighWatermark { high_watermark, .. } => {
                self.committed_end = self.committed_end.max(*high_watermark);
            }
            TraceDetail::SnapshotFrozen {
                end_offset,
                last_epoch,
                digest,
            } => self.keep_snapshot(*end_offset, *last_epoch, digest),
            TraceDetail::SnapshotInstalled {
                end_offset,
                last_epoch,
                digest,
                ..
            } => {
                self.keep_snapshot(*end_offset, *last_epoch, digest);
                self.log = Log::starting_at(*end_offset, Some(*last_epoch));
                self.durable_end = *end_offset;
                self.committed_end = self.committed_end.max(*end_offset);
            }
            TraceDetail::LogStartAdvanced { log_start } => {
                self.log.advance_start(*log_start);
                // Older snapshots may be removed from here on.
                self.snapshots = self.snapshots.split_off(log_start);
            }
            TraceDetail::RefusedToStart { .. } => self.has_refused = true,
            _ => {}
        }
    }

    fn start(&mut self, epoch: i32, started: &Started) {
        let directory = &started.directory_id;
        if self.has_started && directory.is_some() && *directory != self.directory_id {
            *self = Self {
                next: self.next,
                is_broken: self.is_broken,
                time: self.time,
                ..Self::default()
            };
        }
        self.has_started = true;
        self.has_refused = false;
        self.directory_id.clone_from(directory);
        if started.leader.is_some() || started.voted_for.is_some() {
            self.quorum_state = Some(StoredQuorumState {
                epoch,
                leader: started.leader.clone(),
                voted_for: started.voted_for.clone(),
            });
        }
        // What it did last before it ended it may not have said any more. That was no cut below what is
        // committed, but above, other batches may have taken the place of those it spoke of.
        let committed_end = self.committed_end.clamp(started.log_start, started.log_end);
        self.log.cut(committed_end);
        if self.log.end() < started.log_start {
            self.log = Log::starting_at(started.log_start, None);
        }
        self.log.advance_start(started.log_start);
        self.log.extend_start(started.log_start);
        self.log.extend_unknown(started.log_end);
        self.durable_end = started.log_end;
        if let Some(found) = &started.snapshots {
            let told = std::mem::take(&mut self.snapshots);
            for name in found {
                let known = told
                    .get(&name.end_offset)
                    .filter(|it| it.0 == name.last_epoch);
                let digest = known.and_then(|(_, digest)| digest.clone());
                self.snapshots
                    .insert(name.end_offset, (name.last_epoch, digest));
            }
        }
    }

    fn quorum_state(&mut self, epoch: i32) -> &mut StoredQuorumState {
        let state = self.quorum_state.get_or_insert(StoredQuorumState {
            epoch,
            leader: None,
            voted_for: None,
        });
        if state.epoch != epoch {
            *state = StoredQuorumState {
                epoch,
                leader: None,
                voted_for: None,
            };
        }
        state
    }

    fn keep_snapshot(&mut self, end_offset: i64, last_epoch: i32, digest: &str) {
        let digest = Some(digest.to_owned());
        self.snapshots.insert(end_offset, (last_epoch, digest));
    }

    fn cut(&mut self, end: i64) {
        if end < self.log.end() {
            self.log.cut(end);
            self.durable_end = self.durable_end.min(end);
        }
    }
}
