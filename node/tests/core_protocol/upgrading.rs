//! Owns the rules of the way from configured voters to voters in the log (kraft.version 0 to 1, KIP-853).
//! Never waits for real: time is an argument.

use node::control_record::ControlRecord;
use node::ids::{DirectoryId, NodeId, Offset, ReplicaKey};
use node::message::{
    BeginQuorumEpochRequest, ErrorCode, Request, Response, UpdateFeaturesRequest,
    VoterChangeResponse,
};
use node::raft::{Configuration, Effect, QuorumState, Recovered, Role};
use node::voters::{VersionRange, Voter};

use crate::changing::{Changing, change_reply, key, probe, refusal, voter};
use crate::cluster::{MS, TIMERS};
use crate::solo::{ME, OTHER, PEER, Solo, sends};

/// Replica n1 of three that are configured: it has a directory and says where it listens.
fn configuration() -> Configuration {
    let voters = (1..=3).map(NodeId).collect();
    Configuration {
        directory_id: key(1).directory_id,
        endpoint: voter(1).endpoint,
        ..Configuration::of_static_voters(ME, "test", voters, TIMERS, 1)
    }
}

fn leading() -> Changing {
    let mut leader = Changing::elected_with(configuration(), Recovered::default());
    leader.acknowledge(2);
    assert_eq!(leader.solo.replica.high_watermark(), Some(leader.end()));
    leader
}

fn request(kraft_version: u16) -> UpdateFeaturesRequest {
    UpdateFeaturesRequest {
        cluster_id: "test".to_owned(),
        timeout_ms: 1_000,
        kraft_version,
        dry_run: false,
    }
}

fn upgrade(leader: &mut Changing) -> (node::raft::Ticket, Vec<Effect>) {
    leader.ask(Request::UpdateFeatures(request(1)))
}

/// A voter says where it listens, and is found there.
fn report(leader: &mut Changing, reporting: &Voter) {
    let (ticket, effects) = leader.update(reporting.clone());
    let effects = leader.probed(&effects, reporting);
    let response = change_reply(&effects, ticket).expect("answered at once");
    assert_eq!(response.error, ErrorCode::None, "{response:?}");
}

#[test]
fn what_configured_voters_say_of_themselves_is_kept_and_not_recorded() {
    let mut leader = leading();
    let end = leader.end();
    report(&mut leader, &voter(2));
    report(&mut leader, &voter(2));
    let described = leader.solo.replica.describe();
    assert_eq!((described.kraft_version, described.log_end), (0, end));
    assert!(
        (described.voters.iter())
            .all(|voter| (voter.directory_id, &voter.endpoint) == (None, &None))
    );
}

#[test]
fn configured_voters_that_cannot_be_reached_or_are_none_are_not_noted() {
    let mut leader = leading();
    let (ticket, effects) = leader.update(voter(2));
    let effects = leader.probe_failed(&effects);
    let response = change_reply(&effects, ticket).unwrap();
    assert_eq!(response.error, ErrorCode::RequestTimedOut);
    leader.solo.tick_after(TIMERS.retry_backoff_ns);
    // It keeps silent: nobody waits for it for as long as its fetch timeout.
    let (ticket, effects) = leader.update(voter(2));
    assert!(probe(&effects).is_some());
    let effects = leader.solo.tick_after(TIMERS.fetch_timeout_ns / 4);
    let response = change_reply(&effects, ticket).expect("given up");
    assert_eq!(response.error, ErrorCode::RequestTimedOut);
    leader.solo.tick_after(TIMERS.request_timeout_ns);
    let (ticket, effects) = leader.update(voter(4));
    let effects = leader.probed(&effects, &voter(4));
    let response = change_reply(&effects, ticket).unwrap();
    assert_eq!(response.error, ErrorCode::VoterNotFound, "{response:?}");
}

