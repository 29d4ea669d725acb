//! Owns the tests of three node processes together: election, replication, loss of the leader.
//! Never looks inside the processes.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::time::{Duration, Instant};

use crate::server_support::cluster::Cluster;
use crate::server_support::{PATIENCE, ask, client, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[tokio::test]
async fn three_nodes_survive_the_loss_of_every_leader() {
    let mut cluster = Cluster::start(&[]);
    let mut written = Vec::new();
    for round in 0..3 {
        for number in 0..10 {
            let key = format!("{round}-{number}");
            cluster.write_anywhere(&key, json!(number)).await;
            written.push((key, json!(number)));
        }
        let leader = cluster.leader().await;
        let epoch = cluster.quorum(leader).await.unwrap()["epoch"].as_i64();
        cluster.kill(leader);
        let successor = cluster.leader().await;
        assert_ne!(successor, leader);
        assert!(cluster.quorum(successor).await.unwrap()["epoch"].as_i64() > epoch);
        for (key, value) in &written {
            assert_eq!(
                cluster.read_anywhere(key).await,
                *value,
                "round {round}, key {key}"
            );
        }
        cluster.write_anywhere("meanwhile", json!(round)).await;
        cluster.restart(leader);
        cluster.agree().await;
    }
    for (key, value) in &written {
        assert_eq!(
            cluster.read_anywhere(key).await,
            *value,
            "at the end, key {key}"
        );
    }
    assert_eq!(cluster.read_anywhere("meanwhile").await, json!(2));
}

#[tokio::test]
async fn followers_name_the_leader() {
    let cluster = Cluster::start(&[]);
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let body = eventually("a follower that knows", async || {
        let (status, body) = cluster.write(follower, "a", json!(1)).await?;
        assert_eq!(status, 421, "{body}");
        (!body["leader"].is_null()).then_some(body)
    })
    .await;
    assert_eq!(
        body["leader"],
        json!({"id": leader + 1, "url": cluster.url(leader, "")})
    );
    assert_eq!(body["error"]["code"], "NOT_LEADER_OR_FOLLOWER");
}

#[tokio::test]
async fn a_leader_that_stops_in_an_orderly_way_hands_over() {
    let mut cluster = Cluster::start(&["--fetch-timeout-ms=10000", "--client-deadline-ms=10000"]);
    cluster.write_anywhere("a", json!(1)).await;
    cluster.agree().await;
    let leader = cluster.leader().await;
    let mut node = cluster.nodes[leader].take().unwrap();
    let begun = Instant::now();
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
    cluster.leader().await;
    // Had the followers not been told, they would have waited for their fetch timeout.
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(cluster.read_anywhere("a").await, json!(1));
}

/// Everything that a leader without followers tells clients, in the order it happens.
#[tokio::test]
async fn a_leader_without_followers_is_honest() {
    let mut cluster = Cluster::start(&["--client-deadline-ms=150"]);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    for at in (0..3).filter(|at| *at != leader) {
        cluster.kill(at);
    }
    // As long as it leads, the deadline of the node itself decides; afterwards it refuses.
    let deadline = Instant::now() + PATIENCE;
    let mut codes = Vec::new();
    while codes.last() != Some(&json!("NOT_LEADER_OR_FOLLOWER")) {
        assert!(Instant::now() < deadline, "{codes:?}");
        let (status, body) = cluster.write(leader, "a", json!(2)).await.unwrap();
        let error = &body["error"];
        match error["code"].as_str().unwrap() {
            "REQUEST_TIMED_OUT" | "LEADERSHIP_LOST" => {
                assert_eq!(
                    (status, &error["outcome"]),
                    (504, &json!("unknown")),
                    "{body}"
                );
            }
            "NOT_LEADER_OR_FOLLOWER" => {
                assert_eq!(
                    (status, &error["outcome"]),
                    (421, &json!("refused")),
                    "{body}"
                );
            }
            other => panic!("{other}: {body}"),
        }
        codes.push(error["code"].clone());
    }
    assert!(codes.contains(&json!("REQUEST_TIMED_OUT")), "{codes:?}");
}

#[tokio::test]
async fn what_a_deposed_leader_had_in_its_log_is_unknown() {
    let mut cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    for at in (0..3).filter(|at| *at != leader) {
        cluster.kill(at);
    }
    let (status, body) = cluster.write(leader, "a", json!(2)).await.unwrap();
    assert_eq!(
        (status, &body["error"]["code"]),
        (504, &json!("LEADERSHIP_LOST")),
        "{body}"
    );
    assert_eq!(body["error"]["outcome"], "unknown");
    assert!(body["epoch"].is_i64());
}

#[tokio::test]
async fn a_resigning_leader_refuses_with_broker_not_available() {
    // Two dead voters cannot be told, so the resignation takes its full second.
    let mut cluster = Cluster::start(&["--fetch-timeout-ms=10000"]);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    for at in (0..3).filter(|at| *at != leader) {
        cluster.kill(at);
    }
    let mut node = cluster.nodes[leader].take().unwrap();
    let url = node.url("/registers/a");
    node.signal(Signal::SIGTERM);
    let body = eventually("a refusal", async || {
        let ready = cluster.client.get(node.url("/health/ready"));
        let (_, body) = ask(ready).await.ok()?;
        (body["error"]["code"] == "BROKER_NOT_AVAILABLE").then_some(())?;
        let request = cluster.client.put(&url).json(&json!({"value": 2}));
        let short = request.timeout(Duration::from_millis(100));
        let (status, body) = ask(short).await.ok()?;
        (status == 503).then_some(body)
    })
    .await;
    assert_eq!(body["error"]["code"], "BROKER_NOT_AVAILABLE");
    assert_eq!(body["error"]["outcome"], "refused");
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
}

/// For people who want to know how long a write takes: `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement, not a test"]
async fn measure_sequential_writes() {
    let cluster = Cluster::start(&[]);
    let leader = cluster.leader().await;
    let mut latencies = Vec::new();
    for number in 0..2000 {
        let begun = Instant::now();
        let (status, body) = cluster.write(leader, "a", json!(number)).await.unwrap();
        assert_eq!(status, 200, "{body}");
        latencies.push(begun.elapsed());
    }
    latencies.sort();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!(
        "writes: p50 {:?}, p90 {:?}, p99 {:?}",
        at(0.5),
        at(0.9),
        at(0.99)
    );
}

/// A client that repeats its requests through whoever leads, while leaders die, has each applied
/// once; and all nodes end up in one state.
#[tokio::test]
async fn repeated_requests_are_applied_once_through_the_loss_of_every_leader() {
    let mut cluster = Cluster::start(&[]);
    let append = async |cluster: &Cluster, number: u64| {
        eventually("an append", async || {
            let url = cluster.url(cluster.leader().await, "/lists/a");
            let request = cluster.client.post(url).json(&json!({"value": number}));
            let stamped = request
                .header("x-client-id", "c")
                .header("x-request-id", number);
            let (status, body) = ask(stamped).await.ok()?;
            (status == 200).then_some(body)
        })
        .await
    };
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut answer = Value::Null;
        for number in round * 5..(round + 1) * 5 {
            answer = append(&cluster, number).await;
            assert_eq!(append(&cluster, number).await["offset"], answer["offset"]);
            expected.push(number);
        }
        let leader = cluster.leader().await;
        cluster.kill(leader);
        let last = (round + 1) * 5 - 1;
        let repeated = append(&cluster, last).await;
        assert_eq!(repeated["offset"], answer["offset"], "round {round}");
        cluster.restart(leader);
        cluster.agree().await;
    }
    for at in 0..3 {
        cluster.kill(at);
        cluster.restart(at);
    }
    append(&cluster, 14).await;
    cluster.agree().await;
    let states = eventually("three equal states", async || {
        let mut states = Vec::new();
        for at in 0..3 {
            let (_, mut state) = ask(cluster.client.get(cluster.url(at, "/state")))
                .await
                .ok()?;
            state.as_object_mut()?.retain(|name, _| name != "id");
            states.push(state);
        }
        let offsets: std::collections::BTreeSet<_> = states
            .iter()
            .map(|state| state["applied"].as_i64())
            .collect();
        (offsets.len() == 1).then_some(states)
    })
    .await;
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    for at in 0..3 {
        let url = cluster.url(at, "/lists/a?consistency=local");
        let (status, body) = ask(cluster.client.get(url)).await.unwrap();
        assert_eq!((status, &body["consistency"]), (200, &json!("local")));
        assert_eq!(body["value"], json!(expected), "n{}", at + 1);
    }
}

