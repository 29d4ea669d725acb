//! Owns the scenarios of the seeded bugs in the node's loop, over a disk that loses what is unsynced.
//! Never runs a schedule with the bug only: each one is also shown to go well without it.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use node::batch::Batch;
use node::client::{ClientReply, ClientRequest, RefusalCode, UnknownCode};
use node::ids::{Epoch, NodeId, Offset};
use node::message::{
    BeginQuorumEpochRequest, ErrorCode, FetchRequest, FetchResponse, Request, Response,
    VoteRequest, VoteResponse,
};
use node::mutants::Bug;
use node::node_loop::{Arrival, Departure, NodeLoop, NodeOptions, Outbox};
use node::raft::{Configuration, Correlation, PeerAnswer, Ticket, Timers};
use node::storage::{DirectoryDisk, Disk, WriteBehindDisk};
use node::trace::Traced;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
const ME: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

/// What a scenario leads to without the bug, and with it.
fn compare<T>(bug: Bug, scenario: impl Fn(Option<Bug>) -> T) -> (T, T) {
    (scenario(None), scenario(Some(bug)))
}

/// Loses what is unsynced when it is dropped, and knows whether there is any.
#[derive(Debug)]
struct PowerCutDisk {
    inner: WriteBehindDisk<DirectoryDisk>,
    dirty: Rc<Cell<bool>>,
}

impl Disk for PowerCutDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.dirty.set(true);
        self.inner.append(file, bytes)
    }
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.write(file, bytes)
    }
    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        self.inner.truncate(file, length_bytes)
    }
    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.inner.sync(file)?;
        self.dirty.set(false);
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

#[derive(Debug, Default)]
struct Collected {
    dirty: Rc<Cell<bool>>,
    departures: Vec<Departure>,
    /// Answers to clients that left while appended bytes were not synced.
    early_count: u32,
}

impl Outbox for Collected {
    fn depart(&mut self, departure: Departure) {
        let to_client = matches!(departure, Departure::ClientReply { .. });
        self.early_count += u32::from(to_client && self.dirty.get());
        self.departures.push(departure);
    }
    fn trace(&mut self, _: Traced) {}
}

struct Bench {
    node: NodeLoop<PowerCutDisk>,
    outbox: Collected,
    now_ns: u64,
    next_ticket: u64,
}

