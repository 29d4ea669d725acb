//! Owns one suite of what faults do to links, for the simulated network and for that of real proxies.
//! Never asks more of one than of the other; that a real machine takes its time is allowed for.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the real network has real time, and only the suite compares it with the simulated one"
)]

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

const MS: u64 = 1_000_000;
/// Far longer than anything takes, so that only a hang reaches it.
const HANG_MS: u64 = 30_000;
/// Long enough that what was going to arrive would have.
const QUIET_MS: u64 = 200;

/// A directed link, by the positions of its nodes.
type Link = (usize, usize);

/// A network of three nodes, and numbered messages on it.
trait TestNetwork {
    fn send(&mut self, link: Link, number: u64);
    fn cut(&mut self, fault: u64, links: &[Link], style: Style);
    fn shape(&mut self, fault: u64, links: &[Link], shaping: &Shaping);
    fn heal(&mut self, fault: u64);
    fn pass(&mut self, ms: u64);
    fn now_ms(&self) -> u64;
    /// Every message that has arrived, with when, in order.
    fn arrived(&self) -> Vec<(u64, u64)>;

    /// When each of these messages arrived, once all have.
    fn await_all(&mut self, numbers: &[u64]) -> Vec<u64> {
        let limit_ms = self.now_ms() + HANG_MS;
        loop {
            let arrived = self.arrived();
            let when = |number: &u64| {
                let found = arrived.iter().find(|(_, it)| it == number);
                found.map(|(at_ms, _)| *at_ms)
            };
            if let Some(times) = numbers.iter().map(when).collect::<Option<Vec<u64>>>() {
                return times;
            }
            assert!(self.now_ms() < limit_ms, "of {numbers:?} only {arrived:?}");
            self.pass(10);
        }
    }

    fn has(&self, numbers: &[u64]) -> bool {
        let arrived = self.arrived();
        arrived.iter().any(|(_, number)| numbers.contains(number))
    }
}

fn a_cut_holds_one_direction_until_its_last_fault_is_healed(network: &mut dyn TestNetwork) {
    network.send((0, 1), 1);
    network.send((1, 0), 2);
    network.await_all(&[1, 2]);
    let held: Vec<u64> = (10..15).collect();
    network.cut(7, &[(0, 1)], Style::Hold);
    for number in &held {
        network.send((0, 1), *number);
        // On a link of its own, each message takes its own time.
        network.pass(30);
    }
    network.send((1, 0), 20);
    network.send((0, 2), 21);
    network.await_all(&[20, 21]);
    network.cut(8, &[(0, 1)], Style::Hold);
    network.heal(7);
    network.pass(QUIET_MS);
    assert!(!network.has(&held), "{:?}", network.arrived());
    let healed_ms = network.now_ms();
    network.heal(8);
    let times = network.await_all(&held);
    assert!(
        times.iter().all(|at_ms| *at_ms >= healed_ms),
        "{times:?} {healed_ms}"
    );
    let arrived = network.arrived().into_iter().map(|(_, number)| number);
    let in_order: Vec<u64> = arrived.filter(|number| held.contains(number)).collect();
    assert_eq!(in_order, held, "late, but in order, and each once");
    network.send((0, 1), 30);
    network.await_all(&[30]);
}

fn a_reset_loses_what_is_sent_meanwhile(network: &mut dyn TestNetwork) {
    network.send((0, 1), 1);
    network.await_all(&[1]);
    network.cut(9, &[(0, 1), (1, 0)], Style::Reset);
    network.pass(30);
    network.send((0, 1), 40);
    network.send((0, 2), 42);
    network.await_all(&[42]);
    network.pass(QUIET_MS);
    network.heal(9);
    network.pass(QUIET_MS);
    network.send((0, 1), 41);
    network.await_all(&[41]);
    assert!(!network.has(&[40]), "{:?}", network.arrived());
}

fn a_delay_is_at_least_as_long_as_asked_for(network: &mut dyn TestNetwork) {
    let shaping = Shaping {
        delay_ms: 150,
        ..Shaping::default()
    };
    network.send((0, 1), 1);
    network.await_all(&[1]);
    network.shape(10, &[(0, 1)], &shaping);
    let sent_ms = network.now_ms();
    network.send((0, 1), 50);
    let delayed_ms = network.await_all(&[50])[0] - sent_ms;
    assert!(delayed_ms >= 150, "{delayed_ms}");
    network.heal(10);
    network.send((0, 1), 51);
    network.await_all(&[51]);
}

const SUITE: [fn(&mut dyn TestNetwork); 3] = [
    a_cut_holds_one_direction_until_its_last_fault_is_healed,
    a_reset_loses_what_is_sent_meanwhile,
    a_delay_is_at_least_as_long_as_asked_for,
];

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
