//! Owns the rules of single steps in changing the voters: who may, when, and what is answered (KIP-853).
//! Never waits for real: time is an argument.

use node::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey};
use node::message::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeQuorumRequest, ErrorCode, Request, Response,
    VoterChangeResponse,
};
use node::raft::{Effect, Input, Role};
use node::trace::TraceEvent;
use node::voters::{VersionRange, Voter};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::changing::{Changing, add_request, change_reply, key, probe, refusal, voter};
use crate::cluster::{MS, TIMERS};
use crate::solo::{PEER, Solo, configuration as static_configuration, ready_reads, sends};

const FIRST_DIRECTORY: ReplicaKey = ReplicaKey {
    id: NodeId(2),
    directory_id: Some(DirectoryId(77)),
};

fn outcome(effects: &[Effect], ticket: node::raft::Ticket) -> Option<ErrorCode> {
    change_reply(effects, ticket).map(|response| response.error)
}

#[test]
fn only_the_leader_changes_voters_and_others_say_who_leads() {
    let (mut follower, _) = Changing::following(&[1, 2, 3], None);
    for answered in [
        follower.add(4),
        follower.remove(key(3)),
        follower.update(voter(1)),
    ] {
        let (error, message) = refusal(&answered);
        assert_eq!(error, ErrorCode::NotLeaderOrFollower);
        assert!(message.contains("n2"), "{message}");
        let response = change_reply(&answered.1, answered.0).unwrap();
        assert_eq!(response.leader_id, Some(NodeId(2)));
        assert_eq!(response.leader_epoch, Epoch(3));
        assert_eq!(response.leader_endpoint.as_deref(), Some("http://n2"));
    }
}

#[test]
fn requests_that_name_no_voter_or_no_endpoint_are_refused() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let mut nameless = add_request(4);
    nameless.voter.directory_id = None;
    let mut negative = add_request(4);
    negative.voter.id = NodeId(-1);
    let mut nowhere = add_request(4);
    nowhere.endpoint.clear();
    for request in [nameless, negative, nowhere] {
        let answered = leader.ask(Request::AddRaftVoter(request));
        assert_eq!(refusal(&answered).0, ErrorCode::InvalidRequest);
    }
    let answered = leader.remove(NodeId(2).into());
    assert_eq!(refusal(&answered).0, ErrorCode::InvalidRequest);
    let backwards = Voter {
        versions: VersionRange { min: 1, max: 0 },
        ..voter(2)
    };
    let nowhere = Voter {
        endpoint: None,
        ..voter(2)
    };
    for update in [backwards, nowhere] {
        assert_eq!(refusal(&leader.update(update)).0, ErrorCode::InvalidRequest);
    }
    assert_eq!(leader.voter_ids(), [1, 2, 3]);
}

#[test]
fn one_change_at_a_time() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let (_, effects) = leader.add(4);
    assert!(probe(&effects).is_some(), "while it is asked");
    for answered in [
        leader.add(5),
        leader.remove(key(3)),
        leader.update(voter(2)),
    ] {
        assert_eq!(refusal(&answered).0, ErrorCode::RequestTimedOut);
    }
    leader.probed(&effects, &voter(4));
    leader.solo.flush();
    for answered in [
        leader.add(5),
        leader.remove(key(3)),
        leader.update(voter(2)),
    ] {
        assert_eq!(refusal(&answered).0, ErrorCode::RequestTimedOut);
    }
    leader.acknowledge(2);
    leader.acknowledge(3);
    let (ticket, effects) = leader.remove(key(3));
    assert_eq!(outcome(&effects, ticket), None, "now it may begin");
    assert_eq!(leader.voter_ids(), [1, 2, 4]);
}

/// The fix of the mistake of 2015 (raft-dev).
#[test]
fn nothing_changes_before_the_leader_knows_what_is_committed() {
    let mut leader = Changing::elected(&[1, 2, 3], None);
    assert_eq!(leader.solo.replica.high_watermark(), None);
    for answered in [
        leader.add(4),
        leader.remove(key(3)),
        leader.update(voter(2)),
    ] {
        let (error, message) = refusal(&answered);
        assert_eq!(error, ErrorCode::RequestTimedOut);
        assert!(message.contains("committed"), "{message}");
    }
}

