//! Owns the set of voters: who they are, where they listen, which protocol versions they speak.
//! Never decides which set is in force, or whether one may follow another.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ReplicaKey};

/// Protocol versions that a replica supports (Kafka's `kraft.version` feature range).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl VersionRange {
    /// What this implementation supports: static voters (0) and voters in the log (1).
    pub const SUPPORTED: Self = Self { min: 0, max: 1 };

    /// Whether `version` is in the range.
    pub fn contains(self, version: u16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

/// One voter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Voter {
    /// Who it is.
    #[serde(flatten)]
    pub key: ReplicaKey,
    /// Base URL where it listens, without a trailing slash. `None` where the process is told
    /// elsewhere, as with static voters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Which protocol versions it supports.
    pub versions: VersionRange,
}

impl Voter {
    /// A voter of which only the id is known, as in a static configuration.
    pub fn of_id(id: NodeId) -> Self {
        Self {
            key: id.into(),
            endpoint: None,
            versions: VersionRange::SUPPORTED,
        }
    }
}

/// The voters at one offset of the log. An id appears once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Voter>", into = "Vec<Voter>")]
pub struct VoterSet {
    voters: BTreeMap<NodeId, Voter>,
}

impl VoterSet {
    /// The voter with this id.
    pub fn get(&self, id: NodeId) -> Option<&Voter> {
        self.voters.get(&id)
    }

    /// Whether some voter has this id.
    pub fn contains_id(&self, id: NodeId) -> bool {
        self.voters.contains_key(&id)
    }

    /// Whether this very replica is a voter.
    pub fn contains(&self, key: &ReplicaKey) -> bool {
        self.get(key.id).is_some_and(|voter| voter.key.accepts(key))
    }

    /// All ids, ascending.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.voters.keys().copied()
    }

    /// All voters, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = &Voter> {
        self.voters.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.voters.len()
    }

    /// Whether there are none, as on a replica that has not learned the voters yet.
    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    /// How many voters make a majority.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The set in which `voter` is added, or replaces the one with its id.
    #[must_use]
    pub fn with(&self, voter: Voter) -> Self {
        let mut voters = self.voters.clone();
        voters.insert(voter.key.id, voter);
        Self { voters }
    }

    /// The set without the voter of this id.
    #[must_use]
    pub fn without(&self, id: NodeId) -> Self {
        let mut voters = self.voters.clone();
        voters.remove(&id);
        Self { voters }
    }
}

impl FromIterator<Voter> for VoterSet {
    fn from_iter<I: IntoIterator<Item = Voter>>(voters: I) -> Self {
        let voters = voters
            .into_iter()
            .map(|voter| (voter.key.id, voter))
            .collect();
        Self { voters }
    }
}

impl FromIterator<NodeId> for VoterSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(ids: I) -> Self {
        ids.into_iter().map(Voter::of_id).collect()
    }
}

impl From<Vec<Voter>> for VoterSet {
    fn from(voters: Vec<Voter>) -> Self {
        voters.into_iter().collect()
    }
}

impl From<VoterSet> for Vec<Voter> {
    fn from(set: VoterSet) -> Self {
        set.voters.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DirectoryId;

    fn voter(id: i32, directory: u128) -> Voter {
        Voter {
            key: ReplicaKey {
                id: NodeId(id),
                directory_id: Some(DirectoryId(directory)),
            },
            endpoint: Some(format!("http://127.0.0.1:{id}")),
            versions: VersionRange::SUPPORTED,
        }
    }

    #[test]
    fn a_replica_with_another_directory_is_another_replica() {
        let set: VoterSet = [voter(1, 11), voter(2, 22)].into_iter().collect();
        assert!(set.contains(&voter(1, 11).key) && !set.contains(&voter(1, 12).key));
        assert!(set.contains_id(NodeId(1)) && !set.contains(&NodeId(1).into()));
        let by_id: VoterSet = [NodeId(1)].into_iter().collect();
        assert!(by_id.contains(&voter(1, 12).key));
    }

    #[test]
    fn sets_survive_the_way_through_json() {
        let set: VoterSet = [voter(2, 22), voter(1, 11)].into_iter().collect();
        let text = serde_json::to_string(&set).unwrap();
        assert!(text.starts_with(r#"[{"id":1,"directory_id":""#), "{text}");
        assert_eq!(serde_json::from_str::<VoterSet>(&text).unwrap(), set);
        assert_eq!(set.with(voter(3, 3)).without(NodeId(3)), set);
        assert_eq!((set.majority(), set.with(voter(3, 3)).majority()), (2, 2));
    }
}
