//! Owns the rules of replicas that are no voters, of replica keys in votes, and of endpoints.
//! Never waits for real: time is an argument.

use node::batch::Batch;
use node::control_record::ControlRecord;
use node::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey};
use node::message::{
    BeginQuorumEpochRequest, DivergingEpoch, EndQuorumEpochRequest, ErrorCode, FetchResponse,
    Request, Response, VoterChangeResponse,
};
use node::raft::{Configuration, Effect, QuorumState, Recovered, Role};
use node::voters::VoterSet;

use crate::changing::{Changing, configuration, formatted, key, voter, voters, voters_batch};
use crate::cluster::{MS, TIMERS};
use crate::solo::{ME, PEER, Solo, fetch_reply, sends, vote_reply};

/// Records of a leader's first batch in a cluster with these voters.
fn first_batch(epoch: i32, ids: &[i32]) -> Batch {
    let records = [
        ControlRecord::LeaderChange {
            leader: PEER,
            voters: ids.iter().map(|&id| NodeId(id)).collect(),
            granting_voters: vec![PEER],
        },
        ControlRecord::KraftVersion { version: 1 },
        ControlRecord::Voters {
            voters: voters(ids),
        },
    ];
    let payloads = records.map(|record| record.encode());
    Batch::build(Offset(0), Epoch(epoch), 0, true, &payloads)
}

fn answer_fetch(solo: &mut Solo, effects: &[Effect], response: FetchResponse) -> Vec<Effect> {
    let fetch = sends(effects)
        .into_iter()
        .find(|(_, _, request)| matches!(request, Request::Fetch(_)));
    let (peer, correlation, _) = fetch.expect("a fetch");
    solo.answer(peer, correlation, Response::Fetch(response))
}

fn endpoints(effects: &[Effect]) -> Vec<(i32, Option<String>)> {
    let sent = effects.iter().filter_map(|effect| match effect {
        Effect::Send { peer, endpoint, .. } => Some((peer.0, endpoint.clone())),
        _ => None,
    });
    sent.collect()
}

/// KAFKA-16842: it knows no voter, only whom to ask.
#[test]
fn a_replica_that_knows_no_voters_asks_the_bootstrap_servers_and_follows_whom_they_name() {
    let (mut solo, effects) = Solo::start(configuration(None), Recovered::default());
    assert_eq!(solo.replica.role(), Role::Unattached);
    assert_eq!(endpoints(&effects), [(2, None)]);
    let response = FetchResponse {
        error: ErrorCode::NotLeaderOrFollower,
        leader_id: Some(NodeId(5)),
        leader_epoch: Epoch(7),
        leader_endpoint: Some("http://n5".to_owned()),
        ..solo.fetched(Vec::new())
    };
    let effects = answer_fetch(&mut solo, &effects, response);
    assert_eq!(
        (
            solo.replica.role(),
            solo.replica.leader(),
            solo.replica.epoch()
        ),
        (Role::Follower, Some(NodeId(5)), Epoch(7))
    );
    assert_eq!(endpoints(&effects), [(5, Some("http://n5".to_owned()))]);
    assert!(!solo.replica.is_voter());
}

#[test]
fn a_leader_whose_endpoint_nobody_knows_is_remembered_but_not_followed() {
    let (mut solo, effects) = Solo::start(configuration(None), Recovered::default());
    let response = FetchResponse {
        error: ErrorCode::NotLeaderOrFollower,
        leader_id: Some(NodeId(5)),
        leader_epoch: Epoch(7),
        ..solo.fetched(Vec::new())
    };
    answer_fetch(&mut solo, &effects, response);
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Unattached, Some(NodeId(5)))
    );
    let begin = |endpoint: Option<&str>| {
        Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: key(1),
            leader_id: NodeId(5),
            leader_epoch: Epoch(7),
            leader_endpoint: endpoint.map(str::to_owned),
        })
    };
    solo.request(begin(None));
    assert_eq!(solo.replica.role(), Role::Unattached);
    let effects = solo.request(begin(Some("http://n5")));
    assert_eq!(solo.replica.role(), Role::Follower);
    assert_eq!(endpoints(&effects), [(5, Some("http://n5".to_owned()))]);
}