#[test]
fn configured_voters_do_not_change() {
    let mut solo = Solo::lead(None);
    let request = solo.fetch_request(Offset(1));
    solo.fetch(request);
    let mut leader = Changing { solo };
    for answered in [leader.add(4), leader.remove(key(3))] {
        let (error, message) = refusal(&answered);
        assert_eq!(error, ErrorCode::UnsupportedVersion);
        assert!(message.contains("kraft-node upgrade"), "{message}");
    }
    assert_eq!(leader.solo.replica.describe().kraft_version, 0);
}

/// A change that is given up stays in the log, so it still stands in the way of the next.
#[test]
fn the_last_change_must_be_committed_even_if_nobody_waits_for_it() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let added = leader.add_appended(4);
    let mut effects = Vec::new();
    for _ in 0..21 {
        // A majority of the old set follows, so it leads on; but nobody gets the record.
        for id in [2, 3, 4] {
            let before = Offset(leader.end().0 - 1);
            leader.fetch_from(id, before);
        }
        effects.extend(leader.solo.tick_after(50 * MS));
    }
    let response = change_reply(&effects, added).expect("given up");
    assert_eq!(response.error, ErrorCode::RequestTimedOut);
    assert!(
        response.message.contains("may still be committed"),
        "{}",
        response.message
    );
    for answered in [leader.add(5), leader.remove(key(3))] {
        let (error, message) = refusal(&answered);
        assert_eq!(error, ErrorCode::RequestTimedOut);
        assert!(message.contains("not committed"), "{message}");
    }
    let (ticket, effects) = leader.update(Voter {
        endpoint: Some("http://elsewhere".to_owned()),
        ..voter(2)
    });
    let effects = leader.probed(&effects, &voter(2));
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
    leader.acknowledge(2);
    leader.acknowledge(3);
    let (ticket, effects) = leader.remove(key(3));
    assert_eq!(outcome(&effects, ticket), None);
}

#[test]
fn an_id_is_in_the_set_once() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    assert_eq!(refusal(&leader.add(2)).0, ErrorCode::DuplicateVoter);
    assert_eq!(refusal(&leader.add(1)).0, ErrorCode::DuplicateVoter);
    let mut other_disk = add_request(2);
    other_disk.voter = FIRST_DIRECTORY;
    let answered = leader.ask(Request::AddRaftVoter(other_disk));
    assert_eq!(refusal(&answered).0, ErrorCode::DuplicateVoter);
}

#[test]
fn a_new_voter_is_asked_at_the_endpoint_it_will_have() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let (_, effects) = leader.add(4);
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Send {
            peer,
            endpoint,
            request,
            ..
        } if matches!(**request, Request::ApiVersions(_)) => Some((*peer, endpoint.clone())),
        _ => None,
    });
    assert_eq!(asked, Some((NodeId(4), Some("http://n4".to_owned()))));
}

#[test]
fn a_voter_that_does_not_answer_is_not_added() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let (ticket, effects) = leader.add(4);
    let effects = leader.probe_failed(&effects);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
    // And is left alone for a while.
    assert_eq!(refusal(&leader.add(4)).0, ErrorCode::RequestTimedOut);
    leader.solo.tick_after(TIMERS.retry_backoff_ns);
    let mut impatient = add_request(4);
    impatient.timeout_ms = 20;
    let (ticket, effects) = leader.ask(Request::AddRaftVoter(impatient));
    let asked = probe(&effects).unwrap();
    let effects = leader.solo.tick_after(20 * MS);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
    // Its answer comes too late to change anything.
    let response = Response::ApiVersions(ApiVersionsResponse {
        error: ErrorCode::None,
        replica: key(4),
        versions: VersionRange::SUPPORTED,
    });
    leader.solo.answer(asked.0, asked.1, response);
    assert_eq!(leader.voter_ids(), [1, 2, 3]);
}

