//! Owns how a follower gets the leader's snapshot: piece by piece, then in place of state and log.
//! Never installs what would take back anything that is committed here.
//!
//! A leader names a snapshot to a follower whose log ends before the leader's starts, or leaves the
//! leader's before the end of the leader's earliest snapshot. All that is committed is in both logs, so
//! in either case less is committed here than any snapshot of the leader holds: installing one always
//! moves the state forward, and drops only records that are in the snapshot or not committed. A leader
//! that names less than is committed here has lost committed records, and the follower stops, as it
//! does when it is told to truncate them. What is committed here does not change while a download is
//! under way, because nothing is fetched besides.

use super::role::RoleState;
use super::snapshots::{FETCH_SNAPSHOT_MAX_BYTES, digest_text};
use super::{Effect, RecordedVoters, Replica, StoredSnapshot};
use crate::ids::{NodeId, Offset, SnapshotId};
use crate::message::{ErrorCode, FetchSnapshotRequest, FetchSnapshotResponse};
use crate::mutants::Bug;
use crate::trace::{TraceEvent, name};

/// A snapshot that a follower has a part of. It ends with the follower's epoch: the next leader may
/// have other bytes under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Download {
    id: SnapshotId,
    /// How many bytes are stored.
    position_bytes: u64,
    /// Length of the whole, once the leader has told.
    size_bytes: Option<u64>,
}

impl Download {
    fn new(id: SnapshotId) -> Self {
        Self {
            id,
            position_bytes: 0,
            size_bytes: None,
        }
    }

    fn is_complete(&self) -> bool {
        self.size_bytes == Some(self.position_bytes)
    }

    /// The download with what `response` brings; `None` if that does not continue it.
    fn continued_by(self, response: &FetchSnapshotResponse) -> Option<Self> {
        let size_bytes = response.size_bytes;
        let length_bytes = response.bytes.len() as u64;
        let position_bytes = self.position_bytes.checked_add(length_bytes)?;
        let continues = response.snapshot_id == self.id
            && response.position_bytes == self.position_bytes
            && self.size_bytes.is_none_or(|known| known == size_bytes)
            && length_bytes > 0
            && position_bytes <= size_bytes;
        continues.then_some(Self {
            position_bytes,
            size_bytes: Some(size_bytes),
            ..self
        })
    }
}

impl Replica {
    pub(super) fn fetch_snapshot_request(&self, download: Download) -> FetchSnapshotRequest {
        FetchSnapshotRequest {
            cluster_id: self.configuration.cluster_id.clone(),
            replica: self.configuration.key(),
            current_leader_epoch: self.epoch(),
            snapshot_id: download.id,
            position_bytes: download.position_bytes,
            max_bytes: FETCH_SNAPSHOT_MAX_BYTES,
        }
    }

    fn download(&self) -> Option<Download> {
        match &self.role {
            RoleState::Follower(state) => state.download,
            _ => None,
        }
    }

    /// Whether the caller owes the outcome of an installation. Nothing may be done before.
    pub(super) fn awaits_installation(&self) -> bool {
        self.download()
            .is_some_and(|download| download.is_complete())
    }

    /// Turns from fetching records to fetching the snapshot that `leader` names.
    ///
    /// # Panics
    /// If it holds less than is committed here.
    pub(super) fn begin_download(&mut self, leader: NodeId, id: SnapshotId) {
        let senseless = id.end_offset <= Offset(0) || id.epoch > self.epoch();
        // There is nothing to fetch if it is here. The log continues every snapshot that is, so no
        // correct leader names one of them.
        if senseless || self.log.snapshot(id).is_some() {
            return self.peers.back_off(self.now_ns, leader);
        }
        self.assert_moves_forward(id);
        if let RoleState::Follower(state) = &mut self.role {
            state.download = Some(Download::new(id));
        }
    }

    fn assert_moves_forward(&self, id: SnapshotId) {
        assert!(
            id.end_offset > self.committed,
            "{} cannot go back to snapshot {id}: everything below {} is committed, but leader {:?} of \
             epoch {} does not have it",
            self.id(),
            self.committed,
            self.quorum_state.leader,
            self.epoch()
        );
    }