#[test]
fn an_observer_that_loses_its_leader_looks_for_one_and_keeps_its_epoch() {
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(7),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..formatted(&[2, 3, 4])
    };
    let (mut solo, _) = Solo::start(configuration(None), recovered);
    assert_eq!(solo.replica.role(), Role::Follower);
    let effects = solo.tick_after(TIMERS.fetch_timeout_ns);
    assert_eq!(
        (
            solo.replica.role(),
            solo.replica.leader(),
            solo.replica.epoch()
        ),
        (Role::Unattached, Some(PEER), Epoch(7))
    );
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Persist(_)))
    );
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let effects = solo.tick_after(TIMERS.request_timeout_ns);
        asked.extend(sends(&effects).into_iter().map(|(peer, ..)| peer.0));
        assert_eq!(
            solo.replica.role(),
            Role::Unattached,
            "it has no election timer"
        );
    }
    assert_eq!(asked, [2, 3, 4].into());
    // Whoever it asks may still name the same leader.
    let effects = solo.tick_after(TIMERS.request_timeout_ns);
    let effects = if sends(&effects).is_empty() {
        solo.tick_after(TIMERS.request_timeout_ns)
    } else {
        effects
    };
    let response = FetchResponse {
        error: ErrorCode::NotLeaderOrFollower,
        ..solo.fetched(Vec::new())
    };
    answer_fetch(&mut solo, &effects, response);
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Follower, Some(PEER))
    );
}

/// It may be a voter by a record that has not reached it.
#[test]
fn an_observer_votes_and_does_not_stand_for_election_afterwards() {
    let (mut solo, _) = Solo::start(configuration(None), formatted(&[2, 3]));
    for pre_vote in [true, false] {
        let mut request = solo.vote_request(Epoch(1), pre_vote);
        request.voter = key(1);
        request.replica = key(2);
        let effects = solo.request(Request::Vote(request));
        assert!(vote_reply(&effects).vote_granted, "pre-vote: {pre_vote}");
    }
    for _ in 0..10 {
        solo.tick_after(TIMERS.election_timeout_ns);
        assert_eq!(solo.replica.role(), Role::Unattached);
    }
}

#[test]
fn votes_are_for_and_by_replicas_with_their_directories() {
    let recovered = || formatted(&[1, 2, 3]);
    let other_disk = |id: i32| ReplicaKey {
        directory_id: Some(DirectoryId(99)),
        ..key(id)
    };
    let (mut solo, _) = Solo::start(configuration(None), recovered());
    let mut misdirected = solo.vote_request(Epoch(1), false);
    (misdirected.voter, misdirected.replica) = (other_disk(1), key(2));
    let response = vote_reply(&solo.request(Request::Vote(misdirected)));
    assert_eq!(
        (response.error, response.vote_granted),
        (ErrorCode::InvalidVoterKey, false)
    );
    assert_eq!(
        solo.replica.epoch(),
        Epoch(1),
        "the epoch is news all the same"
    );
    let ask = |solo: &mut Solo, replica: ReplicaKey| {
        let mut request = solo.vote_request(Epoch(1), false);
        (request.voter, request.replica) = (key(1), replica);
        vote_reply(&solo.request(Request::Vote(request))).vote_granted
    };
    assert!(ask(&mut solo, key(2)));
    assert!(!ask(&mut solo, other_disk(2)), "another replica of this id");
    assert!(ask(&mut solo, key(2)), "asked again");

    let (mut solo, _) = Solo::start(configuration(None), recovered());
    let effects = loop {
        let effects = solo.tick_at_deadline();
        if solo.replica.role() == Role::Prospective {
            break effects;
        }
    };
    let asked: Vec<_> = sends(&effects)
        .into_iter()
        .map(|(_, _, request)| match request {
            Request::Vote(vote) => (vote.replica, vote.voter),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asked, [(key(1), key(2)), (key(1), key(3))]);
    assert_eq!(
        endpoints(&effects),
        [(2, voter(2).endpoint), (3, voter(3).endpoint)]
    );
}

#[test]
fn a_record_makes_a_voter_and_its_truncation_undoes_that() {
    let (mut follower, fetch) = Changing::following(&[2, 3], None);
    let solo = &mut follower.solo;
    let response = solo.fetched(vec![
        first_batch(3, &[2, 3]),
        voters_batch(3, 3, &[1, 2, 3]),
    ]);
    solo.answer(PEER, fetch, Response::Fetch(response));
    assert!(solo.replica.is_voter() && solo.replica.role() == Role::Follower);
    let effects = solo.flush();
    let response = FetchResponse {
        diverging_epoch: Some(DivergingEpoch {
            epoch: Epoch(3),
            end_offset: Offset(3),
        }),
        ..solo.fetched(Vec::new())
    };
    let effects = answer_fetch(solo, &effects, response);
    assert!(effects.contains(&Effect::Truncate(Offset(3))));
    assert!(!solo.replica.is_voter() && solo.replica.role() == Role::Follower);
    assert_eq!(follower.voter_ids(), [2, 3]);
}

#[test]
fn a_follower_that_is_removed_goes_on_as_an_observer() {
    let (mut follower, fetch) = Changing::following(&[1, 2, 3], None);
    let solo = &mut follower.solo;
    let response = solo.fetched(vec![
        first_batch(3, &[1, 2, 3]),
        voters_batch(3, 3, &[2, 3]),
    ]);
    solo.answer(PEER, fetch, Response::Fetch(response));
    solo.flush();
    assert!(!solo.replica.is_voter());
    solo.tick_after(TIMERS.fetch_timeout_ns);
    assert_eq!(
        solo.replica.role(),
        Role::Unattached,
        "a voter would stand for election"
    );
}

#[test]
fn records_that_cannot_be_read_are_not_appended() {
    let (mut follower, fetch) = Changing::following(&[1, 2, 3], None);
    let solo = &mut follower.solo;
    let unknown = Batch::build(Offset(0), Epoch(3), 0, true, &[r#"{"type":"of-tomorrow"}"#]);
    let response = solo.fetched(vec![unknown]);
    let effects = solo.answer(PEER, fetch, Response::Fetch(response));
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Append(_)))
    );
    assert_eq!(solo.replica.log_end(), Offset(0));
}