/// However long its client is ready to wait, it must not keep others from changing the voters.
#[test]
fn a_voter_that_keeps_silent_blocks_no_further_change() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let mut patient = add_request(4);
    patient.timeout_ms = u64::MAX;
    let (ticket, effects) = leader.ask(Request::AddRaftVoter(patient));
    assert!(probe(&effects).is_some());
    let effects = leader.solo.tick_after(TIMERS.request_timeout_ns);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
    leader.solo.tick_after(TIMERS.retry_backoff_ns);
    let (_, effects) = leader.add(4);
    assert!(probe(&effects).is_some(), "it may be asked again");
}

#[test]
fn a_voter_must_be_who_it_is_said_to_be_and_support_what_is_in_force() {
    let other_disk = Voter {
        key: ReplicaKey {
            directory_id: Some(DirectoryId(99)),
            ..key(4)
        },
        ..voter(4)
    };
    let too_old = Voter {
        versions: VersionRange { min: 0, max: 0 },
        ..voter(4)
    };
    for wrong in [other_disk, voter(5), too_old] {
        let mut leader = Changing::leading(&[1, 2, 3], None);
        leader.acknowledge(4);
        let (ticket, effects) = leader.add(4);
        let effects = leader.probed(&effects, &wrong);
        let response = change_reply(&effects, ticket).unwrap();
        assert_eq!(response.error, ErrorCode::InvalidRequest, "{wrong:?}");
        assert_eq!(leader.voter_ids(), [1, 2, 3]);
        // It is over, so the next may begin.
        let (_, effects) = leader.add(4);
        assert!(probe(&effects).is_some());
    }
}

#[test]
fn a_voter_must_have_caught_up() {
    let answer_of = |prepare: fn(&mut Changing)| {
        let mut leader = Changing::leading(&[1, 2, 3], None);
        prepare(&mut leader);
        let (ticket, effects) = leader.add(4);
        let effects = leader.probed(&effects, &voter(4));
        outcome(&effects, ticket)
    };
    let timed_out = Some(ErrorCode::RequestTimedOut);
    assert_eq!(answer_of(|_| {}), timed_out, "never seen");
    assert_eq!(
        answer_of(|leader| {
            leader.fetch_from(4, Offset(0));
        }),
        timed_out,
        "far behind"
    );
    assert_eq!(
        answer_of(|leader| {
            leader.acknowledge(4);
            for _ in 0..3_001 {
                leader.acknowledge(2);
                leader.acknowledge(3);
                leader.solo.tick_after(100 * MS);
            }
        }),
        timed_out,
        "not seen for 300 seconds"
    );
    let added = answer_of(|leader| {
        leader.acknowledge(4);
    });
    assert_eq!(added, None, "it waits for the commit");
}

#[test]
fn an_addition_is_answered_on_commit_or_at_once() {
    for ack_when_committed in [true, false] {
        let mut leader = Changing::leading(&[1, 2, 3], None);
        leader.acknowledge(4);
        let request = node::message::AddRaftVoterRequest {
            ack_when_committed,
            ..add_request(4)
        };
        let (ticket, effects) = leader.ask(Request::AddRaftVoter(request));
        let effects = leader.probed(&effects, &voter(4));
        let at_once = outcome(&effects, ticket);
        assert_eq!(at_once, (!ack_when_committed).then_some(ErrorCode::None));
        let appended = effects.iter().find_map(|effect| match effect {
            Effect::Trace(traced) => match &traced.event {
                TraceEvent::VotersAppended {
                    offset,
                    voters,
                    kraft_version,
                } => Some((*offset, voters.join(" "), *kraft_version)),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(appended, Some((Offset(3), "n1 n2 n3 n4".to_owned(), 1)));
        leader.solo.flush();
        // Of four, three must have it.
        let effects = leader.acknowledge(2);
        assert_eq!(outcome(&effects, ticket), None);
        assert!(leader.solo.replica.describe().uncommitted_voter_change);
        let effects = leader.acknowledge(4);
        assert_eq!(
            outcome(&effects, ticket),
            ack_when_committed.then_some(ErrorCode::None)
        );
        assert!(!leader.solo.replica.describe().uncommitted_voter_change);
    }
}

#[test]
fn only_a_voter_can_be_removed_and_not_the_last() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    for absent in [key(4), FIRST_DIRECTORY] {
        assert_eq!(refusal(&leader.remove(absent)).0, ErrorCode::VoterNotFound);
    }
    let mut alone = Changing::leading(&[1], None);
    let (error, message) = refusal(&alone.remove(key(1)));
    assert_eq!(error, ErrorCode::VoterNotFound);
    assert!(message.contains("only voter"), "{message}");
}

#[test]
fn a_removal_is_in_force_at_once_and_answered_on_commit() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let (ticket, effects) = leader.remove(key(3));
    assert_eq!(outcome(&effects, ticket), None);
    assert_eq!(leader.voter_ids(), [1, 2]);
    leader.solo.flush();
    let effects = leader.acknowledge(3);
    assert_eq!(
        outcome(&effects, ticket),
        None,
        "it does not count any more"
    );
    let effects = leader.acknowledge(2);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::None));
    // The removed replica is an observer now, and never told who leads.
    assert_eq!(leader.solo.replica.describe().observers[0].id, NodeId(3));
    for _ in 0..5 {
        leader.acknowledge(2);
        let effects = leader.solo.tick_after(100 * MS);
        assert!(sends(&effects).iter().all(|(peer, ..)| *peer != NodeId(3)));
    }
}

