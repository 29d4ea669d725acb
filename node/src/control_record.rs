//! Owns the records that the protocol itself writes into logs and snapshots.
//! Never carries anything that clients wrote.
//!
//! Kafka's LeaderChange (2), SnapshotHeader (3), SnapshotFooter (4), KRaftVersion (5) and
//! KRaftVoters (6) records (KIP-595, KIP-630, KIP-853), as JSON.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::voters::VoterSet;

/// A record of a control batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ControlRecord {
    /// Begins an epoch.
    LeaderChange {
        /// Who leads it.
        leader: NodeId,
        /// The voters at that moment.
        voters: Vec<NodeId>,
        /// Who voted for the leader.
        granting_voters: Vec<NodeId>,
    },
    /// Begins a snapshot.
    SnapshotHeader {
        /// Version of the snapshot's layout.
        version: u16,
        /// Timestamp of the last batch in the snapshot, in milliseconds since 1970.
        last_contained_timestamp_ms: i64,
    },
    /// Ends a snapshot.
    SnapshotFooter {
        /// Version of the snapshot's layout.
        version: u16,
    },
    /// From here on this `kraft.version` is in force.
    KraftVersion {
        /// 0: voters are configured. 1: voters are in the log.
        version: u16,
    },
    /// From here on these are the voters, whether or not the record is committed.
    Voters {
        /// All of them.
        voters: VoterSet,
    },
}

impl ControlRecord {
    /// The record as it is stored.
    ///
    /// # Panics
    /// Never: numbers and strings always serialise.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and strings always serialise")
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// If it is none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}