/// A leader whose removal is under way; its followers know the record already.
#[test]
fn a_leader_that_is_no_voter_is_fetched_from_until_it_resigns() {
    let (mut follower, fetch) = Changing::following(&[1, 2, 3], None);
    let solo = &mut follower.solo;
    let response = FetchResponse {
        leader_endpoint: Some("http://n2".to_owned()),
        ..solo.fetched(vec![
            first_batch(3, &[1, 2, 3]),
            voters_batch(3, 3, &[1, 3]),
        ])
    };
    solo.answer(PEER, fetch, Response::Fetch(response));
    let effects = solo.flush();
    assert_eq!(endpoints(&effects), [(2, Some("http://n2".to_owned()))]);
    solo.request(Request::EndQuorumEpoch(EndQuorumEpochRequest {
        cluster_id: "test".to_owned(),
        leader_id: PEER,
        leader_epoch: Epoch(3),
        preferred_successors: vec![key(1), key(3)],
        leader_endpoint: Some("http://n2".to_owned()),
    }));
    assert_eq!(
        solo.replica.role(),
        Role::Prospective,
        "the first successor"
    );
}

/// What a leader says of itself is newer than the voters in the log.
#[test]
fn a_leader_that_moved_is_reached_where_it_says() {
    let (mut follower, _) = Changing::following(&[1, 2, 3], None);
    let begin = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        cluster_id: "test".to_owned(),
        voter: key(1),
        leader_id: NodeId(3),
        leader_epoch: Epoch(4),
        leader_endpoint: Some("http://moved".to_owned()),
    });
    let effects = follower.solo.request(begin);
    assert_eq!(endpoints(&effects), [(3, Some("http://moved".to_owned()))]);
    // What others say of it may be older.
    let mut vote = follower.solo.vote_request(Epoch(4), true);
    (vote.voter, vote.replica) = (key(1), key(2));
    let response = vote_reply(&follower.solo.request(Request::Vote(vote)));
    assert_eq!(response.leader_endpoint.as_deref(), Some("http://moved"));
}