#[test]
fn an_update_lists_a_voter_where_it_says() {
    let moved = Voter {
        endpoint: Some("http://elsewhere".to_owned()),
        ..voter(2)
    };
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let (ticket, effects) = leader.update(moved.clone());
    let effects = leader.probed(&effects, &moved);
    assert_eq!(
        outcome(&effects, ticket),
        Some(ErrorCode::None),
        "not on commit"
    );
    let described = leader.solo.replica.describe();
    assert_eq!(described.voters[1].endpoint, moved.endpoint);
    assert_eq!(
        refusal(&leader.add(4)).0,
        ErrorCode::RequestTimedOut,
        "under way"
    );
    leader.solo.flush();
    leader.acknowledge(2);
    // The same again changes nothing, so there is nothing to wait for.
    let end = leader.end();
    let (ticket, effects) = leader.update(moved.clone());
    let effects = leader.probed(&effects, &moved);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::None));
    assert_eq!(leader.end(), end);
}

#[test]
fn an_update_must_be_of_this_epoch_of_a_voter_and_true() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    for (step, expected) in [
        (-1, ErrorCode::FencedLeaderEpoch),
        (1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = leader.update_request(voter(2));
        request.current_leader_epoch.0 += step;
        let answered = leader.ask(Request::UpdateRaftVoter(request));
        assert_eq!(refusal(&answered).0, expected);
    }
    let (ticket, effects) = leader.update(voter(4));
    let effects = leader.probed(&effects, &voter(4));
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::VoterNotFound));
    let boasting = Voter {
        versions: VersionRange { min: 0, max: 9 },
        ..voter(2)
    };
    let (ticket, effects) = leader.update(boasting);
    let effects = leader.probed(&effects, &voter(2));
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::InvalidRequest));
    let too_old = Voter {
        versions: VersionRange { min: 0, max: 0 },
        ..voter(3)
    };
    let (ticket, effects) = leader.update(too_old.clone());
    let effects = leader.probed(&effects, &too_old);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::InvalidRequest));
    let (ticket, effects) = leader.update(voter(2));
    let effects = leader.probe_failed(&effects);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
}

#[test]
fn whoever_waits_for_a_change_hears_that_the_leader_stepped_down() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    let added = leader.add_appended(4);
    let effects = leader.solo.step(Input::Shutdown);
    let response = change_reply(&effects, added).unwrap();
    assert_eq!(response.error, ErrorCode::NotLeaderOrFollower);
    assert!(
        response.message.contains("may have been made"),
        "{}",
        response.message
    );
    // Whoever comes now asks a node that stops.
    for answered in [
        leader.add(5),
        leader.remove(key(3)),
        leader.update(voter(2)),
    ] {
        let (error, message) = refusal(&answered);
        assert_eq!(error, ErrorCode::BrokerNotAvailable);
        assert!(message.contains("shutting down"), "{message}");
    }

    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let (asked, _) = leader.add(4);
    let vote = node::message::VoteRequest {
        voter: key(1),
        replica: key(2),
        ..leader.solo.vote_request(Epoch(9), false)
    };
    let (_, effects) = leader.ask(Request::Vote(vote));
    let response = change_reply(&effects, asked).unwrap();
    assert_eq!(response.error, ErrorCode::NotLeaderOrFollower);
    assert!(
        response.message.contains("was not made"),
        "{}",
        response.message
    );
}

