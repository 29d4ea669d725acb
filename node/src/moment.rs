//! Owns the moments at which a node can be told to wait: something is about to happen, or just has.
//! Never waits itself; outboxes do, where somebody asks for it.

use crate::message::Request;
use crate::raft::Role;
use crate::trace::TraceEvent;

/// On which side of something a moment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// Nothing of it has happened, neither on disk nor in sight of anybody.
    Before,
    /// It has happened, and nothing that follows from it has left the node.
    After,
}

/// What happens: one kind of event of the protocol, or of request between replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The node takes part again after a start.
    Started,
    /// It becomes a leader.
    BecameLeader,
    /// It becomes a candidate.
    BecameCandidate,
    /// It becomes a prospective candidate (KIP-996).
    BecameProspective,
    /// It becomes a follower.
    BecameFollower,
    /// It gives up leadership.
    Resigned,
    /// A vote becomes durable.
    VotePersisted,
    /// A newer epoch, or its leader, becomes durable.
    EpochAdopted,
    /// A batch is appended to the log; it is not durable by that.
    Append,
    /// The log becomes durable up to its end.
    Flush,
    /// The high watermark moves.
    HighWatermark,
    /// The log is cut back.
    Truncate,
    /// A snapshot of the own state becomes durable.
    SnapshotFrozen,
    /// A snapshot of the leader replaces the log.
    SnapshotInstalled,
    /// The beginning of the log is deleted.
    LogStartAdvanced,
    /// A set of voters is appended to the log (KIP-853).
    VotersAppended,
    /// A linearizable read is answered.
    ReadServed,
    /// A pre-vote request leaves for another replica.
    SentPreVote,
    /// One arrives.
    ReceivedPreVote,
    /// A vote request leaves.
    SentVote,
    /// One arrives.
    ReceivedVote,
    /// An announcement of this leader leaves.
    SentBeginQuorumEpoch,
    /// One arrives.
    ReceivedBeginQuorumEpoch,
    /// A farewell of this leader leaves.
    SentEndQuorumEpoch,
    /// One arrives.
    ReceivedEndQuorumEpoch,
    /// A fetch leaves.
    SentFetch,
    /// One arrives.
    ReceivedFetch,
    /// A fetch of a piece of a snapshot leaves.
    SentFetchSnapshot,
    /// One arrives.
    ReceivedFetchSnapshot,
}

/// Every moment with its name, in the order of the type.
const TABLE: [(Moment, &str); 29] = [
    (Moment::Started, "started"),
    (Moment::BecameLeader, "became-leader"),
    (Moment::BecameCandidate, "became-candidate"),
    (Moment::BecameProspective, "became-prospective"),
    (Moment::BecameFollower, "became-follower"),
    (Moment::Resigned, "resigned"),
    (Moment::VotePersisted, "vote-persisted"),
    (Moment::EpochAdopted, "epoch-adopted"),
    (Moment::Append, "append"),
    (Moment::Flush, "flush"),
    (Moment::HighWatermark, "high-watermark"),
    (Moment::Truncate, "truncate"),
    (Moment::SnapshotFrozen, "snapshot-frozen"),
    (Moment::SnapshotInstalled, "snapshot-installed"),
    (Moment::LogStartAdvanced, "log-start-advanced"),
    (Moment::VotersAppended, "voters-appended"),
    (Moment::ReadServed, "read-served"),
    (Moment::SentPreVote, "message-sent:pre-vote"),
    (Moment::ReceivedPreVote, "message-received:pre-vote"),
    (Moment::SentVote, "message-sent:vote"),
    (Moment::ReceivedVote, "message-received:vote"),
    (
        Moment::SentBeginQuorumEpoch,
        "message-sent:begin-quorum-epoch",
    ),
    (
        Moment::ReceivedBeginQuorumEpoch,
        "message-received:begin-quorum-epoch",
    ),
    (Moment::SentEndQuorumEpoch, "message-sent:end-quorum-epoch"),
    (
        Moment::ReceivedEndQuorumEpoch,
        "message-received:end-quorum-epoch",
    ),
    (Moment::SentFetch, "message-sent:fetch"),
    (Moment::ReceivedFetch, "message-received:fetch"),
    (Moment::SentFetchSnapshot, "message-sent:fetch-snapshot"),
    (
        Moment::ReceivedFetchSnapshot,
        "message-received:fetch-snapshot",
    ),
];

impl Edge {
    /// `before` or `after`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    /// The edge of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Before, Self::After]
            .into_iter()
            .find(|edge| edge.name() == name)
    }
}