/// The voters in the log know nothing of the move, and the leader cannot reach this replica to tell it.
#[test]
fn a_leader_that_moved_is_also_sought_where_others_say_while_it_is_silent() {
    let (mut follower, fetch) = Changing::following(&[1, 2, 3], None);
    let solo = &mut follower.solo;
    // The voters' word first: what another says may be older.
    let mut effects = solo.fail(PEER, fetch);
    let mut asked = Vec::new();
    while asked.len() < 4 {
        let sent = sends(&effects).first().map(|sent| (sent.0, sent.1));
        let endpoint = endpoints(&effects).first().and_then(|sent| sent.1.clone());
        effects = Vec::new();
        if let Some((peer, correlation)) = sent {
            effects = if peer == PEER {
                asked.push(endpoint.unwrap());
                solo.fail(peer, correlation)
            } else {
                let response = FetchResponse {
                    error: ErrorCode::NotLeaderOrFollower,
                    leader_id: Some(PEER),
                    leader_endpoint: Some("http://moved".to_owned()),
                    ..solo.fetched(Vec::new())
                };
                solo.answer(peer, correlation, Response::Fetch(response))
            };
        }
        if sends(&effects).is_empty() {
            effects = solo.tick_at_deadline();
        }
    }
    assert_eq!(
        asked,
        ["http://n2", "http://moved", "http://n2", "http://moved"]
    );
}

/// Another voter has moved to where the leader was.
#[test]
fn who_refuses_in_the_name_of_the_leader_is_not_the_leader() {
    let (mut follower, fetch) = Changing::following(&[1, 2, 3], None);
    let solo = &mut follower.solo;
    let refused = |solo: &Solo, endpoint: &str| {
        Response::Fetch(FetchResponse {
            error: ErrorCode::NotLeaderOrFollower,
            leader_id: Some(PEER),
            leader_endpoint: Some(endpoint.to_owned()),
            ..solo.fetched(Vec::new())
        })
    };
    let response = refused(solo, "http://moved");
    solo.answer(PEER, fetch, response);
    let mut effects = Vec::new();
    let leader_asked = loop {
        let asked = endpoints(&effects).into_iter();
        if let Some((_, endpoint)) = asked.into_iter().find(|(peer, _)| *peer == PEER.0) {
            break endpoint;
        }
        let other = sends(&effects).first().map(|sent| (sent.0, sent.1));
        effects = match other {
            Some((peer, correlation)) => solo.fail(peer, correlation),
            None => solo.tick_at_deadline(),
        };
    };
    assert_eq!(leader_asked.as_deref(), Some("http://moved"));
}

#[test]
fn every_answer_of_a_leader_says_where_it_listens() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let (ticket, effects) = leader.fetch_from(2, Offset(0));
    let (response, _) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!(response.leader_endpoint.as_deref(), Some("http://n1"));
    let mut vote = leader.solo.vote_request(leader.solo.replica.epoch(), true);
    (vote.voter, vote.replica) = (key(1), key(2));
    let response = vote_reply(&leader.solo.request(Request::Vote(vote)));
    assert_eq!(response.leader_endpoint.as_deref(), Some("http://n1"));
}

/// The voters say that n1 listens elsewhere, so n1 tells the leader; once in a fetch timeout.
#[test]
fn a_voter_that_moved_tells_the_leader_until_it_is_listed_rightly() {
    let mut moved = configuration(None);
    moved.endpoint = Some("http://moved".to_owned());
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(3),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..formatted(&[1, 2, 3])
    };
    let (mut solo, mut effects) = Solo::start(moved, recovered);
    let started_ns = solo.now_ns;
    let mut told_at_ms = Vec::new();
    while solo.now_ns < started_ns + 900 * MS {
        let [(peer, correlation, request)] = sends(&effects)[..] else {
            // Nobody is ready: whoever refused is left alone for a moment.
            effects = solo.tick_after(TIMERS.retry_backoff_ns);
            continue;
        };
        let response = match request {
            Request::UpdateRaftVoter(request) => {
                assert_eq!((peer, request.voter), (PEER, key(1)));
                assert_eq!(request.endpoint, "http://moved");
                assert_eq!(request.current_leader_epoch, Epoch(3));
                told_at_ms.push((solo.now_ns - started_ns) / MS);
                Response::UpdateRaftVoter(VoterChangeResponse {
                    error: ErrorCode::RequestTimedOut,
                    message: "not now".to_owned(),
                    leader_id: Some(PEER),
                    leader_epoch: Epoch(3),
                    leader_endpoint: None,
                })
            }
            Request::Fetch(_) => Response::Fetch(solo.fetched(Vec::new())),
            other => panic!("{other:?}"),
        };
        solo.now_ns += 40 * MS;
        effects = solo.answer(peer, correlation, response);
    }
    assert_eq!(told_at_ms, [200, 400, 600, 800]);
}

