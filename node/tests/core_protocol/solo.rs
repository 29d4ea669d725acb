//! Owns a single replica whose peers are played by the test, for rules about single steps.
//! Never answers by itself.

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset};
use node::message::{
    ErrorCode, FetchRequest, FetchResponse, Request, Response, VoteRequest, VoteResponse,
};
use node::mutants::Bug;
use node::raft::{
    Configuration, Correlation, Effect, Input, PeerAnswer, Recovered, Replica, Role, Ticket,
};

use crate::cluster::{MS, TIMERS};

pub(crate) const ME: NodeId = NodeId(1);
pub(crate) const PEER: NodeId = NodeId(2);
pub(crate) const OTHER: NodeId = NodeId(3);

pub(crate) fn configuration(voter_count: i32, bug: Option<Bug>) -> Configuration {
    Configuration {
        bug,
        ..Configuration::of_static_voters(
            ME,
            "test",
            (1..=voter_count).map(NodeId).collect(),
            TIMERS,
            1,
        )
    }
}

pub(crate) struct Solo {
    pub(crate) replica: Replica,
    pub(crate) now_ns: u64,
    next_ticket: u64,
}

impl Solo {
    pub(crate) fn start(configuration: Configuration, recovered: Recovered) -> (Self, Vec<Effect>) {
        let now_ns = 1_000_000 * MS;
        let (replica, effects) = Replica::start(configuration, recovered, now_ns);
        (
            Self {
                replica,
                now_ns,
                next_ticket: 1,
            },
            effects,
        )
    }

    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        self.replica.step(self.now_ns, input)
    }

    pub(crate) fn tick_at_deadline(&mut self) -> Vec<Effect> {
        self.now_ns = self.replica.next_deadline_ns();
        self.step(Input::Tick)
    }

    pub(crate) fn tick_after(&mut self, duration_ns: u64) -> Vec<Effect> {
        self.now_ns += duration_ns;
        self.step(Input::Tick)
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub(crate) fn request(&mut self, request: Request) -> Vec<Effect> {
        let (ticket, request) = (self.ticket(), Box::new(request));
        self.step(Input::PeerRequest { ticket, request })
    }

    pub(crate) fn answer(
        &mut self,
        peer: NodeId,
        correlation: Correlation,
        response: Response,
    ) -> Vec<Effect> {
        let answer = PeerAnswer::Response(Box::new(response));
        self.step(Input::PeerAnswer {
            peer,
            correlation,
            answer,
        })
    }

    pub(crate) fn fail(&mut self, peer: NodeId, correlation: Correlation) -> Vec<Effect> {
        self.step(Input::PeerAnswer {
            peer,
            correlation,
            answer: PeerAnswer::Failed,
        })
    }

    pub(crate) fn flush(&mut self) -> Vec<Effect> {
        self.step(Input::Flushed {
            log_end: self.replica.log_end(),
        })
    }

    /// A leader of three whose first record is flushed but not yet committed.
    pub(crate) fn lead(bug: Option<Bug>) -> Self {
        Self::lead_from(bug, Recovered::default())
    }

    pub(crate) fn lead_from(bug: Option<Bug>, recovered: Recovered) -> Self {
        let (mut solo, _) = Self::start(configuration(3, bug), recovered);
        let mut effects = Vec::new();
        while solo.replica.role() != Role::Leader {
            let vote = sends(&effects)
                .into_iter()
                .find_map(|(peer, correlation, request)| {
                    matches!(request, Request::Vote(_)).then_some((peer, correlation))
                });
            effects = match vote {
                Some((peer, correlation)) => {
                    let response = solo.vote_response(true);
                    solo.answer(peer, correlation, response)
                }
                None => solo.tick_at_deadline(),
            };
        }
        solo.flush();
        solo
    }

    pub(crate) fn vote_response(&self, vote_granted: bool) -> Response {
        Response::Vote(VoteResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: self.replica.epoch(),
            vote_granted,
            leader_endpoint: None,
        })
    }

    pub(crate) fn vote_request(&self, replica_epoch: Epoch, pre_vote: bool) -> VoteRequest {
        VoteRequest {
            cluster_id: "test".to_owned(),
            voter: ME.into(),
            replica: PEER.into(),
            replica_epoch,
            last_epoch: Epoch(replica_epoch.0 - 1),
            last_offset: Offset(1_000),
            pre_vote,
        }
    }

    /// A fetch of `PEER` that has everything up to `fetch_offset` and knows all that is committed.
    pub(crate) fn fetch_request(&self, fetch_offset: Offset) -> FetchRequest {
        FetchRequest {
            cluster_id: "test".to_owned(),
            replica: PEER.into(),
            current_leader_epoch: self.replica.epoch(),
            fetch_offset,
            last_fetched_epoch: self.replica.epoch(),
            high_watermark: self.replica.high_watermark(),
            max_wait_ms: 50,
            max_bytes: 1_000_000,
            read_round: 0,
        }
    }

    pub(crate) fn fetch(&mut self, request: FetchRequest) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        let request = Box::new(Request::Fetch(request));
        (ticket, self.step(Input::PeerRequest { ticket, request }))
    }

    pub(crate) fn propose(&mut self, command: &[u8]) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        let commands = vec![(ticket, command.to_vec())];
        (
            ticket,
            self.step(Input::Propose {
                timestamp_ms: 0,
                commands,
            }),
        )
    }

    pub(crate) fn read(&mut self) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        (
            ticket,
            self.step(Input::Read {
                tickets: vec![ticket],
            }),
        )
    }

    /// A successful answer of the leader `PEER` to a fetch.
    pub(crate) fn fetched(&self, batches: Vec<Batch>) -> FetchResponse {
        FetchResponse {
            error: ErrorCode::None,
            leader_id: Some(PEER),
            leader_epoch: self.replica.epoch(),
            high_watermark: None,
            log_start_offset: Offset(0),
            diverging_epoch: None,
            read_round: 0,
            batches,
            leader_endpoint: None,
            snapshot_id: None,
        }
    }
}

