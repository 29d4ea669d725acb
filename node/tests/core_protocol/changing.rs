//! Owns a single leader or follower among voters that can change, whose peers are played by the test.
//! Never answers by itself.

use node::batch::Batch;
use node::control_record::ControlRecord;
use node::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey};
use node::message::{
    AddRaftVoterRequest, ApiVersionsResponse, ErrorCode, QuorumEpochResponse,
    RemoveRaftVoterRequest, Request, Response, UpdateRaftVoterRequest, VoterChangeResponse,
};
use node::mutants::Bug;
use node::raft::{
    Configuration, Correlation, Effect, Input, PeerAnswer, QuorumState, RecordedVoters, Recovered,
    Role, Ticket,
};
use node::voters::{VersionRange, Voter, VoterSet};

use crate::cluster::TIMERS;
use crate::solo::{ME, Solo, fetch_reply, sends};

/// The replica of this id: its directory id is the same number.
pub(crate) fn key(id: i32) -> ReplicaKey {
    ReplicaKey {
        id: NodeId(id),
        directory_id: Some(DirectoryId(id as u128)),
    }
}

pub(crate) fn voter(id: i32) -> Voter {
    Voter {
        key: key(id),
        endpoint: Some(format!("http://n{id}")),
        versions: VersionRange::SUPPORTED,
    }
}

pub(crate) fn voters(ids: &[i32]) -> VoterSet {
    ids.iter().map(|&id| voter(id)).collect()
}

/// Replica n1, which learns the voters from its log or snapshot.
pub(crate) fn configuration(bug: Option<Bug>) -> Configuration {
    Configuration {
        bug,
        directory_id: key(1).directory_id,
        endpoint: voter(1).endpoint,
        bootstrap: [NodeId(2)].into(),
        ..Configuration::of_static_voters(ME, "test", VoterSet::default(), TIMERS, 1)
    }
}

/// What formatting with these initial voters leaves.
pub(crate) fn formatted(ids: &[i32]) -> Recovered {
    Recovered {
        snapshot_voters: Some(RecordedVoters {
            kraft_version: 1,
            voters: voters(ids),
        }),
        ..Recovered::default()
    }
}

pub(crate) fn voters_batch(offset: i64, epoch: i32, ids: &[i32]) -> Batch {
    let record = ControlRecord::Voters {
        voters: voters(ids),
    };
    Batch::build(Offset(offset), Epoch(epoch), 0, true, &[record.encode()])
}

pub(crate) struct Changing {
    pub(crate) solo: Solo,
}

impl Changing {
    /// A leader that was just elected: its first batch is durable here and nowhere else.
    pub(crate) fn elected(ids: &[i32], bug: Option<Bug>) -> Self {
        Self::elected_from(formatted(ids), bug)
    }

    pub(crate) fn elected_from(recovered: Recovered, bug: Option<Bug>) -> Self {
        Self::elected_with(configuration(bug), recovered)
    }

    pub(crate) fn elected_with(configuration: Configuration, recovered: Recovered) -> Self {
        let (mut solo, mut effects) = Solo::start(configuration, recovered);
        while solo.replica.role() != Role::Leader {
            let asked = sends(&effects)
                .into_iter()
                .map(|(peer, correlation, request)| {
                    let is_vote = matches!(request, Request::Vote(_));
                    is_vote.then_some((peer, correlation))
                });
            let votes: Vec<_> = asked.flatten().collect();
            effects = Vec::new();
            if votes.is_empty() {
                effects = solo.tick_at_deadline();
            }
            for (peer, correlation) in votes {
                let response = solo.vote_response(true);
                effects.extend(solo.answer(peer, correlation, response));
            }
        }
        for (peer, correlation, request) in sends(&effects) {
            assert!(matches!(request, Request::BeginQuorumEpoch(_)));
            let response = Response::BeginQuorumEpoch(QuorumEpochResponse {
                error: ErrorCode::None,
                leader_id: Some(ME),
                leader_epoch: solo.replica.epoch(),
                leader_endpoint: None,
            });
            solo.answer(peer, correlation, response);
        }
        solo.flush();
        Self { solo }
    }

    /// A leader that knows what is committed: everything in its log.
    pub(crate) fn leading(ids: &[i32], bug: Option<Bug>) -> Self {
        let mut changing = Self::elected(ids, bug);
        for &id in ids.iter().filter(|&&id| id != 1) {
            changing.acknowledge(id);
        }
        assert_eq!(changing.solo.replica.high_watermark(), Some(changing.end()));
        changing
    }

    /// A follower of n2 in epoch 3 with these voters, all in its log.
    pub(crate) fn following(ids: &[i32], bug: Option<Bug>) -> (Self, Correlation) {
        let recovered = Recovered {
            quorum_state: Some(QuorumState {
                epoch: Epoch(3),
                leader: Some(NodeId(2)),
                voted_for: None,
            }),
            ..formatted(ids)
        };
        let (solo, effects) = Solo::start(configuration(bug), recovered);
        let fetch = sends(&effects)[0].1;
        (Self { solo }, fetch)
    }