#[test]
fn all_voters_enter_the_log_in_one_batch_with_the_version() {
    let mut leader = leading();
    for unheard in [2, 3] {
        let (error, message) = refusal(&upgrade(&mut leader));
        assert_eq!(error, ErrorCode::RequestTimedOut);
        assert!(message.starts_with(&format!("n{unheard} ")), "{message}");
        report(&mut leader, &voter(unheard));
    }
    let end = leader.end();
    let (ticket, effects) = upgrade(&mut leader);
    let batches: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Append(batch) => Some(batch),
            _ => None,
        })
        .collect();
    let [batch] = batches[..] else {
        panic!("{batches:?}")
    };
    let records: Vec<_> = batch
        .records()
        .map(|(_, payload)| ControlRecord::decode(payload).unwrap())
        .collect();
    let voters = crate::changing::voters(&[1, 2, 3]);
    let expected = [
        ControlRecord::KraftVersion { version: 1 },
        ControlRecord::Voters { voters },
    ];
    assert_eq!((batch.base_offset(), &records[..]), (end, &expected[..]));
    assert!(
        change_reply(&effects, ticket).is_none(),
        "it is not committed"
    );
    let described = leader.solo.replica.describe();
    assert_eq!(described.kraft_version, 1);
    assert!(described.uncommitted_voter_change);
    assert_eq!(described.voters[2].directory_id, key(3).directory_id);
    assert_eq!(described.observers, [], "nobody is there twice");

    leader.solo.flush();
    let effects = leader.acknowledge(3);
    let response = change_reply(&effects, ticket).expect("it is committed");
    assert_eq!(response.error, ErrorCode::None);
    // What it was for.
    leader.acknowledge(4);
    let (_, effects) = leader.add(4);
    leader.probed(&effects, &voter(4));
    assert_eq!(leader.voter_ids(), [1, 2, 3, 4]);
}

#[test]
fn an_upgrade_that_is_not_committed_in_time_says_so() {
    let mut leader = leading();
    report(&mut leader, &voter(2));
    report(&mut leader, &voter(3));
    let (ticket, mut effects) = upgrade(&mut leader);
    for _ in 0..25 {
        leader.fetch_from(2, Offset(leader.end().0 - 2));
        effects.extend(leader.solo.tick_after(50 * MS));
    }
    let response = change_reply(&effects, ticket).expect("given up");
    assert_eq!(response.error, ErrorCode::RequestTimedOut);
    assert!(response.message.contains("may still be"), "{response:?}");
}

#[test]
fn what_voters_said_is_forgotten_with_the_leadership() {
    let mut leader = leading();
    report(&mut leader, &voter(2));
    report(&mut leader, &voter(3));
    let later = node::ids::Epoch(leader.solo.replica.epoch().0 + 1);
    let asked = leader.solo.vote_request(later, false);
    leader.solo.request(Request::Vote(asked));
    let mut recovered = Changing::elected_with(configuration(), Recovered::default());
    recovered.acknowledge(2);
    assert_eq!(
        refusal(&upgrade(&mut recovered)).0,
        ErrorCode::RequestTimedOut
    );
    assert_eq!(
        refusal(&upgrade(&mut leader)).0,
        ErrorCode::NotLeaderOrFollower
    );
}

#[test]
fn a_version_that_a_voter_or_nobody_knows_or_an_older_one_is_refused() {
    let mut leader = leading();
    report(&mut leader, &voter(2));
    let old = Voter {
        versions: VersionRange { min: 0, max: 0 },
        ..voter(3)
    };
    report(&mut leader, &old);
    let (error, message) = refusal(&upgrade(&mut leader));
    assert_eq!(error, ErrorCode::InvalidRequest);
    assert!(message.contains("0 to 0 only"), "{message}");
    let answered = leader.ask(Request::UpdateFeatures(request(2)));
    assert_eq!(refusal(&answered).0, ErrorCode::UnsupportedVersion);

    let mut in_log = Changing::leading(&[1, 2, 3], None);
    let answered = in_log.ask(Request::UpdateFeatures(request(0)));
    let (error, message) = refusal(&answered);
    assert_eq!(error, ErrorCode::InvalidRequest);
    assert!(message.contains("never goes back"), "{message}");
    let end = in_log.end();
    let (ticket, effects) = upgrade(&mut in_log);
    assert_eq!(
        change_reply(&effects, ticket).unwrap().error,
        ErrorCode::None
    );
    assert_eq!(in_log.end(), end, "it is there already");
}

#[test]
fn a_dry_run_says_whether_it_could_be_done_and_does_nothing() {
    let mut leader = leading();
    let end = leader.end();
    let dry = || {
        let dry_run = true;
        Request::UpdateFeatures(UpdateFeaturesRequest {
            dry_run,
            ..request(1)
        })
    };
    assert_eq!(refusal(&leader.ask(dry())).0, ErrorCode::RequestTimedOut);
    report(&mut leader, &voter(2));
    report(&mut leader, &voter(3));
    let (ticket, effects) = leader.ask(dry());
    assert_eq!(
        change_reply(&effects, ticket).unwrap().error,
        ErrorCode::None
    );
    assert_eq!(
        (leader.end(), leader.solo.replica.describe().kraft_version),
        (end, 0)
    );
}

