//! Owns the random scenario: clients, crashes, lost disks and snapshots, all drawn from one seed.
//! Never loses a disk while anyone lacks anything: what no majority has is nobody's to keep.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use node::client::{ClientReply, ClientRequest};
use node::ids::NodeId;
use node::machine::Kind;
use node::mutants::Bug;
use node::node_loop::{NodeOptions, SnapshotOptions};
use node::raft::Ticket;
use node::storage::StorageOptions;
use node::trace::TraceEvent;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::bench::MS;
use crate::clients::{add_to_set, append, count, occurrences, stamped_append};
use crate::cluster::{Cluster, Setup};

const CLIENT_COUNT: u64 = 3;
const STEP_COUNT: u32 = 250;

/// What is done without a stamp, once.
#[derive(Debug, Clone, Copy)]
enum Plain {
    Append(i64),
    Add(i64),
    Count,
    Write,
}

/// A client that repeats a request until it knows what became of it.
#[derive(Debug, Default)]
struct Stamping {
    request: u64,
    value: i64,
    ticket: Option<Ticket>,
}

struct Soak {
    cluster: Cluster,
    random: ChaCha8Rng,
    next_value: i64,
    plain: BTreeMap<Ticket, Plain>,
    stamping: Vec<Stamping>,
    /// Values whose append by stamp was acknowledged.
    stamped: Vec<i64>,
    crash_count: u32,
}

/// How many snapshots were taken, and how many of a leader's were installed.
#[derive(Debug, Default)]
struct Counts {
    frozen: usize,
    installed: usize,
    advanced: usize,
}

