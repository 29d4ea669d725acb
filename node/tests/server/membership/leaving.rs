//! Owns the tests of nodes that are no voters any more: removed, wiped, or not aware of it.
//! Never tests how a cluster grows.

use serde_json::json;

use super::writer::Writer;
use crate::server_support::eventually;
use crate::server_support::members::{Members, ids};

async fn three_voters() -> Members {
    let members = Members::standalone(&[1, 2, 3], &[]).await;
    members.make_voters(&[2, 3]).await;
    members
}

async fn follower(members: &Members) -> i32 {
    let leader = members.leader().await;
    (1..=3).find(|id| *id != leader).unwrap()
}

#[tokio::test]
async fn followers_can_be_removed_until_one_voter_is_left() {
    let mut members = three_voters().await;
    let writer = Writer::start(&members, &[1, 2, 3]);
    let mut voters = vec![1, 2, 3];
    while voters.len() > 1 {
        let leader = members.leader().await;
        let removed = *voters.iter().find(|id| **id != leader).unwrap();
        let directory_id = members.directory_id(removed);
        members
            .make(|| members.remove(removed, removed, &directory_id))
            .await;
        voters.retain(|id| *id != removed);
        let expected: Vec<_> = voters.iter().copied().map(i64::from).collect();
        members
            .quorum_where(removed, "a removed node that knows", |quorum| {
                quorum["is_voter"] == false && ids(&quorum["voters"]) == expected
            })
            .await;
        writer.goes_on().await;
    }
    // What is left needs nobody else.
    let removed: Vec<_> = (1..=3).filter(|id| !voters.contains(id)).collect();
    members.equal_states(&[1, 2, 3]).await;
    for id in removed {
        members.kill(id);
    }
    writer.goes_on().await;
    writer.finish(&members).await;
}

/// It still counts itself among the voters, but whoever has the removal in the log is ahead of it
/// (KAFKA-17030).
#[tokio::test]
async fn a_node_that_missed_its_removal_disturbs_nobody() {
    let mut members = three_voters().await;
    members.write("a", json!(1)).await;
    let missing = follower(&members).await;
    members.applied(missing, "a", json!(1)).await;
    members
        .quorum_where(missing, "a voter that knows itself", |quorum| {
            quorum["is_voter"] == true && ids(&quorum["voters"]) == [1, 2, 3]
        })
        .await;
    let directory_id = members.directory_id(missing);
    members.kill(missing);
    let leader = members.leader().await;
    members
        .make(|| members.remove(leader, missing, &directory_id))
        .await;
    members.write("a", json!(2)).await;
    // It looks for the voters in its log, and asks them.
    members.start(missing, &[], &[]);
    members
        .quorum_where(missing, "a node that learned of its removal", |quorum| {
            quorum["is_voter"] == false && quorum["role"] == "follower"
        })
        .await;
    members.applied(missing, "a", json!(2)).await;
    let said = members.nodes[&missing].said();
    let since = &said[said.rfind("recovered").unwrap()..];
    assert!(!since.contains("now candidate"), "{since}");
}

#[tokio::test]
async fn a_wiped_voter_counts_for_nothing_until_it_is_removed_and_added() {
    let mut members = three_voters().await;
    let writer = Writer::start(&members, &[1, 2, 3]);
    let wiped = follower(&members).await;
    let others: Vec<_> = (1..=3).filter(|id| *id != wiped).collect();
    let former = members.directory_id(wiped);
    members.kill(wiped);
    members.wiped(wiped);
    members.format(wiped, &["--no-initial-controllers"]);
    members.start(wiped, &others, &[]);
    let present = members.directory_id(wiped);

    members
        .quorum_where(wiped, "an observer of its former self", |quorum| {
            quorum["is_voter"] == false && quorum["role"] == "follower"
        })
        .await;
    eventually(
        "its former and its present self in a description",
        async || {
            let table = members.describe(others[0], "--replication");
            let status_of = |directory_id: &str| {
                let mut rows = table.lines().filter(|line| line.contains(directory_id));
                rows.next()?.rsplit('\t').next().map(str::to_owned)
            };
            assert_eq!(status_of(&former)?, "Follower", "{table}");
            (status_of(&present)? == "Observer").then_some(())
        },
    )
    .await;
    let refusal = members
        .settled(|| members.add(others[0], wiped))
        .await
        .failed(1);
    assert!(refusal.contains("DUPLICATE_VOTER: "), "{refusal}");
    assert!(
        refusal.contains("remove it before adding it again"),
        "{refusal}"
    );
    let refusal = members
        .settled(|| members.remove(others[0], wiped, &present))
        .await
        .failed(1);
    assert!(refusal.contains("VOTER_NOT_FOUND: "), "{refusal}");

    members
        .make(|| members.remove(others[0], wiped, &former))
        .await;
    members.make(|| members.add(others[0], wiped)).await;
    members
        .quorum_where(wiped, "a voter again", |quorum| quorum["is_voter"] == true)
        .await;
    writer.goes_on().await;
    writer.finish(&members).await;
    members.equal_states(&[1, 2, 3]).await;
}
