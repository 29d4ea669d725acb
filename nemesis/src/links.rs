//! Owns the network between nodes: one TCP proxy for every ordered pair, with directed cuts.
//! Never loses, changes or reorders a byte; a cut only makes bytes late.
//!
//! A node reaches another through the address of its own link to it, so the proxy knows the sender of
//! every connection. Bytes that the opener of a connection sends obey the link from opener to accepter;
//! bytes that come back obey the link the other way round. That, and not who opened the connection, is
//! what makes a cut directed. Opening a connection travels with its first bytes: it needs only the link
//! towards the accepter, so that under a one-way cut requests still arrive whose answers do not.

mod connection;
mod gate;

use gate::{Gate, Tally};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
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
    addresses: BTreeMap<Pair, SocketAddr>,
    listeners: JoinSet<()>,
}

/// What cutting links did to the traffic on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkEffect {
    /// Bytes that were ready to be delivered while their link was down. What senders could not even
    /// hand over, because of back-pressure, is not counted.
    pub bytes_held: u64,
    /// Reads that those bytes came in.
    pub chunks_held: u64,
    /// Connections of which bytes, the opening or the end was held.
    pub connections_affected: u64,
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

impl LinkEffect {
    /// The entries for the `effect` of the fault in the schedule.
    pub fn to_effect(&self) -> Map<String, Value> {
        [
            ("bytes_held", self.bytes_held),
            ("chunks_held", self.chunks_held),
            ("connections_affected", self.connections_affected),
        ]
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect()
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
            addresses: BTreeMap::new(),
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
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            links
                .addresses
                .insert((from.clone(), to.clone()), listener.local_addr()?);
            let route = Route {
                forward: links.gates[&(from.clone(), to.clone())].clone(),
                backward: links.gates[&(to.clone(), from.clone())].clone(),
                target: links.targets[to].clone(),
            };
            links
                .listeners
                .spawn(serve(listener, route, next_connection.clone()));
        }
        Ok(links)
    }

    /// The address at which `from` reaches `to`. It stays the same when `to` moves to another port.
    pub fn address(&self, from: &str, to: &str) -> Result<SocketAddr, LinkError> {
        let pair = (from.to_owned(), to.to_owned());
        match self.addresses.get(&pair) {
            Some(address) => Ok(*address),
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
    pub fn cut(&self, fault_id: u64, links: &[(String, String)]) -> Result<(), LinkError> {
        let gates: Vec<&Arc<Gate>> = links
            .iter()
            .map(|pair| self.gates.get(pair).ok_or_else(|| unknown(pair.clone())))
            .collect::<Result<_, _>>()?;
        for gate in gates {
            gate.cut(fault_id);
        }
        Ok(())
    }

    /// Ends a fault and returns what it did. Links that no other fault has cut deliver what they held.
    pub fn heal(&self, fault_id: u64) -> LinkEffect {
        let mut total = Tally::default();
        for gate in self.gates.values() {
            if let Some(tally) = gate.heal(fault_id) {
                total.merge(tally);
            }
        }
        total.effect()
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

/// Accepts connections until aborted. The connections are its own, so that they end with it.
async fn serve(listener: TcpListener, route: Route, next_connection: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((opener, _)) => {
                    let id = next_connection.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(connection::run(id, opener, route.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn unknown((from, to): Pair) -> LinkError {
    LinkError::UnknownLink { from, to }
}

/// A panic elsewhere leaves nothing half-done under these locks, so a poisoned one is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
