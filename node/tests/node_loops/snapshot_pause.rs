//! Owns the measurement of how long a node with a large state stands still for a snapshot of it.
//! Never judges anything else: what is in a snapshot is tested elsewhere.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // Helpers of tests are tests, and this one measures.

use std::time::{Duration, Instant};

use node::client::ClientRequest;
use node::ids::NodeId;
use node::node_loop::{Arrival, Departure, NodeLoop, NodeOptions, Outbox, SnapshotOptions};
use node::raft::{Configuration, Ticket, Timers};
use node::storage::DirectoryDisk;
use node::trace::{TraceEvent, Traced};

const MS: u64 = 1_000_000;

const TIMERS: Timers = Timers {
    election_timeout_ns: 1000 * MS,
    fetch_timeout_ns: 2000 * MS,
    election_backoff_max_ns: 1000 * MS,
    fetch_max_wait_ns: 500 * MS,
    request_timeout_ns: 2000 * MS,
    retry_backoff_ns: 20 * MS,
};

/// How much the values of all registers have together.
const STATE_BYTES: usize = 200 * 1024 * 1024;
const VALUE_BYTES: usize = 1000;
/// The longest that a node may stand still.
const MOST: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Watching {
    is_frozen: bool,
}

impl Outbox for Watching {
    fn depart(&mut self, _: Departure) {}
    fn trace(&mut self, traced: Traced) {
        self.is_frozen |= matches!(traced.event, TraceEvent::SnapshotFrozen { .. });
    }
}

struct Alone {
    node: NodeLoop<DirectoryDisk>,
    outbox: Watching,
    now_ns: u64,
}

impl Alone {
    fn start(directory: &std::path::Path) -> Self {
        let options = NodeOptions {
            snapshots: SnapshotOptions {
                bytes_between: u64::MAX,
                interval_ns: u64::MAX,
                ..SnapshotOptions::default()
            },
            ..NodeOptions::default()
        };
        let voters = [NodeId(1)].into_iter().collect();
        let configuration = Configuration::of_static_voters(NodeId(1), "test", voters, TIMERS, 7);
        let disk = DirectoryDisk::open(directory).unwrap();
        let mut outbox = Watching::default();
        let now_ns = 1_000_000 * MS;
        let node = NodeLoop::start(configuration, disk, options, now_ns, &mut outbox).unwrap();
        Self {
            node,
            outbox,
            now_ns,
        }
    }

    /// How long a round takes; what others drop is not in it.
    fn round(&mut self, arrivals: Vec<Arrival>) -> Duration {
        self.now_ns += MS;
        let begun = Instant::now();
        let outbox = &mut self.outbox;
        self.node.take_in(self.now_ns, 1, arrivals, outbox).unwrap();
        self.node.settle(self.now_ns, 1, outbox).unwrap();
        let took = begun.elapsed();
        drop(self.node.take_discarded());
        took
    }

    fn fill(&mut self) {
        let value = "x".repeat(VALUE_BYTES);
        let keys: Vec<u64> = (0..(STATE_BYTES / VALUE_BYTES) as u64).collect();
        for keys in keys.chunks(2_000) {
            let arrivals = keys.iter().map(|key| Arrival::Client {
                ticket: Ticket(*key),
                request: Box::new(ClientRequest::write(format!("key-{key}"), value.as_str())),
            });
            self.round(arrivals.collect());
        }
    }
}

/// `cargo test --release -p node --test node_loops -- --ignored --nocapture snapshot_pause`
#[test]
#[ignore = "measures; a release build on a quiet machine means something"]
fn a_large_state_is_written_down_without_a_long_pause() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(directory.path());
    let begun = Instant::now();
    alone.fill();
    println!("filled in {:?}", begun.elapsed());
    let mut rounds = vec![alone.round(vec![Arrival::TakeSnapshot])];
    while !alone.outbox.is_frozen {
        rounds.push(alone.round(Vec::new()));
    }
    let whole: Duration = rounds.iter().sum();
    let (first, last) = (rounds[0], *rounds.last().unwrap());
    let count = rounds.len();
    rounds.sort_unstable();
    let (median, longest) = (rounds[count / 2], rounds[count - 1]);
    println!(
        "{STATE_BYTES} bytes in {count} rounds of {median:?} (median) to {longest:?}, first {first:?}, \
         last {last:?}, together {whole:?}"
    );
    assert!(longest < MOST, "stood still for {longest:?}");
}
