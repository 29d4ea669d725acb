//! Owns the listener of one ordered pair of nodes: where connections are taken in, unless a fault refuses them.
//! Never loses its port, and never carries a connection itself.

use super::{ACCEPT_RETRY, CONNECTIONS_MAX, Route, connection};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many connections the system keeps before they are taken in.
const BACKLOG: u32 = 1024;
/// How long a listener may take to go or to come back.
const MOVE_LIMIT: Duration = Duration::from_secs(5);

/// The place where connections of one ordered pair come in.
#[derive(Debug)]
pub(super) struct Door {
    address: SocketAddr,
    /// The faults for which it is shut.
    refusing: watch::Sender<BTreeSet<u64>>,
    listening: watch::Receiver<bool>,
    /// Keeps the port from others while nobody listens on it.
    _port: TcpSocket,
}

/// The other side of a door, for the task that stands behind it.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    address: SocketAddr,
    listener: TcpListener,
    refusing: watch::Receiver<BTreeSet<u64>>,
    listening: watch::Sender<bool>,
}

impl Door {
    /// An open door on a free port.
    pub(super) fn open() -> io::Result<(Self, Doorkeeper)> {
        let port = socket((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = port.local_addr()?;
        let refusing = watch::Sender::new(BTreeSet::new());
        let listening = watch::Sender::new(true);
        let keeper = Doorkeeper {
            address,
            listener: listen(address)?,
            refusing: refusing.subscribe(),
            listening: listening.clone(),
        };
        let door = Self {
            address,
            refusing,
            listening: listening.subscribe(),
            _port: port,
        };
        Ok((door, keeper))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shuts the door in the name of a fault. When this returns `true`, connections are refused, as an
    /// attempt has shown.
    pub(super) async fn shut(&self, fault_id: u64) -> bool {
        self.refusing
            .send_if_modified(|faults| faults.insert(fault_id));
        if !self.wait_until(false).await {
            return false;
        }
        let attempt = TcpStream::connect(self.address).await;
        attempt.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Takes back what a fault did. Whether connections are taken in again, unless for another fault.
    pub(super) async fn reopen(&self, fault_id: u64) -> bool {
        self.refusing
            .send_if_modified(|faults| faults.remove(&fault_id));
        !self.refusing.borrow().is_empty() || self.wait_until(true).await
    }

    async fn wait_until(&self, listening: bool) -> bool {
        let mut news = self.listening.clone();
        let arrived = news.wait_for(|now| *now == listening);
        let arrived = tokio::time::timeout(MOVE_LIMIT, arrived).await;
        matches!(arrived, Ok(Ok(_)))
    }
}

impl Doorkeeper {
    /// Takes in connections until aborted. The connections are its own, so that they end with it.
    pub(super) async fn serve(mut self, route: Route, next_connection: Arc<AtomicU64>) {
        let mut connections = JoinSet::new();
        let mut listener = Some(self.listener);
        loop {
            let refuses = !self.refusing.borrow_and_update().is_empty();
            if refuses {
                listener = None;
                self.listening.send_replace(false);
            } else if listener.is_none() {
                match listen(self.address) {
                    Ok(again) => {
                        listener = Some(again);
                        self.listening.send_replace(true);
                    }
                    Err(_) => {
                        tokio::time::sleep(ACCEPT_RETRY).await;
                        continue;
                    }
                }
            }
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = accepted, if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((opener, _)) => {
                        let id = next_connection.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(connection::run(id, opener, route.clone()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
                },
                _ = connections.join_next(), if !connections.is_empty() => {}
                changed = self.refusing.changed() => if changed.is_err() {
                    // The door is gone, and with it everything behind it.
                    return;
                },
            }
        }
    }
}

/// A socket on a port that a listener may share.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    socket(address)?.listen(BACKLOG)
}
