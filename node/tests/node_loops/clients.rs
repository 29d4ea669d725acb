//! Owns what clients ask in these scenarios, and how they read the answers.
//! Never retries anything by itself.

use node::client::{ClientReply, ClientRequest};
use node::ids::{NodeId, Offset};
use node::machine::{Kind, Object, Operation, Stamp};
use serde_json::Value;

use crate::cluster::Cluster;

pub(crate) fn append(key: &str, value: impl Into<Value>) -> ClientRequest {
    ClientRequest::apply(Operation::ListAppend {
        key: key.into(),
        value: value.into(),
    })
}

/// As [`append`], so that copies are recognised.
pub(crate) fn stamped_append(
    client: &str,
    request: u64,
    key: &str,
    value: impl Into<Value>,
) -> ClientRequest {
    ClientRequest::Apply {
        stamp: Some(Stamp {
            client: client.into(),
            request,
        }),
        operation: Operation::ListAppend {
            key: key.into(),
            value: value.into(),
        },
    }
}

pub(crate) fn add_to_set(key: &str, value: impl Into<Value>) -> ClientRequest {
    ClientRequest::apply(Operation::SetAdd {
        key: key.into(),
        value: value.into(),
    })
}

pub(crate) fn count(key: &str, delta: i64) -> ClientRequest {
    ClientRequest::apply(Operation::CounterAdd {
        key: key.into(),
        delta,
    })
}

/// A value of this length that no compression or sharing makes shorter.
pub(crate) fn long_text(length_bytes: usize) -> String {
    "x".repeat(length_bytes)
}

impl Cluster {
    /// Waits for a leader.
    #[track_caller]
    pub(crate) fn await_leader(&mut self) -> NodeId {
        self.run_until("a leader", 60_000, |cluster| cluster.leader().is_some());
        self.leader().unwrap()
    }

    /// Has the leader carry something out that succeeds; where it was.
    #[track_caller]
    pub(crate) fn write(&mut self, request: ClientRequest) -> Offset {
        let leader = self.await_leader();
        match self.call(leader, request) {
            ClientReply::Written { position } => position.offset,
            other => panic!("{other:?}"),
        }
    }

    /// Appends `range` to a list, one by one.
    #[track_caller]
    pub(crate) fn append_all(&mut self, key: &str, range: std::ops::Range<i64>) {
        for value in range {
            self.write(append(key, value));
        }
    }

    /// Fills registers until snapshots are at least this long: longer than what is written or sent
    /// at once.
    #[track_caller]
    pub(crate) fn fill(&mut self, length_bytes: usize) {
        const VALUE_BYTES: usize = 60_000;
        let leader = self.await_leader();
        let filled = (0..length_bytes.div_ceil(VALUE_BYTES)).map(|at| {
            let key = format!("filled-{at}");
            self.ask(leader, ClientRequest::write(key, long_text(VALUE_BYTES)))
        });
        let filled: Vec<_> = filled.collect();
        self.run_until("full registers", 20_000, |cluster| {
            let is_written = |ticket| {
                let reply = cluster.reply(ticket);
                matches!(reply, Some(ClientReply::Written { .. }))
            };
            filled.iter().copied().all(is_written)
        });
    }

    /// What a node holds, without asking anyone else.
    pub(crate) fn local(&mut self, id: NodeId, kind: Kind, key: &str) -> Value {
        let key = key.into();
        let object = Object { kind, key };
        match self.call(id, ClientRequest::LocalRead { object }) {
            ClientReply::Local { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn local_list(&mut self, id: NodeId, key: &str) -> Vec<i64> {
        serde_json::from_value(self.local(id, Kind::List, key)).unwrap()
    }

    #[track_caller]
    pub(crate) fn await_caught_up(&mut self) {
        self.run_until("all caught up", 120_000, Self::is_caught_up);
    }

    /// Has a node take a snapshot of what it has applied.
    #[track_caller]
    pub(crate) fn snapshot(&mut self, id: NodeId) {
        let applied = self.state(id).applied;
        self.ask_for_snapshot(id);
        self.run_until("a snapshot", 1_000, |cluster| {
            let snapshots = cluster.snapshots(id);
            snapshots.last().is_some_and(|id| id.end_offset >= applied)
        });
    }

    /// Holds elections until `id` leads.
    #[track_caller]
    pub(crate) fn elect(&mut self, id: NodeId) {
        for _ in 0..30 {
            let leader = self.await_leader();
            if leader == id {
                return;
            }
            // Whoever misses the leader first asks first, while the others still follow it, and is
            // refused; it grants the vote to the one that asks later.
            for other in self.others(leader) {
                if other != id {
                    self.cut(leader, other);
                }
            }
            self.run_for(500);
            self.isolate(leader);
            self.run_until("another leader", 60_000, |cluster| {
                cluster.leader().is_some_and(|new| new != leader)
            });
            self.heal();
            self.await_caught_up();
        }
        panic!("{id} never won an election");
    }

    /// Nothing was found, and nobody stopped.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        assert_eq!(self.findings.all(), Vec::<&String>::new());
        for id in self.ids() {
            assert_eq!(self.stopped(id), None, "{id}");
        }
    }
}

/// How often each value is in a list.
pub(crate) fn occurrences(list: &[i64]) -> std::collections::BTreeMap<i64, u32> {
    let mut counts = std::collections::BTreeMap::new();
    for value in list {
        *counts.entry(*value).or_default() += 1;
    }
    counts
}
