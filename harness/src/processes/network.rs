//! Owns the network of a run: proxies on one loopback interface, or a switch between network namespaces.
//! Never decides what happens to it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use nemesis::fault::{CLIENTS, Shaping, Style};
use nemesis::links::{LinkError, Links};
use nemesis::namespace;
use nemesis::switch::{Capture, Device, FILE_MAX_BYTES, Switch, port_address};
use results::manifest::Network as Kind;
use results::store::RunFolder;
use serde_json::{Map, Value};

use super::spawner::Spawner;

/// Where every node listens that has an address of its own.
const PORT: u16 = 9_000;
/// Last byte of the clients' address; nodes have their ids.
const CLIENTS_PORT: u8 = 254;
/// What carries bytes between nodes.
#[derive(Debug)]
pub(super) enum Network {
    /// One proxy for every ordered pair.
    Proxies(Links),
    /// A packet switch.
    Packets(Switch),
}

/// A network, and what nodes need to live in it.
#[derive(Debug)]
pub(super) struct Premises {
    pub(super) network: Network,
    /// By node: who starts its processes.
    pub(super) spawners: BTreeMap<String, Spawner>,
}

/// Makes the process ready for runs with such a network. To be called before it has threads.
///
/// # Errors
/// When this machine does not allow it, with the reason.
pub fn prepare(kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Proxy => Ok(()),
        Kind::Namespace => namespace::enter().map_err(|error| error.to_string()),
    }
}

/// Tries, in this process, all that a network of namespaces needs.
///
/// # Errors
/// The reason for people.
pub fn try_namespaces() -> Result<(), String> {
    prepare(Kind::Namespace)?;
    let (_, device) = enter_with_device(port_address(1)).map_err(|error| error.to_string())?;
    Switch::start(vec![("n1".into(), device)], None).map_err(|error| error.to_string())?;
    Ok(())
}

impl Premises {
    /// Starts a network for these nodes, in the order of their ids, with links of clients as well if those are
    /// asked for. What packets there are is captured in the run folder.
    ///
    /// # Errors
    /// When proxies, namespaces or devices cannot be had.
    pub(super) async fn start(
        kind: Kind,
        names: &[String],
        has_client_links: bool,
        folder: &RunFolder,
    ) -> Result<Self> {
        match kind {
            Kind::Proxy => {
                let mut ends = names.to_vec();
                ends.extend(has_client_links.then(|| CLIENTS.to_owned()));
                let links = Links::start(&ends)
                    .await
                    .context("cannot start the proxies")?;
                let spawner = Spawner::start().context("cannot start a thread")?;
                let spawners = names.iter().map(|name| (name.clone(), spawner.clone()));
                Ok(Self {
                    network: Network::Proxies(links),
                    spawners: spawners.collect(),
                })
            }
            Kind::Namespace => Self::start_switch(names, folder),
        }
    }

    fn start_switch(names: &[String], folder: &RunFolder) -> Result<Self> {
        prepare(Kind::Namespace).map_err(anyhow::Error::msg)?;
        let device = "cannot create a network device for";
        let clients = Device::create(port_address(CLIENTS_PORT));
        let clients = clients.with_context(|| format!("{device} the clients"))?;
        let mut devices = vec![(CLIENTS.to_owned(), clients)];
        let mut spawners = BTreeMap::new();
        for (id, name) in (1u8..).zip(names) {
            let (spawner, device) =
                enter_with_device(port_address(id)).with_context(|| format!("{device} {name}"))?;
            devices.push((name.clone(), device));
            spawners.insert(name.clone(), spawner);
        }
        let capture = Capture::create(&folder.capture_path(), FILE_MAX_BYTES);
        let capture = capture.context("cannot write down packets")?;
        let switch = Switch::start(devices, Some(capture)).context("cannot start the switch")?;
        Ok(Self {
            network: Network::Packets(switch),
            spawners,
        })
    }
}