    pub(crate) fn end(&self) -> Offset {
        self.solo.replica.log_end()
    }

    pub(crate) fn voter_ids(&self) -> Vec<i32> {
        let described = self.solo.replica.describe();
        described.voters.iter().map(|voter| voter.id.0).collect()
    }

    /// A replica fetches from the end of the log: it has everything.
    pub(crate) fn acknowledge(&mut self, id: i32) -> Vec<Effect> {
        self.fetch_from(id, self.end()).1
    }

    pub(crate) fn fetch_from(&mut self, id: i32, offset: Offset) -> (Ticket, Vec<Effect>) {
        let mut request = self.solo.fetch_request(offset);
        request.replica = key(id);
        request.max_wait_ms = 0;
        let (ticket, effects) = self.solo.fetch(request);
        assert!(fetch_reply(&effects, ticket).is_some());
        (ticket, effects)
    }

    pub(crate) fn ask(&mut self, request: Request) -> (Ticket, Vec<Effect>) {
        let ticket = self.solo.ticket();
        let request = Box::new(request);
        let effects = self.solo.step(Input::PeerRequest { ticket, request });
        (ticket, effects)
    }

    pub(crate) fn add(&mut self, id: i32) -> (Ticket, Vec<Effect>) {
        self.ask(Request::AddRaftVoter(add_request(id)))
    }

    pub(crate) fn remove(&mut self, voter: ReplicaKey) -> (Ticket, Vec<Effect>) {
        self.ask(Request::RemoveRaftVoter(RemoveRaftVoterRequest {
            cluster_id: "test".to_owned(),
            voter,
        }))
    }

    pub(crate) fn update(&mut self, voter: Voter) -> (Ticket, Vec<Effect>) {
        self.ask(Request::UpdateRaftVoter(self.update_request(voter)))
    }

    pub(crate) fn update_request(&self, voter: Voter) -> UpdateRaftVoterRequest {
        UpdateRaftVoterRequest {
            cluster_id: "test".to_owned(),
            current_leader_epoch: self.solo.replica.epoch(),
            voter: voter.key,
            endpoint: voter.endpoint.unwrap_or_default(),
            versions: voter.versions,
        }
    }

    /// Answers the probe among these effects.
    pub(crate) fn probed(&mut self, effects: &[Effect], voter: &Voter) -> Vec<Effect> {
        let (peer, correlation) = probe(effects).expect("a probe");
        let response = Response::ApiVersions(ApiVersionsResponse {
            error: ErrorCode::None,
            replica: voter.key,
            versions: voter.versions,
        });
        self.solo.answer(peer, correlation, response)
    }

    pub(crate) fn probe_failed(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let (peer, correlation) = probe(effects).expect("a probe");
        let answer = PeerAnswer::Failed;
        self.solo.step(Input::PeerAnswer {
            peer,
            correlation,
            answer,
        })
    }

    /// An observer that has everything becomes a voter by a record that is durable here only.
    pub(crate) fn add_appended(&mut self, id: i32) -> Ticket {
        self.acknowledge(id);
        let (ticket, effects) = self.add(id);
        self.probed(&effects, &voter(id));
        assert!(self.voter_ids().contains(&id));
        self.solo.flush();
        ticket
    }
}

pub(crate) fn add_request(id: i32) -> AddRaftVoterRequest {
    AddRaftVoterRequest {
        cluster_id: "test".to_owned(),
        timeout_ms: 1_000,
        voter: key(id),
        endpoint: format!("http://n{id}"),
        ack_when_committed: true,
    }
}

/// Whom a leader asks who it is.
pub(crate) fn probe(effects: &[Effect]) -> Option<(NodeId, Correlation)> {
    sends(effects)
        .into_iter()
        .find(|(_, _, request)| matches!(request, Request::ApiVersions(_)))
        .map(|(peer, correlation, _)| (peer, correlation))
}

/// The answer to a change of the voters.
pub(crate) fn change_reply(effects: &[Effect], wanted: Ticket) -> Option<VoterChangeResponse> {
    effects.iter().find_map(|effect| match effect {
        Effect::Reply { ticket, response } if *ticket == wanted => match &**response {
            Response::AddRaftVoter(response)
            | Response::RemoveRaftVoter(response)
            | Response::UpdateRaftVoter(response)
            | Response::UpdateFeatures(response) => Some(response.clone()),
            _ => None,
        },
        _ => None,
    })
}

/// Outcome and explanation; every refusal explains itself.
#[track_caller]
pub(crate) fn refusal((ticket, effects): &(Ticket, Vec<Effect>)) -> (ErrorCode, String) {
    let response = change_reply(effects, *ticket).expect("answered at once");
    assert!(response.error != ErrorCode::None && !response.message.is_empty());
    (response.error, response.message)
}
