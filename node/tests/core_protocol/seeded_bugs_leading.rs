//! Owns the scenarios of seeded bugs in what a leader does besides committing, and what that does to
//! its followers.
//! Never waits for real: time is an argument.

use node::ids::{Epoch, Offset};
use node::message::{BeginQuorumEpochRequest, Request};
use node::mutants::Bug;
use node::raft::{Role, Ticket};

use crate::cluster::MS;
use crate::seeded_bugs::{compare, follower, found};
use crate::solo::{ME, OTHER, PEER, Solo, fetch_reply, ready_reads, sends};

/// A leader whose first record is committed.
fn settled(bug: Option<Bug>) -> Solo {
    let mut solo = Solo::lead(bug);
    let request = solo.fetch_request(Offset(1));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    solo
}

/// A fetch from `offset` that waits.
fn wait_from(solo: &mut Solo, offset: i64) -> Ticket {
    let request = solo.fetch_request(Offset(offset));
    let (ticket, effects) = solo.fetch(request);
    assert_eq!(fetch_reply(&effects, ticket), None);
    ticket
}

#[test]
fn a_leader_without_a_majority_leads_on_without_check_quorum() {
    let (right, wrong) = compare(Bug::NoCheckQuorum, |bug| {
        let mut solo = settled(bug);
        let mut roles = Vec::new();
        for _ in 0..100 {
            solo.tick_after(50 * MS);
            assert!(solo.replica.next_deadline_ns() > solo.now_ns, "it spins");
            roles.push(solo.replica.role());
        }
        roles.iter().all(|role| *role == Role::Leader)
    });
    assert_eq!((right, wrong), (false, true));
}

#[test]
fn a_voter_that_missed_the_announcement_is_not_told_again() {
    let (right, wrong) = compare(Bug::BeginQuorumOnce, |bug| {
        let mut solo = Solo::lead(bug);
        let mut announced_count = 0;
        for _ in 0..20 {
            let mut request = solo.fetch_request(Offset(1));
            request.replica.id = OTHER;
            solo.fetch(request);
            let effects = solo.tick_after(50 * MS);
            let announced = sends(&effects).into_iter().filter(|(peer, _, request)| {
                *peer == PEER && matches!(request, Request::BeginQuorumEpoch(_))
            });
            announced_count += announced.count();
        }
        assert_eq!(solo.replica.role(), Role::Leader);
        announced_count
    });
    assert!(right >= 2, "{right}");
    assert_eq!(wrong, 0);
}

/// The leader reaches the follower, but not the other way round.
#[test]
fn an_unreachable_leader_is_kept_for_its_announcements() {
    let (right, wrong) = compare(Bug::BeginResetsFetchTimer, |bug| {
        let (mut solo, _) = follower(bug, &[(1, 0)], 10);
        for _ in 0..10 {
            solo.tick_after(100 * MS);
            if solo.replica.role() != Role::Follower {
                break;
            }
            solo.request(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                cluster_id: "test".to_owned(),
                voter: ME.into(),
                leader_id: PEER,
                leader_epoch: Epoch(9),
                leader_endpoint: None,
            }));
        }
        solo.replica.role()
    });
    assert_eq!((right, wrong), (Role::Prospective, Role::Follower));
}

/// KAFKA-14145: a follower learns of a commit although no record follows it.
#[test]
fn a_commit_without_a_record_is_told_only_when_the_fetch_ends() {
    let (right, wrong) = compare(Bug::ParkedFetchNotWokenOnHighWatermark, |bug| {
        let mut solo = settled(bug);
        let first = wait_from(&mut solo, 1);
        let (_, effects) = solo.propose(b"x");
        assert!(fetch_reply(&effects, first).is_some(), "records wake it");
        let second = wait_from(&mut solo, 2);
        solo.flush();
        assert_eq!(solo.replica.high_watermark(), Some(Offset(2)));
        let soon = fetch_reply(&solo.tick_after(MS), second).is_some();
        let effects = solo.tick_after(50 * MS);
        (soon, fetch_reply(&effects, second).is_some())
    });
    assert_eq!((right, wrong), ((true, false), (false, true)));
}

#[test]
fn a_record_is_sent_only_when_the_waiting_fetch_ends() {
    let (right, wrong) = compare(Bug::LostWakeup, |bug| {
        let mut solo = settled(bug);
        let ticket = wait_from(&mut solo, 1);
        let (_, effects) = solo.propose(b"x");
        let at_once = fetch_reply(&effects, ticket).is_some();
        solo.flush();
        let effects = solo.tick_after(50 * MS);
        let reply = fetch_reply(&effects, ticket);
        (at_once, reply.and_then(|(_, from)| from))
    });
    assert_eq!(right, (true, None));
    assert_eq!(wrong, (false, Some(Offset(1))));
}

/// KAFKA-15100: divergence is answered at once, whatever the sender is ready to wait.
#[test]
fn a_diverged_follower_waits_before_it_is_told() {
    let (right, wrong) = compare(Bug::DivergingParked, |bug| {
        let mut solo = Solo::lead_from(bug, found(4, None, &[(1, 0), (3, 5), (4, 8)], 10));
        let mut request = solo.fetch_request(Offset(9));
        request.last_fetched_epoch = Epoch(3);
        let (ticket, effects) = solo.fetch(request);
        let parted = |effects: &[_]| {
            let (response, _) = fetch_reply(effects, ticket)?;
            response.diverging_epoch.map(|parted| parted.end_offset)
        };
        let at_once = parted(&effects);
        solo.propose(b"x");
        (at_once, parted(&solo.tick_after(50 * MS)))
    });
    assert_eq!(right, (Some(Offset(8)), None));
    assert_eq!(wrong, (None, Some(Offset(8))));
}

/// etcd/raft #12680. A voter confirms the round, but does not have the leader's first record yet.
#[test]
fn a_new_leader_answers_a_read_from_before_its_epoch() {
    let (right, wrong) = compare(Bug::ReadBeforeEpochCommit, |bug| {
        let mut solo = Solo::lead_from(bug, found(4, None, &[(4, 0)], 10));
        let (read, _) = solo.read();
        let mut request = solo.fetch_request(Offset(10));
        request.last_fetched_epoch = Epoch(4);
        request.read_round = 1;
        let (_, effects) = solo.fetch(request);
        assert_eq!(solo.replica.high_watermark(), None);
        let early = ready_reads(&effects);
        let request = solo.fetch_request(Offset(11));
        let (_, effects) = solo.fetch(request);
        let in_time = ready_reads(&effects);
        let offset_of = |ready: Vec<(Ticket, Offset)>| {
            ready
                .into_iter()
                .find_map(|(ticket, offset)| (ticket == read).then_some(offset))
        };
        (offset_of(early), offset_of(in_time))
    });
    assert_eq!(right, (None, Some(Offset(11))));
    assert_eq!(
        wrong,
        (Some(Offset(0)), None),
        "as if nothing had ever been written"
    );
}
