//! Owns a single loop whose peers are played by the test, message by message.
//! Never answers anything by itself.

use std::path::Path;

use node::client::{ClientReply, ClientRequest};
use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, FetchRequest, Request, Response, VoteRequest, VoteResponse};
use node::mutants::Bug;
use node::node_loop::{Arrival, Departure, NodeLoop, NodeOptions};
use node::raft::{Configuration, Correlation, PeerAnswer, Ticket, Timers};

use crate::disk::{DiskHandle, LoopDisk};
use crate::outbox::Collected;

pub(crate) const MS: u64 = 1_000_000;
/// The loop under test.
pub(crate) const ME: NodeId = NodeId(1);
/// The peer that votes for it and fetches from it.
pub(crate) const PEER: NodeId = NodeId(2);

pub(crate) const TIMERS: Timers = Timers {
    election_timeout_ns: 1000 * MS,
    fetch_timeout_ns: 2000 * MS,
    election_backoff_max_ns: 1000 * MS,
    fetch_max_wait_ns: 500 * MS,
    request_timeout_ns: 2000 * MS,
    retry_backoff_ns: 20 * MS,
};

pub(crate) struct Bench {
    pub(crate) node: NodeLoop<LoopDisk>,
    pub(crate) outbox: Collected,
    pub(crate) disk: DiskHandle,
    pub(crate) now_ns: u64,
    pub(crate) next_ticket: u64,
    bug: Option<Bug>,
}

impl Bench {
    /// Starts on what is durable in `directory`.
    pub(crate) fn start(directory: &Path, voter_count: i32, bug: Option<Bug>) -> Self {
        let configuration = Configuration {
            bug,
            ..Configuration::of_static_voters(
                ME,
                "test",
                (1..=voter_count).map(NodeId).collect(),
                TIMERS,
                7,
            )
        };
        let disk = DiskHandle::open(directory);
        let mut outbox = Collected::new(disk.clone());
        let now_ns = 1_000_000 * MS;
        let node = NodeLoop::start(
            configuration,
            disk.disk(),
            NodeOptions::default(),
            now_ns,
            &mut outbox,
        )
        .unwrap();
        let bench = Self {
            node,
            outbox,
            disk,
            now_ns,
            next_ticket: 0,
            bug,
        };
        bench.assert_nothing_left_early();
        bench
    }

    /// With a bug, leaving early may be what the test is about.
    fn assert_nothing_left_early(&self) {
        if matches!(self.bug, None | Some(Bug::AckOnAppend)) {
            let early = &self.outbox.undurable;
            assert!(early.is_empty(), "left before it was durable: {early:?}");
        }
        if self.bug.is_none() {
            let early = &self.outbox.uncommitted;
            assert!(early.is_empty(), "left before it was committed: {early:?}");
        }
    }

    pub(crate) fn process(&mut self, arrivals: Vec<Arrival>) -> Vec<Departure> {
        self.node
            .process(self.now_ns, 0, arrivals, &mut self.outbox)
            .unwrap();
        self.assert_nothing_left_early();
        self.outbox.take()
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Asks on behalf of one client; what leaves at once comes back.
    pub(crate) fn send(&mut self, request: ClientRequest) -> (Ticket, Vec<Departure>) {
        let (ticket, request) = (self.ticket(), Box::new(request));
        (
            ticket,
            self.process(vec![Arrival::Client { ticket, request }]),
        )
    }

    /// Asks on behalf of several clients at once; replies come back by position.
    pub(crate) fn ask(&mut self, requests: Vec<ClientRequest>) -> Vec<Option<ClientReply>> {
        let tickets: Vec<_> = requests.iter().map(|_| self.ticket()).collect();
        let arrivals = requests
            .into_iter()
            .zip(&tickets)
            .map(|(request, ticket)| Arrival::Client {
                ticket: *ticket,
                request: Box::new(request),
            })
            .collect();
        let departures = self.process(arrivals);
        tickets
            .iter()
            .map(|ticket| reply_to(*ticket, &departures))
            .collect()
    }

    pub(crate) fn ask_one(&mut self, request: ClientRequest) -> Option<ClientReply> {
        self.ask(vec![request]).remove(0)
    }

    pub(crate) fn peer(&mut self, request: Request) -> Vec<Departure> {
        let ticket = self.ticket();
        self.process(vec![Arrival::PeerRequest {
            ticket,
            correlation: None,
            request: Box::new(request),
        }])
    }

    pub(crate) fn answer(
        &mut self,
        correlation: Correlation,
        response: Response,
    ) -> Vec<Departure> {
        self.process(vec![Arrival::PeerAnswer {
            peer: PEER,
            correlation,
            answer: PeerAnswer::Response(Box::new(response)),
        }])
    }

    /// Lets time pass and `PEER` grant every vote until this node leads.
    pub(crate) fn lead(&mut self) {
        let mut sent = self.outbox.take();
        for _ in 0..100 {
            self.now_ns += 100 * MS;
            sent.extend(self.process(Vec::new()));
            for departure in std::mem::take(&mut sent) {
                if let Departure::Send {
                    peer: PEER,
                    correlation,
                    request,
                    ..
                } = departure
                    && let Request::Vote(vote) = *request
                {
                    sent.extend(self.grant(correlation, &vote));
                }
            }
            if self.node.leader() == Some(ME) {
                return;
            }
        }
        panic!("never elected: {:?}", self.node.describe());
    }

    /// As [`lead`](Self::lead), and commits the first record of the epoch.
    pub(crate) fn lead_and_commit(&mut self) {
        self.lead();
        self.fetch_all(0);
        assert!(self.node.describe().high_watermark.is_some());
    }

    fn grant(&mut self, correlation: Correlation, vote: &VoteRequest) -> Vec<Departure> {
        let response = VoteResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: vote.replica_epoch,
            vote_granted: true,
            leader_endpoint: None,
        };
        self.answer(correlation, Response::Vote(response))
    }

    /// `PEER` fetches from the end of this node's log, and thereby acknowledges all of it.
    pub(crate) fn fetch_all(&mut self, read_round: u64) -> Vec<Departure> {
        let epoch = self.node.epoch();
        self.fetch(epoch, self.node.describe().log_end, read_round)
    }

    /// `PEER` fetches from `from`, and thereby acknowledges everything before.
    pub(crate) fn fetch(&mut self, epoch: Epoch, from: Offset, read_round: u64) -> Vec<Departure> {
        self.peer(Request::Fetch(FetchRequest {
            cluster_id: "test".into(),
            replica: PEER.into(),
            current_leader_epoch: epoch,
            fetch_offset: from,
            last_fetched_epoch: epoch,
            high_watermark: None,
            max_wait_ms: 500,
            max_bytes: 1 << 20,
            read_round,
        }))
    }
}

/// The reply to a client, if it is among what left.
pub(crate) fn reply_to(wanted: Ticket, departures: &[Departure]) -> Option<ClientReply> {
    let mut replies = departures.iter().filter_map(|departure| match departure {
        Departure::ClientReply { ticket, reply } if *ticket == wanted => Some(reply.clone()),
        _ => None,
    });
    let reply = replies.next();
    assert_eq!(replies.next(), None, "two replies to one request");
    reply
}