/// KAFKA-16530, KAFKA-16531: outside the set, it neither counts for commits, nor for its own quorum,
/// nor for reads.
#[test]
fn a_removed_leader_leads_on_without_counting() {
    let mut leader = Changing::leading(&[1, 2, 3, 4], None);
    let committed = leader.end();
    let (removed, _) = leader.remove(key(1));
    leader.solo.flush();
    assert_eq!(leader.voter_ids(), [2, 3, 4]);
    let (read, _) = leader.solo.read();
    let echo = |leader: &mut Changing, id: i32, offset: Offset| {
        let mut request = leader.solo.fetch_request(offset);
        request.replica = key(id);
        request.read_round = 1;
        leader.solo.fetch(request).1
    };
    let effects = echo(&mut leader, 2, committed);
    assert_eq!(ready_reads(&effects), [], "one of three confirms nothing");
    let effects = echo(&mut leader, 3, committed);
    assert_eq!(ready_reads(&effects), [(read, committed)]);
    let effects = leader.acknowledge(2);
    assert_eq!(
        outcome(&effects, removed),
        None,
        "one of three commits nothing"
    );
    assert_eq!(leader.solo.replica.role(), Role::Leader);
    let effects = leader.acknowledge(3);
    assert_eq!(outcome(&effects, removed), Some(ErrorCode::None));
    assert_eq!(leader.solo.replica.role(), Role::Resigned);
    let told: Vec<_> = sends(&effects)
        .into_iter()
        .filter(|(_, _, request)| matches!(request, Request::EndQuorumEpoch(_)))
        .map(|(peer, ..)| peer.0)
        .collect();
    assert_eq!(told, [2, 3, 4]);
}

#[test]
fn a_removed_leader_needs_a_majority_of_the_others_to_lead_on() {
    for (following, leads) in [(&[2][..], false), (&[2, 3], true)] {
        let mut leader = Changing::leading(&[1, 2, 3, 4], None);
        let committed = leader.end();
        leader.remove(key(1));
        leader.solo.flush();
        for _ in 0..20 {
            for &id in following {
                leader.fetch_from(id, committed);
            }
            leader.solo.tick_after(50 * MS);
        }
        let role = leader.solo.replica.role();
        assert_eq!(role == Role::Leader, leads, "{following:?} of three follow");
    }
}

/// A leader that was alone has not looked for followers for a long time.
#[test]
fn a_leader_that_was_alone_gives_its_first_follower_time() {
    let mut leader = Changing::leading(&[1], None);
    leader.solo.tick_after(60_000 * MS);
    leader.add_appended(2);
    leader.solo.tick_after(100 * MS);
    assert_eq!(leader.solo.replica.role(), Role::Leader);
    leader.acknowledge(2);
    assert_eq!(leader.solo.replica.high_watermark(), Some(leader.end()));
    for _ in 0..8 {
        leader.solo.tick_after(50 * MS);
    }
    assert_eq!(
        leader.solo.replica.role(),
        Role::Resigned,
        "it is not alone now"
    );
}

