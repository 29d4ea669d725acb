//! Owns the network between nodes: one TCP proxy for every ordered pair, with directed cuts.
//! Never changes, repeats or reorders a byte; what a fault does not reset with its connection arrives.
//!
//! A node reaches another through the address of its own link to it, so the proxy knows the sender of
//! every connection. Bytes that the opener of a connection sends obey the link from opener to accepter;
//! bytes that come back obey the link the other way round. That, and not who opened the connection, is
//! what makes a cut directed. Opening a connection travels with its first bytes: it needs only the link
//! towards the accepter, so that under a one-way cut requests still arrive whose answers do not.
//!
//! TCP knows no lost, doubled or overtaken message. A reset breaks the connection with all that was on its way;
//! of a delayed link, bytes of one connection keep their order.

mod connection;
mod door;
mod gate;
mod tally;

use crate::fault::{Shaping, Style};
use crate::traffic::ShapedLink;
use door::Door;
use gate::Gate;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use tally::LinkEffect;
use tally::Tally;
use tokio::task::JoinSet;

/// Most connections that one ordered pair keeps open. Further ones wait in the listener's backlog, as
/// they would for a host that does not answer; a long cut must not use up the file descriptors.
pub const CONNECTIONS_MAX: usize = 64;
/// Pause after a failed accept, which is nearly always a shortage of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// The links between all nodes. Dropping it closes every listener and every connection.
#[derive(Debug)]
pub struct Links {
    targets: BTreeMap<String, Arc<Target>>,
    gates: BTreeMap<Pair, Arc<Gate>>,
    doors: BTreeMap<Pair, Door>,
    listeners: JoinSet<()>,
}

/// A name that the links do not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not one of the nodes that the links were started for.
    #[error("there is no node \"{0}\" among the links")]
    UnknownNode(String),
    /// Not an ordered pair of two different nodes.
    #[error("there is no link from \"{from}\" to \"{to}\"")]
    UnknownLink {
        /// Sending node.
        from: String,
        /// Receiving node.
        to: String,
    },
    /// A proxy has bytes and connections only.
    #[error("a proxy sees no packets that it could drop, lose, double, reorder or corrupt")]
    NoPackets,
}

type Pair = (String, String);

/// Where a node listens at the moment, if it does.
#[derive(Debug, Default)]
struct Target(Mutex<Option<SocketAddr>>);

impl Target {
    fn get(&self) -> Option<SocketAddr> {
        *lock(&self.0)
    }

    fn set(&self, address: Option<SocketAddr>) {
        *lock(&self.0) = address;
    }
}

