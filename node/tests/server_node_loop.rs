//! Owns the tests of the node's loop: the order of its work, over a real disk and in virtual time.
//! Never uses sockets, threads or a real clock.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use node::client::{ClientReply, ClientRequest, RefusalCode, UnknownCode};
use node::ids::{Epoch, NodeId, Offset};
use node::machine::{CommandFault, Failure, MAX_COMMAND_BYTES};
use node::message::{ErrorCode, FetchRequest, Request, Response, VoteRequest, VoteResponse};
use node::mutants::Bug;
use node::node_loop::{Arrival, Departure, NodeLoop, NodeOptions, Outbox};
use node::raft::{Configuration, Correlation, PeerAnswer, Ticket, Timers};
use node::storage::{DirectoryDisk, Disk, WriteBehindDisk};
use node::trace::{TraceEvent, Traced};
use serde_json::{Value, json};

const MILLISECOND: u64 = 1_000_000;

fn configuration(voters: i32, bug: Option<Bug>) -> Configuration {
    Configuration {
        bug,
        ..Configuration::of_static_voters(
            NodeId(1),
            "test",
            (1..=voters).map(NodeId).collect(),
            Timers {
                election_timeout_ns: 1000 * MILLISECOND,
                fetch_timeout_ns: 2000 * MILLISECOND,
                election_backoff_max_ns: 1000 * MILLISECOND,
                fetch_max_wait_ns: 500 * MILLISECOND,
                request_timeout_ns: 2000 * MILLISECOND,
                retry_backoff_ns: 20 * MILLISECOND,
            },
            7,
        )
    }
}

/// A disk that knows whether anything written to it is not durable yet.
#[derive(Debug)]
struct WatchedDisk<D> {
    inner: D,
    dirty: Rc<Cell<bool>>,
    syncs: Rc<Cell<u32>>,
}

impl<D: Disk> Disk for WatchedDisk<D> {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.dirty.set(true);
        self.inner.append(file, bytes)
    }
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.dirty.set(true);
        self.inner.write(file, bytes)
    }
    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        self.dirty.set(true);
        self.inner.truncate(file, length_bytes)
    }
    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.inner.sync(file)?;
        self.dirty.set(false);
        self.syncs.set(self.syncs.get() + 1);
        Ok(())
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.inner.remove(file)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.inner.sync_directory()
    }
    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        self.inner.read(file, position_bytes, length_bytes)
    }
    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        self.inner.length(file)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }
}

/// Collects what leaves and checks that it may.
#[derive(Debug, Default)]
struct Collected {
    dirty: Rc<Cell<bool>>,
    departures: Vec<Departure>,
    events: Vec<Traced>,
    /// Set for nodes that acknowledge what is not committed.
    early: bool,
}

impl Collected {
    fn traced_high_watermark(&self) -> Option<Offset> {
        self.events
            .iter()
            .rev()
            .find_map(|traced| match traced.event {
                TraceEvent::HighWatermark { high_watermark, .. } => Some(high_watermark),
                _ => None,
            })
    }
}

impl Outbox for Collected {
    fn depart(&mut self, departure: Departure) {
        let promises = !matches!(
            &departure,
            Departure::Reply {
                response: Response::Fetch(_),
                ..
            }
        );
        assert!(
            !(promises && self.dirty.get()),
            "left before it was durable: {departure:?}"
        );
        if let Departure::ClientReply {
            reply: ClientReply::Written { position },
            ..
        } = &departure
        {
            let traced = self.traced_high_watermark();
            assert!(
                self.early || traced > Some(position.offset),
                "acknowledged {position:?} when the trace said {traced:?}"
            );
        }
        self.departures.push(departure);
    }
    fn trace(&mut self, traced: Traced) {
        self.events.push(traced);
    }
}

type PowerCutDisk = WatchedDisk<WriteBehindDisk<DirectoryDisk>>;

struct Bench {
    node: NodeLoop<PowerCutDisk>,
    outbox: Collected,
    syncs: Rc<Cell<u32>>,
    now_ns: u64,
    next_ticket: u64,
}

impl Bench {
    fn start(directory: &Path, configuration: Configuration) -> Self {
        let (dirty, syncs) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let inner = WriteBehindDisk::new(DirectoryDisk::open(directory).unwrap()).unwrap();
        let disk = WatchedDisk {
            inner,
            dirty: Rc::clone(&dirty),
            syncs: Rc::clone(&syncs),
        };
        let mut outbox = Collected {
            dirty,
            early: configuration.bug == Some(Bug::AckOnAppend),
            ..Collected::default()
        };
        let now_ns = 1_000_000 * MILLISECOND;
        let node = NodeLoop::start(
            configuration,
            disk,
            NodeOptions::default(),
            now_ns,
            &mut outbox,
        )
        .unwrap();
        Self {
            node,
            outbox,
            syncs,
            now_ns,
            next_ticket: 0,
        }
    }