impl Bench {
    fn start(directory: &Path, voter_count: i32, bug: Option<Bug>) -> Self {
        let configuration = Configuration {
            bug,
            ..Configuration::of_static_voters(
                ME,
                "test",
                (1..=voter_count).map(NodeId).collect(),
                Timers {
                    election_timeout_ns: 1000 * MS,
                    fetch_timeout_ns: 2000 * MS,
                    election_backoff_max_ns: 1000 * MS,
                    fetch_max_wait_ns: 500 * MS,
                    request_timeout_ns: 2000 * MS,
                    retry_backoff_ns: 20 * MS,
                },
                7,
            )
        };
        let mut outbox = Collected::default();
        let disk = PowerCutDisk {
            inner: WriteBehindDisk::new(DirectoryDisk::open(directory).unwrap()).unwrap(),
            dirty: Rc::clone(&outbox.dirty),
        };
        let now_ns = 1_000_000 * MS;
        let options = NodeOptions::default();
        let node = NodeLoop::start(configuration, disk, options, now_ns, &mut outbox).unwrap();
        Self {
            node,
            outbox,
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

    fn ask(&mut self, request: ClientRequest) -> (Ticket, Vec<Departure>) {
        let ticket = self.ticket();
        (
            ticket,
            self.process(vec![Arrival::Client { ticket, request }]),
        )
    }

    fn peer(&mut self, request: Request) -> Vec<Departure> {
        let ticket = self.ticket();
        self.process(vec![Arrival::PeerRequest {
            ticket,
            correlation: None,
            request,
        }])
    }

    fn answer(&mut self, correlation: Correlation, response: Response) -> Vec<Departure> {
        self.process(vec![Arrival::PeerAnswer {
            peer: PEER,
            correlation,
            answer: PeerAnswer::Response(response),
        }])
    }

    /// Asks for a vote in `epoch` with a log that is long enough for any voter.
    fn vote(&mut self, candidate: NodeId, epoch: i32) -> bool {
        let departures = self.peer(Request::Vote(VoteRequest {
            cluster_id: "test".into(),
            voter: ME.into(),
            replica: candidate.into(),
            replica_epoch: Epoch(epoch),
            last_epoch: Epoch(epoch - 1),
            last_offset: Offset(1_000),
            pre_vote: false,
        }));
        let granted = departures
            .into_iter()
            .find_map(|departure| match departure {
                Departure::Reply {
                    response: Response::Vote(response),
                    ..
                } => Some(response.vote_granted),
                _ => None,
            });
        granted.expect("every vote request is answered at once")
    }

    /// Lets time pass and `PEER` grant every vote until this node leads.
    fn lead(&mut self) {
        let mut sent = std::mem::take(&mut self.outbox.departures);
        while self.node.leader() != Some(ME) {
            self.now_ns += 100 * MS;
            sent.extend(self.process(Vec::new()));
            for departure in std::mem::take(&mut sent) {
                let Departure::Send {
                    peer: PEER,
                    endpoint: _,
                    correlation,
                    request: Request::Vote(vote),
                } = departure
                else {
                    continue;
                };
                let response = VoteResponse {
                    error: ErrorCode::None,
                    leader_id: None,
                    leader_epoch: vote.replica_epoch,
                    vote_granted: true,
                    leader_endpoint: None,
                };
                sent.extend(self.answer(correlation, Response::Vote(response)));
            }
        }
    }

    /// `PEER` fetches from the end of this node's log, and thereby acknowledges all of it.
    fn fetch_all(&mut self, read_round: u64) -> Vec<Departure> {
        self.peer(Request::Fetch(FetchRequest {
            cluster_id: "test".into(),
            replica: PEER.into(),
            current_leader_epoch: self.node.epoch(),
            fetch_offset: self.node.describe().log_end,
            last_fetched_epoch: self.node.epoch(),
            high_watermark: None,
            max_wait_ms: 500,
            max_bytes: 1 << 20,
            read_round,
        }))
    }
}

fn reply_to(wanted: Ticket, departures: Vec<Departure>) -> Option<ClientReply> {
    departures
        .into_iter()
        .find_map(|departure| match departure {
            Departure::ClientReply { ticket, reply } if ticket == wanted => Some(reply),
            _ => None,
        })
}

fn write(value: impl Into<Value>) -> ClientRequest {
    ClientRequest::write("a", value)
}

fn read() -> ClientRequest {
    ClientRequest::read("a")
}

#[test]
fn a_vote_that_was_not_synced_is_given_twice() {
    let (right, wrong) = compare(Bug::VoteNoFsync, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        assert!(bench.vote(PEER, 5));
        drop(bench);
        let mut bench = Bench::start(directory.path(), 3, bug);
        (bench.node.epoch(), bench.vote(OTHER, 5))
    });
    assert_eq!(right, (Epoch(5), false));
    assert_eq!(wrong, (Epoch(5), true), "only the vote is lost");
}

#[test]
fn the_next_durable_change_takes_an_unsynced_vote_along() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::VoteNoFsync));
    assert!(bench.vote(PEER, 5));
    bench.peer(Request::BeginQuorumEpoch(announcement(5)));
    drop(bench);
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::VoteNoFsync));
    assert!(!bench.vote(OTHER, 5));
}

fn announcement(epoch: i32) -> BeginQuorumEpochRequest {
    BeginQuorumEpochRequest {
        cluster_id: "test".into(),
        voter: ME.into(),
        leader_id: PEER,
        leader_epoch: Epoch(epoch),
        leader_endpoint: None,
    }
}

fn sent_fetch(departures: &[Departure]) -> Option<(Correlation, Offset)> {
    departures.iter().find_map(|departure| match departure {
        Departure::Send {
            peer: PEER,
            endpoint: _,
            correlation,
            request: Request::Fetch(fetch),
        } => Some((*correlation, fetch.fetch_offset)),
        _ => None,
    })
}