    /// Takes an answer of the leader to the fetch of a snapshot that was in flight.
    ///
    /// Kafka stops the process when the answer is about another snapshot or position. Here the
    /// download is given up and the leader left alone for a while: it says nothing about this
    /// replica's own state.
    pub(super) fn on_snapshot_fetched(&mut self, peer: NodeId, response: FetchSnapshotResponse) {
        let fetch_deadline_ns = self.fresh_fetch_deadline_ns();
        let (state, download) = match &mut self.role {
            RoleState::Follower(state) if state.leader == peer => match state.download {
                Some(download) => (state, download),
                None => return,
            },
            _ => return self.peers.back_off(self.now_ns, peer),
        };
        let continued = match response.error {
            ErrorCode::None => download.continued_by(&response),
            _ => None,
        };
        if continued.is_some() || response.error == ErrorCode::SnapshotNotFound {
            state.fetch_deadline_ns = fetch_deadline_ns;
            state.has_fetched = true;
        }
        state.download = continued;
        let Some(continued) = continued else {
            self.abandon_download(Some(download));
            // A leader that has deleted the snapshot names a newer one at once.
            if response.error != ErrorCode::SnapshotNotFound {
                self.peers.back_off(self.now_ns, peer);
            }
            return;
        };
        self.effect(Effect::StoreSnapshotChunk {
            id: continued.id,
            position_bytes: response.position_bytes,
            bytes: response.bytes,
        });
        if continued.is_complete() {
            self.effect(Effect::InstallSnapshot(continued.id));
        }
    }

    /// Throws away what was stored of a download that is over.
    pub(super) fn abandon_download(&mut self, download: Option<Download>) {
        if let Some(download) = download
            && download.position_bytes > 0
        {
            self.effect(Effect::AbandonSnapshot(download.id));
        }
    }

    /// Ends the download whose installation the caller has tried.
    fn take_installed(&mut self, id: SnapshotId) {
        let RoleState::Follower(state) = &mut self.role else {
            panic!("snapshot {id} was installed although nothing was downloaded");
        };
        let download = state.download.take();
        assert!(
            download.is_some_and(|download| download.id == id && download.is_complete()),
            "snapshot {id} was installed, but the download is {download:?}"
        );
    }

    /// State and log are those of the snapshot now, and it tells how far everything is committed.
    pub(super) fn on_snapshot_installed(
        &mut self,
        snapshot: StoredSnapshot,
        voters: Option<RecordedVoters>,
        digest: u64,
    ) {
        let id = snapshot.id;
        self.take_installed(id);
        self.assert_moves_forward(id);
        if self.configuration.has(Bug::SnapshotInstallKeepsLog) {
            self.log.restart_at_keeping_tail(snapshot);
        } else {
            self.log.restart_at(snapshot);
        }
        let named = voters
            .as_ref()
            .map(|recorded| recorded.voters.ids().map(name).collect());
        self.voter_history.reset(voters.unwrap_or(RecordedVoters {
            kraft_version: 0,
            voters: self.configuration.voters.clone(),
        }));
        self.trace(TraceEvent::SnapshotInstalled {
            end_offset: id.end_offset,
            last_epoch: id.epoch,
            digest: digest_text(digest),
            voters: named,
            kraft_version: self.voter_history.kraft_version(),
        });
        self.set_high_watermark(id.end_offset);
    }

    /// What was downloaded is not what it claims to be, and is gone: begins anew after a while.
    pub(super) fn on_snapshot_refused(&mut self, id: SnapshotId) {
        self.take_installed(id);
        if let RoleState::Follower(state) = &self.role {
            self.peers.back_off(self.now_ns, state.leader);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;

    const ID: SnapshotId = SnapshotId {
        end_offset: Offset(9),
        epoch: Epoch(2),
    };

    fn piece(position_bytes: u64, length_bytes: usize, size_bytes: u64) -> FetchSnapshotResponse {
        FetchSnapshotResponse {
            error: ErrorCode::None,
            leader_id: Some(NodeId(2)),
            leader_epoch: Epoch(3),
            leader_endpoint: None,
            snapshot_id: ID,
            size_bytes,
            position_bytes,
            bytes: vec![0; length_bytes],
        }
    }

    #[test]
    fn pieces_follow_each_other_until_the_end() {
        let half = Download::new(ID).continued_by(&piece(0, 6, 10)).unwrap();
        assert!(!half.is_complete());
        let whole = half.continued_by(&piece(6, 4, 10)).unwrap();
        assert!(whole.is_complete());
        assert_eq!(whole.continued_by(&piece(10, 1, 10)), None);
        let at_once = Download::new(ID).continued_by(&piece(0, 10, 10));
        assert!(at_once.unwrap().is_complete());
    }

    #[test]
    fn nothing_else_continues_a_download() {
        let half = Download::new(ID).continued_by(&piece(0, 6, 10)).unwrap();
        let mut of_another = piece(6, 4, 10);
        of_another.snapshot_id.epoch = Epoch(1);
        for (what, response) in [
            ("a gap", piece(7, 1, 10)),
            ("a repetition", piece(0, 6, 10)),
            ("another length", piece(6, 4, 11)),
            ("too much", piece(6, 5, 10)),
            ("nothing", piece(6, 0, 10)),
            ("another snapshot", of_another),
        ] {
            assert_eq!(half.continued_by(&response), None, "{what}");
        }
    }
}
