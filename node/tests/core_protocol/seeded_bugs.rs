//! Owns what the scenarios of seeded bugs share, and the scenarios of starting.
//! Never runs a schedule with the bug only: each one is also shown to go well without it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset};
use node::message::Request;
use node::mutants::Bug;
use node::raft::{Correlation, Effect, EpochStart, QuorumState, Recovered, Role};

use crate::cluster::{Cluster, MS};
use crate::solo::{ME, PEER, Solo, configuration, sends, vote_reply};

/// What a scenario leads to without the bug, and with it.
pub(crate) fn compare<T>(bug: Bug, scenario: impl Fn(Option<Bug>) -> T) -> (T, T) {
    (scenario(None), scenario(Some(bug)))
}

/// What a replica finds at its start: a log with these epochs, and the quorum-state file.
pub(crate) fn found(
    epoch: i32,
    leader: Option<NodeId>,
    epochs: &[(i32, i64)],
    log_end: i64,
) -> Recovered {
    let start = |&(epoch, offset): &(i32, i64)| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    };
    Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(epoch),
            leader,
            voted_for: None,
        }),
        log_end: Offset(log_end),
        epochs: epochs.iter().map(start).collect(),
        ..Recovered::default()
    }
}

/// A follower of `PEER` in epoch 9, and the fetch that is under way.
pub(crate) fn follower(
    bug: Option<Bug>,
    epochs: &[(i32, i64)],
    log_end: i64,
) -> (Solo, Correlation) {
    let recovered = found(9, Some(PEER), epochs, log_end);
    let (solo, effects) = Solo::start(configuration(3, bug), recovered);
    let [(PEER, correlation, Request::Fetch(_))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    (solo, correlation)
}

pub(crate) fn batch(offset: i64, epoch: i32) -> Batch {
    Batch::build(Offset(offset), Epoch(epoch), 0, false, &["x"])
}

pub(crate) fn appended(effects: &[Effect]) -> Vec<(i64, i32)> {
    let append = effects.iter().filter_map(|effect| match effect {
        Effect::Append(batch) => Some((batch.base_offset().0, batch.epoch().0)),
        _ => None,
    });
    append.collect()
}

/// The message of an assertion that stopped the replica, if one did.
pub(crate) fn stopped_by(action: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(action)).err()?;
    let message = payload.downcast_ref::<String>().cloned();
    Some(message.expect("assertions of the core carry values"))
}

/// A leader loses an unsynced record with its power and comes back within the fetch timeout.
#[test]
fn a_restarted_leader_reuses_offsets_of_its_epoch_if_it_leads_on() {
    let (right, wrong) = compare(Bug::RestartAsLeader, |bug| {
        let mut cluster = Cluster::new(3, 5, bug);
        let leader = cluster.await_leader();
        cluster.write(leader, b"committed");
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        cluster.propose(leader, b"lost");
        cluster.power_cut_keeping(leader, 0);
        cluster.restart(leader);
        (
            cluster.replica(leader).role(),
            cluster.history.violations.join("; "),
        )
    });
    assert_eq!(right, (Role::Resigned, String::new()));
    assert_eq!(wrong.0, Role::Leader);
    assert!(wrong.1.contains("wrote something else"), "{}", wrong.1);
}

/// KAFKA-10661: a rival candidate of the same epoch still asks for its vote.
#[test]
fn a_restarted_leader_votes_in_its_own_epoch_if_it_forgets_that_it_led() {
    let (right, wrong) = compare(Bug::RestartUnattached, |bug| {
        let recovered = found(5, Some(ME), &[(4, 0)], 3);
        let (mut solo, _) = Solo::start(configuration(3, bug), recovered);
        let vote = solo.vote_request(Epoch(5), false);
        let effects = solo.request(Request::Vote(vote));
        (
            vote_reply(&effects).vote_granted,
            solo.replica.epoch(),
            solo.replica.role(),
        )
    });
    assert_eq!(right, (false, Epoch(5), Role::Resigned));
    assert_eq!(wrong, (true, Epoch(5), Role::Unattached));
}

#[test]
fn an_epoch_goes_back_if_the_log_does_not_count() {
    let (right, wrong) = compare(Bug::EpochNotFromLog, |bug| {
        let recovered = Recovered {
            quorum_state: None,
            ..found(0, None, &[(2, 0), (4, 2)], 3)
        };
        let (solo, _) = Solo::start(configuration(3, bug), recovered);
        solo.replica.epoch()
    });
    assert_eq!((right, wrong), (Epoch(4), Epoch(0)));
}