    fn process(&mut self, arrivals: Vec<Arrival>) -> Vec<Departure> {
        self.node
            .process(self.now_ns, 0, arrivals, &mut self.outbox)
            .unwrap();
        std::mem::take(&mut self.outbox.departures)
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Asks on behalf of several clients at once; replies come back by position.
    fn ask(&mut self, requests: Vec<ClientRequest>) -> Vec<Option<ClientReply>> {
        let tickets: Vec<_> = requests.iter().map(|_| self.ticket()).collect();
        let arrivals = requests
            .into_iter()
            .zip(&tickets)
            .map(|(request, ticket)| Arrival::Client {
                ticket: *ticket,
                request,
            })
            .collect();
        let departures = self.process(arrivals);
        tickets
            .iter()
            .map(|ticket| reply_to(*ticket, &departures))
            .collect()
    }

    fn ask_one(&mut self, request: ClientRequest) -> Option<ClientReply> {
        self.ask(vec![request]).remove(0)
    }

    fn peer(&mut self, request: Request) -> Vec<Departure> {
        let ticket = self.ticket();
        self.process(vec![Arrival::PeerRequest {
            ticket,
            correlation: None,
            request,
        }])
    }

    /// Lets time pass and n2 vote for this node until it leads, with its first record committed.
    fn lead(&mut self) {
        let mut sent = std::mem::take(&mut self.outbox.departures);
        for _ in 0..100 {
            self.now_ns = self.now_ns.max(
                self.node
                    .next_deadline_ns()
                    .min(self.now_ns + 1000 * MILLISECOND),
            );
            sent.extend(self.process(Vec::new()));
            for departure in std::mem::take(&mut sent) {
                if let Departure::Send {
                    peer: NodeId(2),
                    endpoint: _,
                    correlation,
                    request: Request::Vote(vote),
                } = departure
                {
                    sent.extend(self.grant(correlation, &vote));
                }
            }
            if self.node.leader() == Some(NodeId(1)) {
                let epoch = self.node.epoch();
                self.fetch(2, epoch, epoch, self.node.describe().log_end);
                assert!(self.node.describe().high_watermark.is_some());
                return;
            }
        }
        panic!("never elected: {:?}", self.node.describe());
    }

    fn grant(&mut self, correlation: Correlation, vote: &VoteRequest) -> Vec<Departure> {
        let response = VoteResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: vote.replica_epoch,
            vote_granted: true,
            leader_endpoint: None,
        };
        let answer = PeerAnswer::Response(Response::Vote(response));
        self.process(vec![Arrival::PeerAnswer {
            peer: NodeId(2),
            correlation,
            answer,
        }])
    }

    /// A follower fetches from the end of its log, and thereby acknowledges everything before.
    fn fetch(&mut self, replica: i32, epoch: Epoch, last: Epoch, from: Offset) -> Vec<Departure> {
        self.peer(Request::Fetch(FetchRequest {
            cluster_id: "test".into(),
            replica: NodeId(replica).into(),
            current_leader_epoch: epoch,
            fetch_offset: from,
            last_fetched_epoch: last,
            high_watermark: None,
            max_wait_ms: 500,
            max_bytes: 1 << 20,
            read_round: 0,
        }))
    }
}

fn reply_to(wanted: Ticket, departures: &[Departure]) -> Option<ClientReply> {
    let mut replies = departures.iter().filter_map(|departure| match departure {
        Departure::ClientReply { ticket, reply } if *ticket == wanted => Some(reply.clone()),
        _ => None,
    });
    let reply = replies.next();
    assert_eq!(replies.next(), None, "two replies to one request");
    reply
}

fn read(key: &str) -> ClientRequest {
    ClientRequest::read(key)
}

fn write(key: &str, value: impl Into<Value>) -> ClientRequest {
    ClientRequest::write(key, value)
}

fn swap(key: &str, expected: impl Into<Value>, new: impl Into<Value>) -> ClientRequest {
    ClientRequest::compare_and_set(key, expected, new)
}

fn value(reply: Option<ClientReply>) -> Value {
    let Some(ClientReply::Value { value, .. }) = reply else {
        panic!("not a value: {reply:?}")
    };
    value
}

