//! Owns where replicas listen, as people and programs are told: routes, what was learned, then what was hinted.
//! Never connects to any of them.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::ids::NodeId;
use crate::raft::QuorumDescription;

/// Base URLs of replicas, without trailing slashes.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Right, whatever is learned: where this node itself is, and what it was told to reach others at.
    fixed: BTreeMap<NodeId, String>,
    /// Where this process was told to look first.
    hints: BTreeMap<NodeId, String>,
    /// From the voters in the log, and what was heard besides.
    learned: RwLock<BTreeMap<NodeId, String>>,
}

impl Addresses {
    pub(crate) fn new(fixed: BTreeMap<NodeId, String>, hints: BTreeMap<NodeId, String>) -> Self {
        Self {
            fixed,
            hints,
            learned: RwLock::default(),
        }
    }

    /// Takes over what the voters in force say of themselves, and what was heard, which is newer.
    pub(crate) fn learn(&self, quorum: &QuorumDescription, heard: BTreeMap<NodeId, String>) {
        let replicas = quorum.voters.iter().chain(&quorum.observers);
        let learned = replicas
            .filter_map(|replica| Some((replica.id, replica.endpoint.clone()?)))
            .chain(heard)
            .collect();
        *self.learned.write().unwrap_or_else(PoisonError::into_inner) = learned;
    }

    /// Where one replica listens, if that is known.
    pub(crate) fn url_of(&self, id: NodeId) -> Option<String> {
        if let Some(url) = self.fixed.get(&id) {
            return Some(url.clone());
        }
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        learned.get(&id).or_else(|| self.hints.get(&id)).cloned()
    }

    /// All that are known.
    pub(crate) fn all(&self) -> BTreeMap<NodeId, String> {
        let mut all = self.hints.clone();
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(learned.clone());
        all.extend(self.fixed.clone());
        all
    }
}