#[test]
fn voters_without_a_directory_or_an_address_stay_configured() {
    for configuration in [
        Configuration {
            endpoint: None,
            ..configuration()
        },
        Configuration {
            directory_id: None,
            ..configuration()
        },
    ] {
        let mut leader = Changing::elected_with(configuration, Recovered::default());
        leader.acknowledge(2);
        report(&mut leader, &voter(2));
        report(&mut leader, &voter(3));
        let (error, message) = refusal(&upgrade(&mut leader));
        assert_eq!(error, ErrorCode::RequestTimedOut);
        assert!(message.starts_with("n1 "), "{message}");
    }
    let mut leader = leading();
    let nameless = Voter {
        key: ReplicaKey {
            directory_id: Some(DirectoryId(0)),
            ..key(2)
        },
        ..voter(2)
    };
    assert_eq!(
        refusal(&leader.update(nameless)).0,
        ErrorCode::InvalidRequest
    );
}

/// When a configured voter told its leader who it is, in milliseconds, if it is answered with this.
fn told_at_ms(error: ErrorCode) -> Vec<u64> {
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: node::ids::Epoch(3),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..Recovered::default()
    };
    let (mut solo, mut effects) = Solo::start(configuration(), recovered);
    let started_ns = solo.now_ns;
    let mut told_at_ms = Vec::new();
    while solo.now_ns < started_ns + 1_000 * MS {
        let Some((peer, correlation, request)) = sends(&effects).into_iter().next() else {
            effects = solo.tick_after(MS);
            continue;
        };
        let response = match request {
            Request::UpdateRaftVoter(request) => {
                assert_eq!((peer, request.voter), (PEER, key(1)));
                assert_eq!(request.endpoint, "http://n1");
                told_at_ms.push((solo.now_ns - started_ns) / MS);
                Response::UpdateRaftVoter(VoterChangeResponse {
                    error,
                    message: String::new(),
                    leader_id: Some(PEER),
                    leader_epoch: node::ids::Epoch(3),
                    leader_endpoint: None,
                })
            }
            Request::Fetch(_) => {
                assert_eq!(peer, PEER, "whoever answers is there, and is fetched from");
                Response::Fetch(solo.fetched(Vec::new()))
            }
            other => panic!("{other:?}"),
        };
        solo.now_ns += 40 * MS;
        effects = solo.answer(peer, correlation, response);
    }
    told_at_ms
}

#[test]
fn a_configured_voter_tells_its_leader_once_who_it_is_and_again_if_that_was_not_taken() {
    assert_eq!(told_at_ms(ErrorCode::None), [200]);
    assert_eq!(told_at_ms(ErrorCode::RequestTimedOut), [200, 400, 600, 800]);
}

/// No log says where configured voters listen, so what they say themselves is all there is (KIP-853).
#[test]
fn a_configured_voter_is_reached_where_it_says_that_it_listens() {
    let endpoint_of = |effects: &[Effect], wanted: NodeId| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send { peer, endpoint, .. } if *peer == wanted => Some(endpoint.clone()),
            _ => None,
        })
    };
    let (mut solo, _) = Solo::start(configuration(), Recovered::default());
    let begin = |leader_id: NodeId| {
        Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: key(1),
            leader_id,
            leader_epoch: node::ids::Epoch(4),
            leader_endpoint: Some("http://moved".to_owned()),
        })
    };
    // Nobody else can lead, wherever it listens.
    solo.request(begin(NodeId(9)));
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Unattached, None)
    );
    let effects = solo.request(begin(PEER));
    assert_eq!(solo.replica.leader(), Some(PEER));
    assert_eq!(
        endpoint_of(&effects, PEER),
        Some(Some("http://moved".to_owned()))
    );

    let mut leader = leading();
    let mut moved = voter(3);
    moved.endpoint = Some("http://moved".to_owned());
    report(&mut leader, &moved);
    let mut effects = Vec::new();
    while endpoint_of(&effects, OTHER).is_none() {
        effects = leader.solo.tick_at_deadline();
        assert_eq!(leader.solo.replica.role(), Role::Leader);
    }
    assert_eq!(endpoint_of(&effects, OTHER), Some(moved.endpoint));
}