pub(crate) fn sends(effects: &[Effect]) -> Vec<(NodeId, Correlation, &Request)> {
    let send = |effect: &'_ Effect| match effect {
        Effect::Send {
            peer, correlation, ..
        } => Some((*peer, *correlation)),
        _ => None,
    };
    let requests = effects.iter().filter_map(|effect| match effect {
        Effect::Send { request, .. } => Some(&**request),
        _ => None,
    });
    effects
        .iter()
        .filter_map(send)
        .zip(requests)
        .map(|((p, c), r)| (p, c, r))
        .collect()
}

/// The answer to `ticket`, and from where records are to be returned with it.
pub(crate) fn fetch_reply(
    effects: &[Effect],
    wanted: Ticket,
) -> Option<(FetchResponse, Option<Offset>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::ReplyFetch {
            ticket,
            response,
            from,
            ..
        } if *ticket == wanted => Some(((**response).clone(), *from)),
        Effect::Reply { ticket, response } if *ticket == wanted => match &**response {
            Response::Fetch(response) => Some((response.clone(), None)),
            _ => None,
        },
        _ => None,
    })
}

pub(crate) fn vote_reply(effects: &[Effect]) -> VoteResponse {
    let reply = effects.iter().find_map(|effect| match effect {
        Effect::Reply { response, .. } => match &**response {
            Response::Vote(response) => Some(response.clone()),
            _ => None,
        },
        _ => None,
    });
    reply.expect("every vote request is answered at once")
}

pub(crate) fn ready_reads(effects: &[Effect]) -> Vec<(Ticket, Offset)> {
    let ready = effects.iter().filter_map(|effect| match effect {
        Effect::ReadReady {
            ticket,
            read_offset,
        } => Some((*ticket, *read_offset)),
        _ => None,
    });
    ready.collect()
}