impl Moment {
    /// Every moment.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(moment, _)| *moment)
    }

    /// The name, as whoever asks for moments writes it.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The moment of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = TABLE.iter().find(|(_, known)| *known == name);
        found.map(|(moment, _)| *moment)
    }

    /// The moment at which this is reported; messages have moments whether they are reported or not.
    pub(crate) fn of(event: &TraceEvent) -> Option<Self> {
        Some(match event {
            TraceEvent::Started { .. } => Self::Started,
            TraceEvent::RoleChange { role, .. } => match role {
                Role::Leader => Self::BecameLeader,
                Role::Candidate => Self::BecameCandidate,
                Role::Prospective => Self::BecameProspective,
                Role::Follower => Self::BecameFollower,
                Role::Resigned => Self::Resigned,
                Role::Unattached => return None,
            },
            TraceEvent::VotePersisted { .. } => Self::VotePersisted,
            TraceEvent::EpochAdopted { .. } => Self::EpochAdopted,
            TraceEvent::Append { .. } => Self::Append,
            TraceEvent::VotersAppended { .. } => Self::VotersAppended,
            TraceEvent::Flush { .. } => Self::Flush,
            TraceEvent::Truncate { .. } => Self::Truncate,
            TraceEvent::HighWatermark { .. } => Self::HighWatermark,
            TraceEvent::ReadServed { .. } => Self::ReadServed,
            TraceEvent::SnapshotFrozen { .. } => Self::SnapshotFrozen,
            TraceEvent::SnapshotInstalled { .. } => Self::SnapshotInstalled,
            TraceEvent::LogStartAdvanced { .. } => Self::LogStartAdvanced,
            TraceEvent::RpcSent { .. }
            | TraceEvent::RpcReceived { .. }
            | TraceEvent::RefusedToStart { .. } => return None,
        })
    }

    /// The moment at which this request leaves; requests of tools have none.
    pub(crate) fn sent(request: &Request) -> Option<Self> {
        Some(match request {
            Request::Vote(vote) if vote.pre_vote => Self::SentPreVote,
            Request::Vote(_) => Self::SentVote,
            Request::BeginQuorumEpoch(_) => Self::SentBeginQuorumEpoch,
            Request::EndQuorumEpoch(_) => Self::SentEndQuorumEpoch,
            Request::Fetch(_) => Self::SentFetch,
            Request::FetchSnapshot(_) => Self::SentFetchSnapshot,
            _ => return None,
        })
    }

    /// The moment at which this request arrives; requests of tools have none.
    pub(crate) fn received(request: &Request) -> Option<Self> {
        Some(match Self::sent(request)? {
            Self::SentPreVote => Self::ReceivedPreVote,
            Self::SentVote => Self::ReceivedVote,
            Self::SentBeginQuorumEpoch => Self::ReceivedBeginQuorumEpoch,
            Self::SentEndQuorumEpoch => Self::ReceivedEndQuorumEpoch,
            Self::SentFetch => Self::ReceivedFetch,
            _ => Self::ReceivedFetchSnapshot,
        })
    }

    /// Whether it is about storage, which is worked on before the event is reported.
    pub(crate) fn is_of_storage(self) -> bool {
        matches!(
            self,
            Self::VotePersisted
                | Self::EpochAdopted
                | Self::Append
                | Self::VotersAppended
                | Self::Flush
                | Self::Truncate
                | Self::SnapshotFrozen
                | Self::SnapshotInstalled
                | Self::LogStartAdvanced
        )
    }

    /// Whether a message leaves: one that the node has handed over, and that has not left while it waits.
    pub fn is_of_sending(self) -> bool {
        matches!(
            self,
            Self::SentPreVote
                | Self::SentVote
                | Self::SentBeginQuorumEpoch
                | Self::SentEndQuorumEpoch
                | Self::SentFetch
                | Self::SentFetchSnapshot
        )
    }
}

/// A set of moments and edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MomentSet(u64);

impl MomentSet {
    /// Adds one.
    pub fn insert(&mut self, edge: Edge, moment: Moment) {
        self.0 |= Self::bit(edge, moment);
    }

    /// Whether it is in the set.
    pub fn contains(self, edge: Edge, moment: Moment) -> bool {
        self.0 & Self::bit(edge, moment) != 0
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn bit(edge: Edge, moment: Moment) -> u64 {
        1 << (2 * moment as u32 + u32::from(edge == Edge::After))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_their_moments() {
        for (position, moment) in Moment::all().enumerate() {
            assert_eq!(moment as usize, position, "{moment:?}");
            assert_eq!(Moment::from_name(moment.name()), Some(moment));
        }
        assert_eq!(Moment::from_name("became-king"), None);
        assert_eq!(Edge::from_name("before"), Some(Edge::Before));
        assert_eq!(Edge::from_name("beside"), None);
    }

    #[test]
    fn a_set_holds_exactly_what_was_put_into_it() {
        let mut set = MomentSet::default();
        assert!(set.is_empty());
        set.insert(Edge::Before, Moment::Flush);
        set.insert(Edge::After, Moment::ReceivedFetchSnapshot);
        let held: Vec<(Edge, Moment)> = [Edge::Before, Edge::After]
            .into_iter()
            .flat_map(|edge| Moment::all().map(move |moment| (edge, moment)))
            .filter(|(edge, moment)| set.contains(*edge, *moment))
            .collect();
        assert_eq!(
            held,
            [
                (Edge::Before, Moment::Flush),
                (Edge::After, Moment::ReceivedFetchSnapshot)
            ]
        );
        assert_eq!(MomentSet::from_bits(set.bits()), set);
    }
}