#[tokio::test]
async fn a_node_without_a_leader_still_answers_local_reads() {
    let mut cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    cluster.agree().await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill((leader + 1) % 3);
    let left = (leader + 2) % 3;
    let (status, body) = eventually("a leaderless node", async || {
        let quorum = cluster.quorum(left).await?;
        (quorum["role"] != "follower").then_some(())?;
        ask(cluster
            .client
            .get(cluster.url(left, "/registers/a?consistency=local")))
        .await
        .ok()
    })
    .await;
    assert_eq!((status, &body["value"]), (200, &json!(1)), "{body}");
    // Whichever way it stands for election meanwhile, clients are not sent to a leader that is gone.
    for _ in 0..20 {
        let get = |path| ask(cluster.client.get(cluster.url(left, path)));
        let (status, body) = get("/registers/a").await.unwrap();
        assert_eq!((status, &body["leader"]), (421, &Value::Null), "{body}");
        let (status, body) = get("/health/ready").await.unwrap();
        assert_eq!(status, 503, "{body}");
        assert_eq!(body["error"]["code"], "LEADER_NOT_AVAILABLE", "{body}");
        assert_eq!(body["leader"], Value::Null, "{body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Any node may be asked; the leader is found from there.
#[tokio::test]
async fn the_quorum_is_described_from_everywhere() {
    let cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    cluster.agree().await;
    let leader = cluster.leader().await + 1;
    let describe = |at: usize, options: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        let server = format!("127.0.0.1:{}", cluster.ports[at]);
        command.args(["describe", "--bootstrap-server", &server]);
        let output = command.args(options).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text, said)
    };
    for at in 0..3 {
        let (code, text, said) = describe(at, &["--status"]);
        assert_eq!(code, 0, "{said}");
        let first = format!("ClusterId:              test\nLeaderId:               {leader}\n");
        assert!(text.starts_with(&first), "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(text.contains(&cluster.url((at + 1) % 3, "\"")), "{text}");
    }
    let (code, text, said) = describe(0, &["--replication", "--human-readable"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(text.lines().count(), 4, "{text}");
    let row = text.lines().nth(1).unwrap();
    assert!(row.starts_with(&format!("{leader} ")), "{text}");
    assert!(
        row.contains("\t0 ms ago") && row.ends_with("\tLeader"),
        "{text}"
    );
    assert_eq!(text.matches("Follower").count(), 2, "{text}");
    for options in [
        &["--human-readable"][..],
        &["--status", "--replication"],
        &[],
    ] {
        assert_eq!(describe(0, options).0, 254, "{options:?}");
    }
}

#[tokio::test]
async fn a_quorum_without_a_leader_or_a_node_cannot_be_described() {
    let mut cluster = Cluster::start(&[]);
    cluster.leader().await;
    cluster.kill(0);
    cluster.kill(1);
    eventually("a node that knows no leader", async || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        let server = format!("127.0.0.1:{}", cluster.ports[2]);
        let output = command
            .args(["describe", "--status", "--bootstrap-server", &server])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.lines().count() <= 1, "{said}");
        // Until it notices, it names a leader that is gone, or is one.
        let code = output.status.code();
        assert!(code == Some(0) || code == Some(255), "{said}");
        said.contains("does not answer as a node")
            .then_some(())
            .or_else(|| said.contains("knows no leader").then_some(()))
    })
    .await;
}

