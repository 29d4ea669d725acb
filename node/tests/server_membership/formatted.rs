//! Owns the tests of clusters that begin with several formatted voters, and of voters that come back.
//! Never tests changes of the voters.

use serde_json::json;

use crate::server_support::members::{Members, ids, tool};

/// Nobody is told of the others but by the voters that all were formatted with.
#[tokio::test]
async fn three_nodes_formatted_with_the_same_voters_start_together() {
    let mut members = Members::new(&[1, 2, 3, 4]);
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