impl Links {
    /// Opens a listener on the loopback interface for every ordered pair of nodes.
    ///
    /// Must be called within a tokio runtime with I/O and time enabled; the proxies run on it. A runtime
    /// of their own keeps a busy workload from delaying the traffic between nodes.
    pub async fn start(nodes: &[String]) -> io::Result<Self> {
        let mut links = Self {
            targets: BTreeMap::new(),
            gates: BTreeMap::new(),
            doors: BTreeMap::new(),
            listeners: JoinSet::new(),
        };
        for node in nodes {
            if links.targets.insert(node.clone(), Arc::default()).is_some() {
                let message = format!("the node {node} is given twice");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        for from in nodes {
            for to in nodes.iter().filter(|to| *to != from) {
                links
                    .gates
                    .insert((from.clone(), to.clone()), Arc::default());
            }
        }
        let next_connection = Arc::new(AtomicU64::new(0));
        for (from, to) in links.gates.keys() {
            let (door, keeper) = Door::open()?;
            links.doors.insert((from.clone(), to.clone()), door);
            let route = Route {
                forward: links.gates[&(from.clone(), to.clone())].clone(),
                backward: links.gates[&(to.clone(), from.clone())].clone(),
                target: links.targets[to].clone(),
            };
            links
                .listeners
                .spawn(keeper.serve(route, next_connection.clone()));
        }
        Ok(links)
    }

    /// The address at which `from` reaches `to`. It stays the same when `to` moves to another port.
    pub fn address(&self, from: &str, to: &str) -> Result<SocketAddr, LinkError> {
        let pair = (from.to_owned(), to.to_owned());
        match self.doors.get(&pair) {
            Some(door) => Ok(door.address()),
            None => Err(unknown(pair)),
        }
    }

    /// Says where a node listens from now on. Open connections stay where they are.
    pub fn set_target(&self, node: &str, address: SocketAddr) -> Result<(), LinkError> {
        self.target(node)?.set(Some(address));
        Ok(())
    }

    /// Says that a node listens nowhere: new connections to it are closed at once. To be called when a
    /// node dies, before the system gives its port to somebody else.
    pub fn clear_target(&self, node: &str) -> Result<(), LinkError> {
        self.target(node)?.set(None);
        Ok(())
    }

    /// Takes directed links `(from, to)` down in the name of a fault. A link is down while any fault has
    /// it cut. When this returns, no further byte passes.
    pub fn cut(&self, fault_id: u64, links: &[Pair]) -> Result<(), LinkError> {
        for (gate, _) in self.gates_of(links)? {
            gate.cut(fault_id);
        }
        Ok(())
    }

    /// As [`Self::cut`], and breaks every connection between the two nodes of each link. Until the fault is
    /// healed, what wants to pass loses its connection, too, as does every new connection over the link.
    pub fn cut_with_resets(&self, fault_id: u64, links: &[Pair]) -> Result<(), LinkError> {
        for (gate, back) in self.gates_of(links)? {
            gate.cut_with_resets(fault_id, back);
        }
        Ok(())
    }

    /// As [`Self::cut`], and refuses new connections over the links. Returns of how many links that was
    /// verified, by an attempt.
    pub async fn cut_and_refuse(&self, fault_id: u64, links: &[Pair]) -> Result<u64, LinkError> {
        self.cut(fault_id, links)?;
        let mut verified_count = 0;
        for pair in links {
            if let Some(door) = self.doors.get(pair) {
                verified_count += u64::from(door.shut(fault_id).await);
            }
        }
        Ok(verified_count)
    }

    /// Cuts links in one of the ways that streams of bytes know; of how many links it was verified that they refuse.
    pub async fn cut_in_style(
        &self,
        fault_id: u64,
        links: &[Pair],
        style: Style,
    ) -> Result<u64, LinkError> {
        match style {
            Style::Hold => self.cut(fault_id, links).map(|()| 0),
            Style::Reset => self.cut_with_resets(fault_id, links).map(|()| 0),
            Style::Refuse => self.cut_and_refuse(fault_id, links).await,
            Style::Drop => Err(LinkError::NoPackets),
        }
    }

    /// Shapes directed links in the name of a fault, from the next byte that is read. `seed` is that of the
    /// run. What is read in one go counts as a message.
    ///
    /// # Errors
    /// When there is no such link, or the shape has a meaning for packets only: then nothing is shaped.
    pub fn shape(
        &self,
        fault_id: u64,
        links: &[Pair],
        shaping: &Shaping,
        seed: u64,
    ) -> Result<(), LinkError> {
        if shaping.needs_packets() {
            return Err(LinkError::NoPackets);
        }
        for ((gate, _), (from, to)) in self.gates_of(links)?.into_iter().zip(links) {
            let shaped = ShapedLink::new(seed, fault_id, from, to, shaping.clone());
            gate.shape(fault_id, shaped);
        }
        Ok(())
    }

    /// The gates of links, each with that of the other direction.
    fn gates_of(&self, links: &[Pair]) -> Result<Vec<(&Gate, &Gate)>, LinkError> {
        let gate = |pair: Pair| match self.gates.get(&pair) {
            Some(gate) => Ok(gate.as_ref()),
            None => Err(unknown(pair)),
        };
        let gates = links.iter().map(|(from, to)| {
            let there = gate((from.clone(), to.clone()))?;
            Ok((there, gate((to.clone(), from.clone()))?))
        });
        gates.collect()
    }

    /// Ends a fault and returns what it did. Links that no other fault has cut deliver what they held. New
    /// connections that the fault refused are refused until [`Self::heal_and_verify`].
    pub fn heal(&self, fault_id: u64) -> LinkEffect {
        let mut total = Tally::default();
        for gate in self.gates.values() {
            if let Some(tally) = gate.heal(fault_id) {
                total.merge(tally);
            }
        }
        total.effect()
    }

    /// As [`Self::heal`], and waits until connections are taken in again. The second value tells people
    /// what is still not as it should be.
    pub async fn heal_and_verify(&self, fault_id: u64) -> (LinkEffect, Vec<String>) {
        let mut problems = Vec::new();
        for ((from, to), door) in &self.doors {
            if !door.reopen(fault_id).await {
                problems.push(format!("{from} still cannot connect to {to}"));
            }
        }
        (self.heal(fault_id), problems)
    }

    /// Whether the link from `from` to `to` is down.
    pub fn is_cut(&self, from: &str, to: &str) -> Result<bool, LinkError> {
        let pair = (from.to_owned(), to.to_owned());
        match self.gates.get(&pair) {
            Some(gate) => Ok(gate.is_cut()),
            None => Err(unknown(pair)),
        }
    }

    /// Closes every listener and every connection, and waits until that is done.
    pub async fn shutdown(mut self) {
        self.listeners.shutdown().await;
    }

    fn target(&self, node: &str) -> Result<&Target, LinkError> {
        match self.targets.get(node) {
            Some(target) => Ok(target),
            None => Err(LinkError::UnknownNode(node.to_owned())),
        }
    }
}

/// What a connection through one listener needs to know.
#[derive(Debug, Clone)]
struct Route {
    forward: Arc<Gate>,
    backward: Arc<Gate>,
    target: Arc<Target>,
}

fn unknown((from, to): Pair) -> LinkError {
    LinkError::UnknownLink { from, to }
}

/// A panic elsewhere leaves nothing half-done under these locks, so a poisoned one is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