/// Until the others know, or for a second, a leader that was told to stop still answers.
#[tokio::test]
async fn a_leader_that_stops_says_so_to_whoever_still_asks() {
    let mut cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    for other in [(leader + 1) % 3, (leader + 2) % 3] {
        cluster.kill(other);
    }
    let node = cluster.nodes[leader].as_mut().unwrap();
    node.signal(Signal::SIGTERM);
    let change = json!({
        "cluster_id": "test", "timeout_ms": 100, "endpoint": "http://127.0.0.1:1", "ack_when_committed": true,
        "voter": {"id": 9, "directory_id": "jgTIiRSXdwSccrL3sVDuPA"},
    });
    let (mut write, mut addition) = (None, None);
    // Before the signal has arrived it may still lead.
    while write.is_none() || addition.is_none() {
        let request = client()
            .post(node.url("/raft/add-raft-voter"))
            .json(&change);
        let (_, body) = ask(request).await.expect("it still answers");
        if body["error"] == "BROKER_NOT_AVAILABLE" {
            addition = Some(body);
        }
        let request = client().put(node.url("/registers/a"));
        let request = request.json(&json!({"value": 2}));
        if addition.is_some() {
            write = Some(ask(request).await.expect("it still answers"));
        }
    }
    let (status, body) = write.unwrap();
    assert_eq!(status, 503, "{body}");
    assert_eq!(body["error"]["code"], "BROKER_NOT_AVAILABLE", "{body}");
    assert_eq!(body["error"]["outcome"], "refused", "{body}");
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
}
