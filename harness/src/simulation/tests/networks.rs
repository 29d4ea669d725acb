//! Owns the simulated network and that of real proxies, as the suite for all networks drives them.
//! Never asks anything of them; the suite does, also of packets in namespaces.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the real network has real time, and only the suite compares it with the simulated one"
)]

#[path = "../../../../nemesis/tests/network_suite/mod.rs"]
mod network_suite;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nemesis::fault::{Shaping, Style};
use nemesis::links::Links;
use node::message::{DescribeQuorumRequest, Request};
use node::raft::Correlation;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::options;
use crate::simulation::events::{Content, Parcel};
use crate::simulation::network::{Network, NetworkProfile};
use crate::simulation::simulated_node::{CLUSTER_ID, Life};
use crate::simulation::world::{SimulatedWorld, Witness};
use crate::world::World as _;
use network_suite::{Link, SUITE, TestNetwork};

const MS: u64 = 1_000_000;

/// The simulated one: nodes that are down, between which requests go.
struct Simulated(SimulatedWorld);

impl Simulated {
    fn new(seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let witness = Witness::Trace(Vec::new());
        let mut world = SimulatedWorld::new(seed, &options(3), None, false, witness, stop);
        for node in &mut world.nodes {
            node.life = Life::Down;
        }
        let tidy = NetworkProfile {
            slowness: 100,
            lost: 0,
            reset: 0,
            doubled: 0,
        };
        world.network = Network::new(seed, 3, tidy);
        Self(world)
    }
}

impl TestNetwork for Simulated {
    fn send(&mut self, (from, to): Link, number: u64) {
        let request = DescribeQuorumRequest {
            cluster_id: CLUSTER_ID.to_owned(),
        };
        let parcel = Parcel {
            incarnation: 1,
            correlation: Correlation(number),
            content: Content::Request(Box::new(Request::DescribeQuorum(request))),
        };
        self.0.send(from, to, parcel);
    }

    fn cut(&mut self, fault: u64, links: &[Link], style: Style) {
        for link in links {
            self.0.cut_link(fault, *link, style);
        }
    }

    fn shape(&mut self, fault: u64, links: &[Link], shaping: &Shaping) {
        for link in links {
            self.0.shape_link(fault, *link, shaping);
        }
    }

    fn heal(&mut self, fault: u64) {
        self.0.heal_links(fault);
    }

    fn pass(&mut self, ms: u64) {
        let until_ns = self.0.now_ns + ms * MS;
        while self.0.now_ns < until_ns {
            self.0.next_event(until_ns);
        }
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ns / MS
    }

    fn arrived(&self) -> Vec<(u64, u64)> {
        let arrived = self.0.arrived_requests.iter();
        arrived
            .map(|(at_ns, number)| (at_ns / MS, *number))
            .collect()
    }
}

/// Messages that have arrived, with when.
type Arrived = Arc<Mutex<Vec<(Instant, u64)>>>;

/// That of real proxies: a connection for every link that is used, and eight bytes for every message.
struct Proxies {
    runtime: Runtime,
    links: Links,
    names: Vec<String>,
    connections: BTreeMap<Link, TcpStream>,
    arrived: Arrived,
    begun: Instant,
}

impl Proxies {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let names: Vec<String> = (1..=3).map(|number| format!("n{number}")).collect();
        let arrived = Arrived::default();
        let links = runtime.block_on(async {
            let links = Links::start(&names).await.unwrap();
            for name in &names {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                links
                    .set_target(name, listener.local_addr().unwrap())
                    .unwrap();
                tokio::spawn(listen(listener, Arc::clone(&arrived)));
            }
            links
        });
        Self {
            runtime,
            links,
            names,
            connections: BTreeMap::new(),
            arrived,
            begun: Instant::now(),
        }
    }

    fn pairs(&self, links: &[Link]) -> Vec<(String, String)> {
        let name = |node: usize| self.names[node].clone();
        links
            .iter()
            .map(|(from, to)| (name(*from), name(*to)))
            .collect()
    }
}

async fn listen(listener: TcpListener, arrived: Arrived) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let arrived = Arc::clone(&arrived);
        tokio::spawn(async move {
            while let Ok(number) = stream.read_u64().await {
                arrived.lock().unwrap().push((Instant::now(), number));
            }
        });
    }
}

impl TestNetwork for Proxies {
    fn send(&mut self, link: Link, number: u64) {
        let (from, to) = (&self.names[link.0], &self.names[link.1]);
        let address = self.links.address(from, to).unwrap();
        let known = self.connections.remove(&link);
        let connection = self.runtime.block_on(async {
            // Nobody ever sends anything back, so whatever can be read is the end of the connection.
            let known = known.filter(|it| {
                let read = it.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            });
            let mut stream = match known {
                Some(stream) => stream,
                None => TcpStream::connect(address).await.ok()?,
            };
            // What a broken connection takes is lost, as it is for everybody.
            stream.write_u64(number).await.ok()?;
            Some(stream)
        });
        self.connections.extend(connection.map(|it| (link, it)));
    }

    fn cut(&mut self, fault: u64, links: &[Link], style: Style) {
        let pairs = self.pairs(links);
        let cut = self.links.cut_in_style(fault, &pairs, style);
        self.runtime.block_on(cut).unwrap();
    }

    fn shape(&mut self, fault: u64, links: &[Link], shaping: &Shaping) {
        self.links
            .shape(fault, &self.pairs(links), shaping, 1)
            .unwrap();
    }

    fn heal(&mut self, fault: u64) {
        let (_, problems) = self.runtime.block_on(self.links.heal_and_verify(fault));
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn pass(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn arrived(&self) -> Vec<(u64, u64)> {
        let arrived = self.arrived.lock().unwrap();
        let ms = |at: &Instant| at.duration_since(self.begun).as_millis() as u64;
        arrived
            .iter()
            .map(|(at, number)| (ms(at), *number))
            .collect()
    }
}

#[test]
fn the_simulated_network_does_what_the_suite_demands() {
    for check in SUITE {
        for seed in 0..20 {
            check(&mut Simulated::new(seed));
        }
    }
}

#[test]
fn the_network_of_real_proxies_does_what_the_suite_demands() {
    for check in SUITE {
        check(&mut Proxies::new());
    }
}
