//! Owns the tests of voters that come back at other addresses than the others know.
//! Never looks inside the processes.

use serde_json::json;

use crate::server_support::eventually;
use crate::server_support::members::Members;

async fn three_voters() -> Members {
    let members = Members::standalone(&[1, 2, 3], &[]).await;
    members.make_voters(&[2, 3]).await;
    members.write("a", json!(1)).await;
    for id in 1..=3 {
        members.applied(id, "a", json!(1)).await;
    }
    members
}

/// Kills leaders until it is the turn of `wanted`; whoever was killed is started by `start`.
async fn led_by(members: &mut Members, wanted: i32, start: impl Fn(&mut Members, i32)) {
    loop {
        let leader = members.leader().await;
        if leader == wanted {
            return;
        }
        members.kill(leader);
        // Whoever comes back soon is the first to stand for election.
        members
            .quorum_where(wanted, "a voter that misses its leader", |quorum| {
                quorum["role"] != "follower"
            })
            .await;
        start(members, leader);
    }
}

/// The one that comes last knows the leader only by what the one that has not moved says of it.
#[tokio::test]
async fn a_voter_finds_a_leader_that_moved_while_it_was_away() {
    let mut members = three_voters().await;
    members.kill(3);
    members.kill(2);
    members.moved(2);
    members.moved(3);
    let start = |members: &mut Members, id: i32| {
        let known: &[i32] = if id == 1 { &[] } else { &[1] };
        members.start(id, known, &[]);
    };
    start(&mut members, 2);
    led_by(&mut members, 2, start).await;
    start(&mut members, 3);
    members.write("a", json!(2)).await;
    members.applied(3, "a", json!(2)).await;
    members.equal_states(&[1, 2, 3]).await;
}

/// Where each was, another answers now, or the one that asks.
#[tokio::test]
async fn voters_that_have_changed_places_find_each_other_where_they_are_told() {
    let mut members = three_voters().await;
    let ids = [1, 2, 3];
    for id in ids {
        members.kill(id);
    }
    members.permuted(&ids);
    for id in ids {
        let others: Vec<i32> = ids.into_iter().filter(|other| *other != id).collect();
        members.start(id, &others, &[]);
    }
    members.write("a", json!(2)).await;
    for id in ids {
        members.applied(id, "a", json!(2)).await;
    }
    for id in ids {
        let url = members.url(id, "");
        members
            .quorum_where(1, "the voters where they are now", |quorum| {
                let mut voters = quorum["voters"].as_array().unwrap().iter();
                voters.any(|voter| voter["id"] == id && voter["endpoint"] == json!(url))
            })
            .await;
    }
}

/// No log says where it is, so it is followed where it says so itself.
#[tokio::test]
async fn a_configured_voter_that_moved_leads_those_that_know_its_old_address() {
    let mut members = Members::new(&[1, 2, 3]);
    let known: Vec<String> = (1..=3)
        .map(|id| format!("--peer={id}={}", members.url(id, "")))
        .collect();
    let start = move |members: &mut Members, id: i32| {
        let peers: Vec<&str> = (1..=3)
            .filter(|peer| *peer != id)
            .map(|peer| &*known[peer as usize - 1])
            .collect();
        members.start(id, &[], &peers);
    };
    for id in 1..=3 {
        start(&mut members, id);
    }
    members.write("a", json!(1)).await;
    members.applied(3, "a", json!(1)).await;
    members.kill(3);
    members.moved(3);
    start(&mut members, 3);
    let url = members.url(3, "");
    eventually(
        "a leader that was told where the voter is now",
        async || {
            let quorum = members.quorum(members.leader().await).await?;
            (quorum["endpoints"]["3"] == json!(url)).then_some(())
        },
    )
    .await;
    let leader = members.leader().await;
    if leader != 3 {
        let other = 3 - leader;
        members.kill(other);
        members.write("b", json!(1)).await;
        members.applied(3, "b", json!(1)).await;
        members.kill(leader);
        // It misses a record, so only one of the two can lead.
        start(&mut members, other);
        members
            .quorum_where(3, "a leader that has all records", |quorum| {
                quorum["role"] == "leader"
            })
            .await;
        start(&mut members, leader);
    }
    members.write("a", json!(2)).await;
    for id in 1..=3 {
        members.applied(id, "a", json!(2)).await;
    }
    // Clients are sent there, too.
    for id in [1, 2] {
        members
            .quorum_where(id, "the leader where it is now", |quorum| {
                quorum["endpoints"]["3"] == json!(url)
            })
            .await;
    }
}