#[test]
fn the_quorum_is_described_by_the_leader_only() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    leader.solo.tick_after(30 * MS);
    let describe = || {
        Request::DescribeQuorum(DescribeQuorumRequest {
            cluster_id: "test".to_owned(),
        })
    };
    let described = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { response, .. } => match *response {
                Response::DescribeQuorum(response) => Some(response),
                _ => None,
            },
            _ => None,
        })
    };
    let quorum = described(leader.ask(describe()).1).unwrap();
    assert_eq!(quorum.error, ErrorCode::None);
    assert_eq!(quorum.leader_endpoint.as_deref(), Some("http://n1"));
    assert_eq!(quorum.high_watermark, Some(leader.end()));
    let ages = |replica: &node::message::ReplicaState| {
        (
            replica.key,
            replica.since_last_fetch_ms,
            replica.since_last_caught_up_ms,
        )
    };
    let voters: Vec<_> = quorum.current_voters.iter().map(ages).collect();
    assert_eq!(
        voters,
        [
            (key(1), Some(0), Some(0)),
            (key(2), Some(30), Some(30)),
            (key(3), Some(30), Some(30)),
        ]
    );
    let observers: Vec<_> = quorum.observers.iter().map(ages).collect();
    assert_eq!(observers, [(key(4), Some(30), Some(30))]);

    let (mut follower, _) = Changing::following(&[1, 2, 3], None);
    let quorum = described(follower.ask(describe()).1).unwrap();
    assert_eq!(quorum.error, ErrorCode::NotLeaderOrFollower);
    assert_eq!(quorum.leader_id, Some(NodeId(2)));
    assert!(quorum.current_voters.is_empty() && quorum.observers.is_empty());
}

#[test]
fn everyone_says_who_it_is_and_what_it_supports() {
    let (solo, _) = Solo::start(
        static_configuration(3, None),
        node::raft::Recovered::default(),
    );
    let (follower, _) = Changing::following(&[1, 2, 3], None);
    for (mut asked, replica) in [(Changing { solo }, NodeId(1).into()), (follower, key(1))] {
        let request = Request::ApiVersions(ApiVersionsRequest {
            cluster_id: "test".to_owned(),
        });
        let (ticket, effects) = asked.ask(request);
        let response = Box::new(Response::ApiVersions(ApiVersionsResponse {
            error: ErrorCode::None,
            replica,
            versions: VersionRange::SUPPORTED,
        }));
        assert!(effects.contains(&Effect::Reply { ticket, response }));
    }
}

/// An answer of another kind is as good as none, and does not confuse what waits.
#[test]
fn a_probe_answered_by_something_else_failed() {
    let mut leader = Changing::leading(&[1, 2, 3], None);
    leader.acknowledge(4);
    let (ticket, effects) = leader.add(4);
    let (peer, correlation) = probe(&effects).unwrap();
    let nonsense = Response::UpdateRaftVoter(VoterChangeResponse {
        error: ErrorCode::None,
        message: String::new(),
        leader_id: Some(PEER),
        leader_epoch: Epoch(99),
        leader_endpoint: None,
    });
    let effects = leader.solo.answer(peer, correlation, nonsense);
    assert_eq!(outcome(&effects, ticket), Some(ErrorCode::RequestTimedOut));
    assert_eq!(leader.solo.replica.role(), Role::Leader);
}

/// Whatever is asked in whatever order, nothing stops the leader, and at most one change waits.
#[test]
fn no_sequence_of_requests_stops_a_leader() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut below = |bound: u64| (random.next_u64() % bound) as i32;
    for _ in 0..40 {
        let mut leader = Changing::leading(&[1, 2, 3], None);
        for _ in 0..60 {
            let id = below(7) - 1;
            let replica = if below(6) == 0 {
                NodeId(id).into()
            } else {
                key(id.max(0))
            };
            let effects = match below(8) {
                0 | 1 => leader.add(id.max(0)).1,
                2 => leader.remove(replica).1,
                3 => {
                    let listed = Voter {
                        key: replica,
                        ..voter(id)
                    };
                    leader.update(listed).1
                }
                4 => {
                    let end = leader.end().0;
                    let offset = Offset(i64::from(below(3) == 0) * (end - 1).max(0) + end % 2);
                    let mut request = leader.solo.fetch_request(offset);
                    request.replica = replica;
                    leader.solo.fetch(request).1
                }
                5 if id != 1 => leader.acknowledge(id.max(2)),
                6 => leader.solo.flush(),
                _ => leader.solo.tick_after(below(60) as u64 * MS),
            };
            if let Some((peer, _)) = probe(&effects) {
                match below(3) {
                    0 => leader.probe_failed(&effects),
                    1 => leader.probed(&effects, &voter(below(6))),
                    _ => leader.probed(&effects, &voter(peer.0)),
                };
            }
            let described = leader.solo.replica.describe();
            assert!(!described.voters.is_empty());
            if described.role != Role::Leader {
                break;
            }
        }
    }
}