fn offset(reply: Option<ClientReply>) -> i64 {
    let Some(ClientReply::Written { position }) = reply else {
        panic!("not written: {reply:?}")
    };
    position.offset.0
}

fn single(directory: &Path) -> Bench {
    let mut bench = Bench::start(directory, configuration(1, None));
    bench.process(Vec::new());
    assert_eq!(
        bench.node.leader(),
        Some(NodeId(1)),
        "a single voter leads at once"
    );
    bench
}

#[test]
fn a_single_voter_serves_all_operations_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    assert_eq!(value(bench.ask_one(read("a"))), Value::Null);
    let first = offset(bench.ask_one(write("a", 1)));
    assert_eq!(value(bench.ask_one(read("a"))), json!(1));
    assert_eq!(offset(bench.ask_one(swap("a", 1, 2))), first + 1);
    let reply = bench.ask_one(swap("a", 1, 3));
    let Some(ClientReply::NotApplied {
        operation: None,
        failure,
        position,
    }) = reply
    else {
        panic!("{reply:?}");
    };
    let current = json!(2);
    assert_eq!(failure, Failure::CompareMismatch { current });
    assert_eq!(position.offset, Offset(first + 2));
    assert_eq!(value(bench.ask_one(read("a"))), json!(2));
}

#[test]
fn everything_that_arrives_together_costs_one_sync() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let before = bench.syncs.get();
    let replies = bench.ask((0..1000).map(|at| write("a", at)).collect());
    assert_eq!(bench.syncs.get(), before + 1);
    let offsets: Vec<_> = replies.into_iter().map(offset).collect();
    assert!(
        offsets.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{offsets:?}"
    );
    assert_eq!(value(bench.ask_one(read("a"))), json!(999));
}

#[test]
fn who_comes_before_the_sync_shares_it_and_nobody_is_answered_earlier() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let before = bench.syncs.get();
    let (now_ns, tickets) = (bench.now_ns, [bench.ticket(), bench.ticket()]);
    for (ticket, number) in tickets.into_iter().zip(1..) {
        let request = write("a", number);
        let arrivals = vec![Arrival::Client { ticket, request }];
        let Bench { node, outbox, .. } = &mut bench;
        node.take_in(now_ns, 0, arrivals, outbox).unwrap();
    }
    let Bench { node, outbox, .. } = &mut bench;
    assert!(node.awaits_sync());
    let synced = node.sync_storage().unwrap();
    assert!(outbox.departures.is_empty(), "{:?}", outbox.departures);
    node.release_synced(now_ns, synced, outbox).unwrap();
    assert!(!node.awaits_sync());
    node.settle(now_ns, 0, outbox).unwrap();
    let departures = std::mem::take(&mut outbox.departures);
    let offsets = tickets.map(|ticket| offset(reply_to(ticket, &departures)));
    assert_eq!(offsets[1], offsets[0] + 1);
    assert_eq!(bench.syncs.get(), before + 1);
    assert_eq!(value(bench.ask_one(read("a"))), json!(2));
}

#[test]
fn many_large_commands_become_several_batches() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let text = "x".repeat(60_000);
    let replies = bench.ask((0..200).map(|at| write("a", json!([at, text]))).collect());
    let offsets: std::collections::BTreeSet<_> = replies.into_iter().map(offset).collect();
    assert_eq!(offsets.len(), 200);
    assert_eq!(value(bench.ask_one(read("a"))), json!([199, text]));
    let appends = bench
        .outbox
        .events
        .iter()
        .filter(|traced| matches!(traced.event, TraceEvent::Append { .. }))
        .count();
    assert!((20..200).contains(&appends), "{appends} batches");
}

#[test]
fn a_restart_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut epoch = Epoch(0);
    for round in 0..3 {
        let mut bench = single(directory.path());
        assert!(
            bench.node.epoch() > epoch,
            "a leader never leads the same epoch again"
        );
        epoch = bench.node.epoch();
        let expected = if round == 0 {
            Value::Null
        } else {
            json!(round - 1)
        };
        assert_eq!(value(bench.ask_one(read("a"))), expected);
        offset(bench.ask_one(write("a", round)));
        if round == 1 {
            bench.node.close().unwrap();
        }
    }
}

#[test]
fn a_command_that_is_too_long_is_refused_and_the_longest_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let overhead = r#"{"operations":[{"type":"register-write","key":"a","value":""}]}"#.len();
    let longest = "x".repeat(MAX_COMMAND_BYTES - overhead);
    offset(bench.ask_one(write("a", longest.clone())));
    let reply = bench.ask_one(write("a", format!("{longest}x")));
    let expected = ClientReply::Invalid {
        fault: CommandFault::Length,
        leader: Some(NodeId(1)),
        epoch: bench.node.epoch(),
    };
    assert_eq!(reply, Some(expected));
    assert_eq!(value(bench.ask_one(read("a"))), json!(longest));
}