#[test]
fn a_voter_whose_disk_was_lost_is_no_voter_by_its_id_alone() {
    let mut wiped = configuration(None);
    wiped.directory_id = Some(DirectoryId(99));
    let (solo, _) = Solo::start(wiped, formatted(&[1, 2, 3]));
    assert!(!solo.replica.is_voter());
    // Where directory ids are not known, the id is all there is.
    let configured: VoterSet = (1..=3).map(NodeId).collect();
    let by_id = Configuration {
        directory_id: Some(DirectoryId(99)),
        ..Configuration::of_static_voters(ME, "test", configured, TIMERS, 1)
    };
    let (solo, _) = Solo::start(by_id, Recovered::default());
    assert!(solo.replica.is_voter());
}

/// The others name n1 as the leader; it was another replica with this id.
#[test]
fn a_replica_is_not_the_leader_that_had_its_id_before() {
    let mut wiped = configuration(None);
    wiped.directory_id = Some(DirectoryId(99));
    let (mut solo, effects) = Solo::start(wiped, formatted(&[1, 2, 3]));
    let response = FetchResponse {
        error: ErrorCode::FencedLeaderEpoch,
        leader_id: Some(ME),
        leader_epoch: Epoch(5),
        leader_endpoint: Some("http://n1".to_owned()),
        ..solo.fetched(Vec::new())
    };
    answer_fetch(&mut solo, &effects, response);
    assert_eq!(
        (
            solo.replica.role(),
            solo.replica.epoch(),
            solo.replica.leader()
        ),
        (Role::Unattached, Epoch(5), None)
    );
}

#[test]
#[should_panic(expected = "quorum-state file was lost or rolled back")]
fn a_voter_that_forgot_that_it_led_stops() {
    let (mut solo, effects) = Solo::start(configuration(None), formatted(&[1, 2, 3]));
    let response = FetchResponse {
        error: ErrorCode::FencedLeaderEpoch,
        leader_id: Some(ME),
        leader_epoch: Epoch(5),
        ..solo.fetched(Vec::new())
    };
    answer_fetch(&mut solo, &effects, response);
}

#[test]
fn only_so_many_observers_are_remembered_and_none_that_is_no_replica() {
    let mut solo = Solo::lead(None);
    let observed = |solo: &mut Solo, ids: std::ops::Range<i32>| {
        for id in ids {
            let mut request = solo.fetch_request(Offset(1));
            request.replica = NodeId(id).into();
            let (ticket, effects) = solo.fetch(request);
            assert!(fetch_reply(&effects, ticket).is_some() || effects.is_empty());
        }
        solo.replica.describe().observers.len()
    };
    assert_eq!(observed(&mut solo, -3..0), 0);
    assert_eq!(observed(&mut solo, 100..103), 3);
    let many = observed(&mut solo, 1000..3000);
    assert!((900..=1000).contains(&many), "{many}");
}

/// What a follower that is configured with n1 to n3 does with the first record of its leader.
fn follow_leader_of(voters: &[i32], record_epoch: i32) -> i64 {
    let configured = (1..=3).map(NodeId).collect();
    let configuration = Configuration::of_static_voters(ME, "test", configured, TIMERS, 1);
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(3),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..Recovered::default()
    };
    let (mut solo, effects) = Solo::start(configuration, recovered);
    let record = ControlRecord::LeaderChange {
        leader: PEER,
        voters: voters.iter().map(|&id| NodeId(id)).collect(),
        granting_voters: vec![PEER],
    };
    let batch = Batch::build(Offset(0), Epoch(record_epoch), 0, true, &[record.encode()]);
    let response = solo.fetched(vec![batch]);
    answer_fetch(&mut solo, &effects, response);
    solo.replica.log_end().0
}

#[test]
fn configured_voters_may_have_been_others_once() {
    assert_eq!(follow_leader_of(&[1, 2, 3], 3), 1);
    assert_eq!(follow_leader_of(&[2], 2), 1);
}

#[test]
#[should_panic(
    expected = "n2 leads epoch 3 for the voters n2, but n1 is configured with the voters n1, n2, n3"
)]
fn a_leader_that_other_configured_voters_elected_is_not_followed() {
    follow_leader_of(&[2], 3);
}