impl Soak {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let options = NodeOptions {
            snapshots: SnapshotOptions {
                bytes_between: 3_000,
                interval_ns: 20_000 * MS,
                retention_bytes: 6_000,
                retention_ms: 60_000,
            },
            storage: StorageOptions {
                segment_bytes: 1_000,
                cache_bytes: 500,
                ..StorageOptions::default()
            },
            ..NodeOptions::default()
        };
        Self {
            cluster: Cluster::new(Setup {
                options,
                seed,
                bug,
                ..Setup::of(3)
            }),
            random: ChaCha8Rng::seed_from_u64(seed),
            next_value: 0,
            plain: BTreeMap::new(),
            stamping: (0..CLIENT_COUNT).map(|_| Stamping::default()).collect(),
            stamped: Vec::new(),
            crash_count: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn some_node(&mut self) -> NodeId {
        let ids = self.cluster.ids();
        ids[self.below(ids.len() as u64) as usize]
    }

    /// Mostly the leader, but clients may be wrong.
    fn asked_node(&mut self) -> NodeId {
        match self.cluster.leader() {
            Some(leader) if self.below(10) > 0 => leader,
            _ => self.some_node(),
        }
    }

    fn run(&mut self) {
        for _ in 0..STEP_COUNT {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.below(100) {
            0..45 => self.do_plain(),
            45..65 => self.do_stamped(),
            65..73 => {
                let id = self.some_node();
                self.cluster.ask_for_snapshot(id);
            }
            73..83 => {
                let duration_ms = self.below(1_500);
                self.cluster.run_for(duration_ms);
            }
            83..88 => self.crash(),
            88..94 => {
                let id = self.some_node();
                if !self.cluster.is_on(id) {
                    self.cluster.start(id).unwrap();
                }
            }
            94..96 => {
                let id = self.some_node();
                self.cluster.isolate(id);
            }
            96..98 => self.cluster.heal(),
            _ => self.lose_a_disk(),
        }
        if self.below(3) > 0 {
            self.cluster.run_for(0);
        }
    }

    fn do_plain(&mut self) {
        let id = self.asked_node();
        self.next_value += 1;
        let value = self.next_value;
        let (plain, request) = match self.below(4) {
            0 => (Plain::Append(value), append("plain", value)),
            1 => (Plain::Add(value), add_to_set("set", value)),
            2 => (Plain::Count, count("counter", 1)),
            _ => (Plain::Write, ClientRequest::write("register", value)),
        };
        let ticket = self.cluster.ask(id, request);
        self.plain.insert(ticket, plain);
    }

    /// One of the clients asks, or asks again if it was told nothing certain.
    fn do_stamped(&mut self) {
        let at = self.below(CLIENT_COUNT) as usize;
        let client = &mut self.stamping[at];
        let told = client.ticket.map(|ticket| self.cluster.reply(ticket));
        match told {
            Some(None) => return,
            Some(Some(ClientReply::Written { .. })) => self.stamped.push(client.value),
            Some(Some(ClientReply::Refused { .. } | ClientReply::Unknown { .. })) => {
                return self.ask_stamped(at);
            }
            Some(Some(other)) => panic!("{other:?}"),
            None => {}
        }
        self.next_value += 1;
        let client = &mut self.stamping[at];
        client.request += 1;
        client.value = self.next_value;
        self.ask_stamped(at);
    }

    fn ask_stamped(&mut self, at: usize) {
        let id = self.asked_node();
        let Stamping { request, value, .. } = self.stamping[at];
        let request = stamped_append(&format!("c{at}"), request, "stamped", value);
        self.stamping[at].ticket = Some(self.cluster.ask(id, request));
    }

    fn crash(&mut self) {
        let id = self.some_node();
        if !self.cluster.is_on(id) {
            return;
        }
        self.crash_count += 1;
        match self.below(4) {
            0 => self.cluster.kill(id),
            1 => self.cluster.close(id),
            _ => self.cluster.power_cut(id),
        }
        if self.below(2) == 0 {
            self.cluster.start(id).unwrap();
        }
    }

    fn all_well(&mut self) {
        self.cluster.heal();
        for id in self.cluster.ids() {
            if !self.cluster.is_on(id) {
                self.cluster.start(id).unwrap();
            }
        }
        self.cluster.await_caught_up();
    }

    /// Not the leader's: a node that hears that it leads, and knows nothing of it, stops.
    fn lose_a_disk(&mut self) {
        self.all_well();
        let leader = self.cluster.await_leader();
        let id = self.cluster.others(leader)[self.below(2) as usize];
        self.cluster.wipe(id);
        self.cluster.start(id).unwrap();
        self.cluster.await_caught_up();
    }

    fn acknowledged(&self) -> impl Iterator<Item = Plain> {
        let is_written = |ticket: &Ticket| {
            let reply = self.cluster.reply(*ticket);
            matches!(reply, Some(ClientReply::Written { .. }))
        };
        self.plain
            .iter()
            .filter(move |(ticket, _)| is_written(ticket))
            .map(|(_, plain)| *plain)
    }

    fn check(&mut self) -> Counts {
        self.all_well();
        self.cluster.assert_sound();
        let ids = self.cluster.ids();
        let states: Vec<_> = ids.iter().map(|&id| self.cluster.state(id)).collect();
        assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
        let plain = occurrences(&self.cluster.local_list(ids[0], "plain"));
        let stamped = occurrences(&self.cluster.local_list(ids[0], "stamped"));
        for (value, times) in plain.iter().chain(&stamped) {
            assert_eq!(*times, 1, "{value}");
        }
        let set = self.cluster.local(ids[0], Kind::Set, "set");
        let set: Vec<i64> = serde_json::from_value(set).unwrap();
        let mut counted = 0;
        for done in self.acknowledged() {
            match done {
                Plain::Append(value) => assert!(plain.contains_key(&value), "{value} is gone"),
                Plain::Add(value) => assert!(set.contains(&value), "{value} is gone"),
                Plain::Count => counted += 1,
                Plain::Write => {}
            }
        }
        for value in &self.stamped {
            assert!(stamped.contains_key(value), "{value} is gone");
        }
        let asked = self.plain.values();
        let asked = asked.filter(|plain| matches!(plain, Plain::Count)).count() as i64;
        let counter = self.cluster.local(ids[0], Kind::Counter, "counter");
        let counter = counter.as_i64().unwrap();
        assert!(
            (counted..=asked).contains(&counter),
            "{counted} {counter} {asked}"
        );
        self.counts()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for id in self.cluster.ids() {
            for traced in self.cluster.events(id) {
                match traced.event {
                    TraceEvent::SnapshotFrozen { .. } => counts.frozen += 1,
                    TraceEvent::SnapshotInstalled { .. } => counts.installed += 1,
                    TraceEvent::LogStartAdvanced { .. } => counts.advanced += 1,
                    _ => {}
                }
            }
        }
        counts
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_done_twice_whatever_happens() {
    for seed in 1..=4 {
        let mut soak = Soak::new(seed, None);
        soak.run();
        let written = soak.acknowledged().count() + soak.stamped.len();
        let crashes = soak.crash_count;
        let counts = soak.check();
        assert!(written > 30, "seed {seed}: {written} acknowledged");
        assert!(crashes > 3, "seed {seed}: {crashes} crashes");
        assert!(
            counts.frozen > 5 && counts.installed > 0 && counts.advanced > 1,
            "seed {seed}: {counts:?}"
        );
    }
}

/// Otherwise it would show nothing that it holds without them.
#[test]
fn what_happens_at_random_is_enough_to_find_seeded_bugs() {
    for bug in [
        Bug::SnapshotIdOffByOne,
        Bug::SnapshotNoFsync,
        Bug::ApplyTwice,
        Bug::DedupLostInSnapshot,
    ] {
        let is_sound = |seed| {
            let outcome = catch_unwind(|| {
                let mut soak = Soak::new(seed, Some(bug));
                soak.run();
                soak.check();
            });
            outcome.is_ok()
        };
        assert!(!(1..=3).all(is_sound), "{bug} was not found");
    }
}