/// The follower acknowledges a record, and its power is cut well after that.
#[test]
fn an_acknowledged_record_is_gone_if_a_follower_does_not_sync() {
    let (right, wrong) = compare(Bug::FollowerNoFsync, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        // What it asked while it knew no leader is not answered any more.
        bench.process(Vec::new());
        let departures = bench.peer(Request::BeginQuorumEpoch(announcement(5)));
        let (correlation, offset) = sent_fetch(&departures).unwrap();
        assert_eq!(offset, Offset(0));
        let record = br#"{"type":"write","key":"a","value":1}"#;
        let response = FetchResponse {
            error: ErrorCode::None,
            leader_id: Some(PEER),
            leader_epoch: Epoch(5),
            high_watermark: None,
            log_start_offset: Offset(0),
            diverging_epoch: None,
            read_round: 0,
            batches: vec![Batch::build(Offset(0), Epoch(5), 0, false, &[record])],
            leader_endpoint: None,
            snapshot_id: None,
        };
        let departures = bench.answer(correlation, Response::Fetch(response));
        assert_eq!(
            sent_fetch(&departures).unwrap().1,
            Offset(1),
            "acknowledged"
        );
        bench.now_ns += 400 * MS;
        bench.process(Vec::new());
        drop(bench);
        let bench = Bench::start(directory.path(), 3, bug);
        (bench.node.epoch(), bench.node.describe().log_end)
    });
    assert_eq!(right, (Epoch(5), Offset(1)));
    assert_eq!(wrong, (Epoch(5), Offset(0)));
}

#[test]
fn a_single_voter_answers_before_it_synced() {
    let (right, wrong) = compare(Bug::LeaderCountsUnflushed, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 1, bug);
        bench.process(Vec::new());
        assert_eq!(bench.outbox.early_count, 0);
        let (ticket, departures) = bench.ask(write(1));
        let reply = reply_to(ticket, departures);
        assert!(
            matches!(reply, Some(ClientReply::Written { .. })),
            "{reply:?}"
        );
        bench.outbox.early_count
    });
    assert_eq!((right, wrong), (0, 1));
}

/// A leader comes back with a log that it has not applied yet, leads again, and is asked at once.
#[test]
fn a_read_misses_what_is_committed_but_not_applied() {
    let (right, wrong) = compare(Bug::ReadNotApplied, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        bench.fetch_all(0);
        let (ticket, _) = bench.ask(write(7));
        let reply = reply_to(ticket, bench.fetch_all(0));
        assert!(
            matches!(reply, Some(ClientReply::Written { .. })),
            "{reply:?}"
        );
        drop(bench);
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        let (ticket, departures) = bench.ask(read());
        assert_eq!(
            reply_to(ticket, departures),
            None,
            "nothing is confirmed yet"
        );
        let Some(ClientReply::Value { value, .. }) = reply_to(ticket, bench.fetch_all(1)) else {
            panic!("the round is confirmed")
        };
        let (ticket, _) = bench.ask(read());
        let later = reply_to(ticket, bench.fetch_all(2));
        assert!(matches!(&later, Some(ClientReply::Value { value, .. }) if *value == json!(7)));
        value
    });
    assert_eq!((right, wrong), (json!(7), Value::Null));
}

#[test]
fn a_write_that_may_yet_be_committed_is_reported_as_not_carried_out() {
    let (right, wrong) = compare(Bug::FailInsteadOfInfo, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        bench.fetch_all(0);
        let (ticket, departures) = bench.ask(write(1));
        assert_eq!(reply_to(ticket, departures), None, "it is in the log");
        let epoch = bench.node.epoch().next();
        let departures = bench.peer(Request::BeginQuorumEpoch(announcement(epoch.0)));
        reply_to(ticket, departures).unwrap()
    });
    let ClientReply::Unknown { code, .. } = right else {
        panic!("{right:?}")
    };
    assert_eq!(code, UnknownCode::LeadershipLost);
    let ClientReply::Refused { code, .. } = wrong else {
        panic!("{wrong:?}")
    };
    assert_eq!(code, RefusalCode::NotLeaderOrFollower);
}
