//! Owns the names and numbers that must not be mixed up: replicas, epochs, offsets, snapshots.
//! Never does arithmetic that a protocol rule would have to justify.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use serde::{Deserialize, Serialize};

/// Id of a replica within its cluster. Shown as `n1`, `n2`, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "n{}", self.0)
    }
}

/// Leader epoch: Raft's term. 0 before the first election.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub i32);

impl Epoch {
    /// How far ahead an epoch may be that a peer speaks of: a group that lost its leader moves on by a few
    /// each second, so this takes months, and what is further is garbage that would use the epochs up.
    pub const LEAP_MAX: i32 = 1 << 24;

    /// The epoch after this one.
    ///
    /// # Panics
    /// After the last one, which takes two thousand millions of elections.
    pub fn next(self) -> Self {
        let Some(next) = self.0.checked_add(1) else {
            panic!("there is no epoch after {self}");
        };
        Self(next)
    }

    /// Whether a replica in this epoch may believe that others have reached `other`.
    pub fn can_reach(self, other: Self) -> bool {
        other.0 <= self.0.saturating_add(Self::LEAP_MAX) && other.0 < i32::MAX
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Position in the log. End offsets and high watermarks are exclusive.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Which data directory a replica was formatted with. A replica whose disk was wiped and formatted
/// again has another one, and is therefore another replica (KIP-853). Written as Kafka writes it:
/// 22 characters of URL-safe base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DirectoryId(pub u128);

impl fmt::Display for DirectoryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&URL_SAFE_NO_PAD.encode(self.0.to_be_bytes()))
    }
}

/// What was read is not a directory id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a directory id: 22 characters of URL-safe base64, not all of them zero")]
pub struct DirectoryIdError(String);

impl FromStr for DirectoryId {
    type Err = DirectoryIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || DirectoryIdError(text.to_owned());
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| error())?;
        let bytes: [u8; 16] = bytes.try_into().map_err(|_| error())?;
        match u128::from_be_bytes(bytes) {
            // Kafka writes "none" like this.
            0 => Err(error()),
            number => Ok(Self(number)),
        }
    }
}

impl TryFrom<String> for DirectoryId {
    type Error = DirectoryIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DirectoryId> for String {
    fn from(directory_id: DirectoryId) -> Self {
        directory_id.to_string()
    }
}

/// A replica: its id, and the data directory it was formatted with where that is known. Under
/// kraft.version 0 directory ids are not known to others (KIP-853).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaKey {
    /// Its id.
    pub id: NodeId,
    /// Its data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<DirectoryId>,
}

impl ReplicaKey {
    /// Whether this stored key means the replica that presents `other`: the ids must be equal, and
    /// if this key has a directory id, the other must present the same one.
    pub fn accepts(&self, other: &Self) -> bool {
        self.id == other.id
            && (self.directory_id.is_none() || self.directory_id == other.directory_id)
    }
}

impl From<NodeId> for ReplicaKey {
    fn from(id: NodeId) -> Self {
        Self {
            id,
            directory_id: None,
        }
    }
}

impl fmt::Display for ReplicaKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.directory_id {
            Some(directory_id) => write!(formatter, "{} ({directory_id})", self.id),
            None => self.id.fmt(formatter),
        }
    }
}

/// Names a snapshot: the offset after the last record it contains, and that record's epoch
/// (KIP-630).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SnapshotId {
    /// Everything below is in the snapshot.
    pub end_offset: Offset,
    /// Epoch of the last record in it.
    pub epoch: Epoch,
}

impl SnapshotId {
    /// The snapshot that formatting leaves: initial voters, no records. Never sent to a follower.
    pub const BOOTSTRAP: Self = Self {
        end_offset: Offset(0),
        epoch: Epoch(0),
    };
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:020}-{:010}", self.end_offset.0, self.epoch.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_ids_are_written_as_kafka_writes_them() {
        let directory_id = DirectoryId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let text = directory_id.to_string();
        assert_eq!(text, "ASNFZ4mrze8BI0VniavN7w");
        assert_eq!(text.parse(), Ok(directory_id));
        for wrong in [
            "",
            "AAAAAAAAAAAAAAAAAAAAAA",
            "ASNFZ4mrze8BI0VniavN7",
            "n1",
            "ASNFZ4mrze8BI0VniavN7w==",
        ] {
            assert!(wrong.parse::<DirectoryId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_with_a_directory_accepts_only_that_directory() {
        let key = |directory: Option<u128>| ReplicaKey {
            id: NodeId(1),
            directory_id: directory.map(DirectoryId),
        };
        assert!(key(None).accepts(&key(None)) && key(None).accepts(&key(Some(4))));
        assert!(key(Some(4)).accepts(&key(Some(4))));
        assert!(!key(Some(4)).accepts(&key(Some(5))) && !key(Some(4)).accepts(&key(None)));
        assert!(!key(None).accepts(&NodeId(2).into()));
    }

    #[test]
    fn snapshots_are_named_by_exclusive_end_and_epoch() {
        let id = SnapshotId {
            end_offset: Offset(9_900),
            epoch: Epoch(7),
        };
        assert_eq!(id.to_string(), "00000000000000009900-0000000007");
    }
}
