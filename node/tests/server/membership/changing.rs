//! Owns the tests of a cluster that grows from one node, while writes go on.
//! Never tests what is refused.

use serde_json::json;

use super::writer::{Writer, local_numbers};
use crate::server_support::members::{Members, ids};
use crate::server_support::{ask, eventually};

/// The row of a node in `describe --replication`.
fn row(table: &str, id: i32) -> Vec<&str> {
    let mut rows = table
        .lines()
        .map(|line| line.split('\t').map(str::trim).collect::<Vec<_>>());
    rows.find(|cells| cells[0] == id.to_string())
        .unwrap_or_else(|| panic!("{id} in {table}"))
}

/// How a voter looks in `describe --status`.
fn described(members: &Members, id: i32) -> String {
    let (directory_id, url) = (members.directory_id(id), members.url(id, ""));
    format!("{{\"id\": {id}, \"directoryId\": \"{directory_id}\", \"endpoints\": [\"{url}\"]}}")
}

async fn check_observers(members: &Members) {
    for id in 2..=4 {
        let numbers = eventually("an observer that has applied something", async || {
            let numbers = local_numbers(members, id).await?;
            (numbers.len() > 2).then_some(numbers)
        })
        .await;
        assert_eq!(
            json!(numbers),
            json!((0..numbers.len()).collect::<Vec<_>>())
        );
        let (status, body) = ask(members.client.get(members.url(id, "/lists/writes")))
            .await
            .unwrap();
        assert_eq!(status, 421, "{body}");
        assert_eq!(body["leader"], json!({"id": 1, "url": members.url(1, "")}));
    }
    let table = members.describe(4, "--replication");
    assert_eq!(row(&table, 1)[6], "Leader", "{table}");
    for id in 2..=4 {
        let cells = row(&table, id);
        assert_eq!(
            (cells[1], cells[6]),
            (&*members.directory_id(id), "Observer")
        );
        assert!(cells[4] != "-1" && cells[5] != "-1", "{table}");
    }
    let status = members.describe(3, "--status");
    let voters = format!("CurrentVoters:          [{}]\n", described(members, 1));
    assert!(status.contains(&voters), "{status}");
}

#[tokio::test]
async fn a_cluster_grows_to_three_voters_and_goes_on_without_its_first() {
    let members = Members::standalone(&[1, 2, 3, 4], &[]).await;
    let writer = Writer::start(&members, &[1, 2, 3, 4]);
    check_observers(&members).await;

    members.make(|| members.add(4, 2)).await;
    let directory_id = members.directory_id(3);
    members
        .make(|| members.add_by_id(2, 3, &directory_id))
        .await;
    writer.goes_on().await;
    let leader = members.leader().await;
    let described_voters: Vec<_> = (1..=3).map(|id| described(&members, id)).collect();
    eventually("three voters and an observer", async || {
        let status = members.describe(4, "--status");
        let voters = format!("[{}]\n", described_voters.join(", "));
        let rest = status.split_once("CurrentVoters:          ")?.1;
        let observers = rest.strip_prefix(&voters)?;
        let directory_id = members.directory_id(4);
        let observer = format!("[{{\"id\": 4, \"directoryId\": \"{directory_id}\"");
        observers
            .strip_prefix("CurrentObservers:       ")?
            .starts_with(&observer)
            .then_some(())
    })
    .await;
    for (name, value) in [
        ("number_of_voters", 3.0),
        ("number_of_observers", 1.0),
        ("uncommitted_voter_change", 0.0),
    ] {
        eventually(name, async || {
            let leader = members.leader().await;
            let name = format!("kafka_server_raft_metrics_{name}");
            let found = members.metric(leader, &name).await?;
            ((found - value).abs() < 0.5).then_some(())
        })
        .await;
    }

    let directory_id = members.directory_id(leader);
    members
        .make(|| members.remove(4, leader, &directory_id))
        .await;
    writer.goes_on().await;
    let successor = members.leader().await;
    assert_ne!(successor, leader);
    let left = members
        .quorum_where(leader, "a removed leader that follows", |quorum| {
            quorum["role"] == "follower" && quorum["is_voter"] == false
        })
        .await;
    assert!(!ids(&left["voters"]).contains(&i64::from(leader)), "{left}");
    let (status, body) = ask(members.client.get(members.url(leader, "/lists/writes")))
        .await
        .unwrap();
    assert_eq!(status, 421, "{body}");
    eventually("a removed leader among the observers", async || {
        let table = members.describe(leader, "--replication");
        (row(&table, leader)[6] == "Observer").then_some(())
    })
    .await;
    writer.finish(&members).await;
    members.equal_states(&[1, 2, 3, 4]).await;
}

#[tokio::test]
async fn nodes_that_may_join_by_themselves_do_and_replace_what_they_were() {
    let mut members = Members::new(&[1, 2, 3]);
    members.format(1, &["--standalone", "--endpoint", &members.address(1)]);
    members.start(1, &[], &[]);
    let writer = Writer::start(&members, &[1]);
    for id in [2, 3] {
        members.format(id, &["--no-initial-controllers"]);
    }
    members.start(2, &[1], &["--auto-join"]);
    // A free port is announced as what it turned out to be.
    members.start(3, &[1], &["--auto-join", "--listen=127.0.0.1:0"]);
    let joined = members
        .quorum_where(2, "three voters", |quorum| {
            ids(&quorum["voters"]) == [1, 2, 3]
        })
        .await;
    let endpoint = members.nodes[&3].url("");
    assert_eq!(joined["voters"][2]["endpoint"], json!(endpoint), "{joined}");

    members.kill(3);
    writer.goes_on().await;
    let former = members.directory_id(3);
    members.wiped(3);
    members.format(3, &["--no-initial-controllers"]);
    members.start(3, &[1, 2], &["--auto-join"]);
    let present = members.directory_id(3);
    assert_ne!(present, former);
    members
        .quorum_where(3, "a node in place of its former self", |quorum| {
            quorum["is_voter"] == true && quorum["voters"][2]["directory_id"] == json!(present)
        })
        .await;
    writer.goes_on().await;
    writer.finish(&members).await;
    members.equal_states(&[1, 2, 3]).await;
}