/// Starts a thread in a network namespace of its own. Its device goes to the switch; what it starts lives in
/// the namespace, which is gone with the last of them.
fn enter_with_device(address: Ipv4Addr) -> io::Result<(Spawner, Device)> {
    Spawner::start_after(move || {
        namespace::enter_alone().map_err(io::Error::other)?;
        Device::create(address)
    })
}

impl Network {
    /// Where a node with this id is to listen.
    pub(super) fn listen_address(&self, id: u32) -> SocketAddr {
        match self {
            Self::Proxies(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            Self::Packets(_) => node_address(id),
        }
    }

    /// The address at which `from` reaches `to`, whose id is `to_id`.
    ///
    /// # Errors
    /// When there is no such link.
    pub(super) fn address(
        &self,
        from: &str,
        to: &str,
        to_id: u32,
    ) -> Result<SocketAddr, LinkError> {
        match self {
            Self::Proxies(links) => links.address(from, to),
            Self::Packets(_) => Ok(node_address(to_id)),
        }
    }

    /// The address at which clients reach a node that listens at `address`.
    pub(super) fn address_for_clients(&self, node: &str, address: SocketAddr) -> SocketAddr {
        match self {
            // Where clients have no links of their own, nothing is between them and the nodes.
            Self::Proxies(links) => links.address(CLIENTS, node).unwrap_or(address),
            Self::Packets(_) => address,
        }
    }

    /// Says where a node listens from now on, or that it does not. Names come from the list that the network
    /// was started with, so it knows them.
    pub(super) fn set_target(&self, node: &str, address: Option<SocketAddr>) {
        let Self::Proxies(links) = self else {
            // The kernel in a node's namespace knows by itself whether somebody listens.
            return;
        };
        let _ = match address {
            Some(address) => links.set_target(node, address),
            None => links.clear_target(node),
        };
    }

    /// Cuts links; of how many it is known that they refuse new connections.
    ///
    /// # Errors
    /// When there is no such link, or it cannot be cut in this style.
    pub(super) async fn cut_in_style(
        &self,
        fault_id: u64,
        links: &[(String, String)],
        style: Style,
    ) -> Result<u64, LinkError> {
        match self {
            Self::Proxies(proxies) => proxies.cut_in_style(fault_id, links, style).await,
            Self::Packets(switch) => switch.cut_in_style(fault_id, links, style),
        }
    }

    /// Shapes links. `seed` is that of the run.
    ///
    /// # Errors
    /// When there is no such link.
    pub(super) fn shape(
        &self,
        fault_id: u64,
        links: &[(String, String)],
        shaping: &Shaping,
        seed: u64,
    ) -> Result<(), LinkError> {
        match self {
            Self::Proxies(proxies) => proxies.shape(fault_id, links, shaping, seed),
            Self::Packets(switch) => switch.shape(fault_id, links, shaping, seed),
        }
    }

    /// What there is to tell people about it at the end of a run.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self::Packets(switch) = self else {
            return Vec::new();
        };
        let count = switch.capture_count();
        let mut notes = vec![format!(
            "network.pcap holds {} packets",
            count.written_count
        )];
        if count.left_out_count > 0 {
            notes.push(format!(
                "network.pcap was full at {} MiB; the last {} packets are not in it",
                FILE_MAX_BYTES >> 20,
                count.left_out_count
            ));
        }
        if switch.refused_count() > 0 {
            let refused = switch.refused_count();
            notes.push(format!("network devices refused {refused} packets"));
        }
        notes
    }

    /// Ends a fault, and returns what it did and what is still wrong.
    pub(super) async fn heal_and_verify(&self, fault_id: u64) -> (Map<String, Value>, Vec<String>) {
        match self {
            Self::Proxies(links) => {
                let (effect, problems) = links.heal_and_verify(fault_id).await;
                (effect.to_effect(), problems)
            }
            Self::Packets(switch) => {
                let (effect, problems) = switch.heal_and_verify(fault_id).await;
                (effect.to_effect(), problems)
            }
        }
    }
}

/// Ids are those of a cluster of a few nodes, as the command line makes sure.
fn node_address(id: u32) -> SocketAddr {
    SocketAddr::from((port_address(id as u8), PORT))
}