#[test]
fn a_node_that_does_not_lead_refuses_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), configuration(3, None));
    for reply in bench.ask(vec![read("a"), write("a", 1), swap("a", 1, 2)]) {
        let expected = ClientReply::Refused {
            code: RefusalCode::NotLeaderOrFollower,
            leader: None,
            epoch: Epoch(0),
        };
        assert_eq!(reply, Some(expected));
    }
}

#[test]
fn a_write_is_acknowledged_once_a_follower_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), configuration(3, None));
    bench.lead();
    let (epoch, end) = (bench.node.epoch(), bench.node.describe().log_end);
    let ticket = Ticket(bench.next_ticket + 1);
    assert_eq!(bench.ask_one(write("a", 1)), None, "only the leader has it");
    let departures = bench.fetch(2, epoch, epoch, end);
    assert_eq!(
        reply_to(ticket, &departures),
        None,
        "the follower only asks for it"
    );
    let carried = departures.iter().any(|departure| {
        matches!(departure, Departure::Reply { response: Response::Fetch(response), .. }
            if !response.batches.is_empty())
    });
    assert!(carried, "{departures:?}");
    let departures = bench.fetch(2, epoch, epoch, Offset(end.0 + 1));
    assert_eq!(offset(reply_to(ticket, &departures)), end.0);
}

#[test]
fn the_early_acknowledgement_bug_answers_writes_before_they_are_committed() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), configuration(3, Some(Bug::AckOnAppend)));
    bench.lead();
    let (epoch, end) = (bench.node.epoch(), bench.node.describe().log_end);
    let swap_ticket = Ticket(bench.next_ticket + 2);
    let replies = bench.ask(vec![write("a", 1), swap("a", 1, 2)]);
    assert_eq!(offset(replies[0].clone()), end.0);
    assert_eq!(
        replies[1], None,
        "a comparison has no outcome before it is committed"
    );
    let departures = bench.fetch(2, epoch, epoch, Offset(end.0 + 2));
    let replies: Vec<_> = departures
        .iter()
        .filter(|departure| matches!(departure, Departure::ClientReply { .. }))
        .collect();
    assert_eq!(replies.len(), 1, "the write is not answered twice");
    assert_eq!(offset(reply_to(swap_ticket, &departures)), end.0 + 1);
}

#[test]
fn lost_leadership_leaves_writes_unknown_and_refuses_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), configuration(3, None));
    bench.lead();
    let epoch = bench.node.epoch().next();
    let (write_ticket, read_ticket) =
        (Ticket(bench.next_ticket + 1), Ticket(bench.next_ticket + 2));
    assert_eq!(bench.ask(vec![write("a", 1), read("a")]), [None, None]);
    let departures = bench.peer(Request::Vote(VoteRequest {
        cluster_id: "test".into(),
        voter: NodeId(1).into(),
        replica: NodeId(3).into(),
        replica_epoch: epoch,
        last_epoch: Epoch(0),
        last_offset: Offset(0),
        pre_vote: false,
    }));
    assert_eq!(
        reply_to(write_ticket, &departures),
        Some(ClientReply::Unknown {
            code: UnknownCode::LeadershipLost,
            epoch
        })
    );
    let reply = reply_to(read_ticket, &departures);
    assert!(
        matches!(
            reply,
            Some(ClientReply::Refused {
                code: RefusalCode::NotLeaderOrFollower,
                ..
            })
        ),
        "{reply:?}"
    );
}

#[test]
fn a_node_that_is_shutting_down_takes_no_new_work() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), configuration(3, None));
    bench.lead();
    assert!(!bench.node.is_ready_to_stop());
    let departures = bench.process(vec![Arrival::Shutdown]);
    let told = departures
        .iter()
        .filter(|departure| {
            matches!(
                departure,
                Departure::Send {
                    request: Request::EndQuorumEpoch(_),
                    ..
                }
            )
        })
        .count();
    assert_eq!(told, 2);
    assert!(!bench.node.is_ready_to_stop(), "nobody has heard of it yet");
    let reply = bench.ask_one(write("a", 1));
    assert!(
        matches!(
            reply,
            Some(ClientReply::Refused {
                code: RefusalCode::BrokerNotAvailable,
                ..
            })
        ),
        "{reply:?}"
    );
}
