//! Owns the tests of clusters that begin with several formatted voters, and of voters that come back.
//! Never tests changes of the voters.

use serde_json::json;

use crate::server_support::members::{Members, ids, tool};

/// Nodes 1 to 3 as the voters of a new cluster.
fn three_voters(ids: &[i32]) -> Members {
    let mut members = Members::new(ids);
    let controllers: Vec<_> = (1..=3)
        .map(|id| {
            let directory_id = tool(&["random-id"]).succeeded();
            format!("{id}@{}:{}", members.address(id), directory_id.trim())
        })
        .collect();
    let list = controllers.join(",");
    for id in 1..=3 {
        members.format(id, &["--initial-controllers", &list]);
        assert!(list.contains(&members.directory_id(id)), "{list}");
        members.start(id, &[], &[]);
    }
    members
}

/// Nobody is told of the others but by the voters that all were formatted with.
#[tokio::test]
async fn three_nodes_formatted_with_the_same_voters_start_together() {
    let mut members = three_voters(&[1, 2, 3, 4]);
    members.write("a", json!(1)).await;
    for id in 1..=3 {
        members
            .quorum_where(id, "voters in the log", |quorum| {
                quorum["kraft_version"] == 1
                    && quorum["is_voter"] == true
                    && ids(&quorum["voters"]) == [1, 2, 3]
            })
            .await;
    }

    let leader = members.leader().await;
    members.kill(leader);
    members.write("a", json!(2)).await;
    members.start(leader, &[], &[]);
    members.applied(leader, "a", json!(2)).await;
    for id in 1..=3 {
        members.kill(id);
    }
    for id in 1..=3 {
        members.start(id, &[], &[]);
    }
    members.write("a", json!(3)).await;

    // Any of them will do to find the leader.
    members.format(4, &["--no-initial-controllers"]);
    members.start(4, &[2], &[]);
    members.applied(4, "a", json!(3)).await;
    members.make_voters(&[4]).await;
    members.equal_states(&[1, 2, 3, 4]).await;
}

/// A node that has learned its voters needs to be told of nobody.
#[tokio::test]
async fn a_voter_that_joined_comes_back_by_what_is_in_its_log() {
    let mut members = Members::standalone(&[1, 2], &[]).await;
    members.make_voters(&[2]).await;
    members.write("a", json!(1)).await;
    members.applied(2, "a", json!(1)).await;
    for id in [1, 2] {
        members.kill(id);
        members.start(id, &[], &[]);
    }
    members.write("a", json!(2)).await;
    members.applied(1, "a", json!(2)).await;
    members.applied(2, "a", json!(2)).await;
}

/// The leader has it in the log, so that the others find it there, whoever leads (KIP-853).
#[tokio::test]
async fn a_voter_that_moved_is_found_where_it_is_now() {
    let mut members = three_voters(&[1, 2, 3]);
    let leader = members.leader().await;
    let moved = (1..=3).find(|id| *id != leader).unwrap();
    members.kill(moved);
    members.start(moved, &[], &["--listen=127.0.0.1:0"]);
    let url = members.url(moved, "");
    for id in (1..=3).filter(|id| *id != moved) {
        members
            .quorum_where(id, "the new address of a voter", |quorum| {
                let at = usize::try_from(moved).unwrap() - 1;
                quorum["voters"][at]["endpoint"] == json!(url)
            })
            .await;
    }
    // Only two are left, so each has to reach the other.
    members.kill(leader);
    members.write("a", json!(1)).await;
    for id in (1..=3).filter(|id| *id != leader) {
        members.applied(id, "a", json!(1)).await;
    }
}
