//! Owns the tests of many, slow and silent connections: they cost others nothing, least of all peers.
//! Never looks inside the process.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::server_support::cluster::Cluster;
use crate::server_support::raw::{Answer, Raw};
use crate::server_support::{Node, ask, client, eventually, single};
use nix::sys::signal::Signal;
use serde_json::json;

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// As many connections as asked for, none of which says anything.
fn silent(port: u16, count: usize) -> Vec<Raw> {
    (0..count).map(|_| Raw::connect(port).unwrap()).collect()
}

/// Sends halves of requests to a node, to clients' paths and to peers', until told to stop: as many at once
/// as asked for, and a new one for each that was closed.
fn occupy(port: u16, count: usize, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    thread::spawn(move || {
        let mut held: Vec<Raw> = Vec::new();
        let mut sent_count = 0;
        while !stop.load(Ordering::Relaxed) {
            held.retain(|raw| !raw.is_over());
            while held.len() < count {
                // Fails while the node is down, or has no place.
                let Ok(mut raw) = Raw::connect(port) else {
                    break;
                };
                let path = ["/registers/b", "/raft/fetch", "/raft/vote"][sent_count % 3];
                let method = if sent_count % 3 == 0 { "PUT" } else { "POST" };
                let _ = raw.send(format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{\"va"
                ));
                held.push(raw);
                sent_count += 1;
            }
            thread::sleep(Duration::from_millis(20));
        }
        sent_count
    })
}

async fn write(node: &Node) -> u16 {
    let request = client().put(node.url("/registers/a"));
    ask(request.json(&json!({"value": 1}))).await.unwrap().0
}

#[tokio::test]
async fn silent_connections_beyond_the_cap_make_room_for_those_that_ask() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &["--max-connections=20"]).await;
    let held = silent(node.port, 300);
    // Each of these is one more connection than there may be.
    for round in 0..100 {
        eventually("a place", async || {
            (write(&node).await == 200).then_some(())
        })
        .await;
        if round == 0 {
            eventually("the silent ones go", async || {
                let over = held.iter().filter(|raw| raw.is_over()).count();
                (over >= 200).then_some(())
            })
            .await;
        }
    }
    assert!(node.said().contains("too many"), "{}", node.said());
}

#[tokio::test]
async fn halves_of_requests_cost_clients_no_answer_and_the_leader_nothing() {
    // Longer than the quick timers: a busy machine must not look like a leader that is starved.
    let timers = ["--fetch-timeout-ms=2000", "--request-timeout-ms=2000"];
    let cluster = Cluster::start(&["--max-connections=300", timers[0], timers[1]]);
    cluster.write_anywhere("a", json!(0)).await;
    let leader = cluster.leader().await;
    let epoch = cluster.quorum(leader).await.unwrap()["epoch"].clone();
    let stop = Arc::new(AtomicBool::new(false));
    let occupying: Vec<_> = (0..3)
        .map(|at| occupy(cluster.ports[at], 400, Arc::clone(&stop)))
        .collect();
    let kept = client();
    let url = format!("http://127.0.0.1:{}/registers/a", cluster.ports[leader]);
    let begun = Instant::now();
    let mut served_count = 0;
    // Whoever is locked out waits until the halves run out of time. A busy machine stands still for a second.
    let patience = Duration::from_secs(3);
    while begun.elapsed() < Duration::from_secs(4) {
        // A connection of its own each, and one that is there already.
        for client in [&client(), &kept] {
            let asked = Instant::now();
            loop {
                let request = client.put(&url).json(&json!({"value": served_count}));
                match ask(request).await {
                    Ok((200, _)) => break,
                    other => assert!(asked.elapsed() < patience, "{other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let took = asked.elapsed();
            assert!(took < patience, "{took:?}");
            served_count += 1;
        }
    }
    assert!(served_count >= 10, "{served_count}");
    stop.store(true, Ordering::Relaxed);
    for occupied in occupying {
        assert!(occupied.join().unwrap() >= 400);
    }
    assert_eq!(cluster.leader().await, leader);
    assert_eq!(cluster.quorum(leader).await.unwrap()["epoch"], epoch);
}

#[tokio::test]
async fn peers_elect_and_replicate_while_halves_of_requests_use_up_all_connections() {
    let mut cluster = Cluster::start(&["--max-connections=8"]);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    // Has no connection to anyone when it starts again.
    let newcomer = (leader + 1) % 3;
    cluster.kill(newcomer);
    let stop = Arc::new(AtomicBool::new(false));
    let occupying: Vec<_> = [leader, (leader + 2) % 3]
        .map(|at| occupy(cluster.ports[at], 100, Arc::clone(&stop)))
        .into();

    cluster.restart(newcomer);
    eventually("the newcomer has fetched", async || {
        let quorum = cluster.quorum(newcomer).await?;
        (!quorum["high_watermark"].is_null()).then_some(())
    })
    .await;
    cluster.kill(leader);
    let successor = eventually("a successor", async || {
        cluster.leader_by_log().filter(|at| *at != leader)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for occupied in occupying {
        assert!(occupied.join().unwrap() >= 100);
    }
    assert_eq!(cluster.read_anywhere("a").await, json!(1));
    cluster.write_anywhere("a", json!(2)).await;
    assert_eq!(cluster.leader().await, successor);
    cluster.restart(leader);
    cluster.agree().await;
}

#[tokio::test]
async fn a_first_request_that_takes_too_long_ends_its_connection_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let mut kept = Raw::connect(node.port).unwrap();
    kept.send(HEALTH).unwrap();
    assert_eq!(kept.answer().unwrap().status, 200);
    let begun = Instant::now();
    let mut dripping = Raw::connect(node.port).unwrap();
    let silent = Raw::connect(node.port).unwrap();
    let head = b"GET /health HTTP/1.1\r\nhost: x\r\nx-slow: ";
    let mut sent = head.iter().chain(std::iter::repeat(&b'x'));
    eventually("both are closed", async || {
        // Fails once the node has closed it.
        let _ = dripping.send([*sent.next().unwrap()]);
        tokio::time::sleep(Duration::from_millis(50)).await;
        (dripping.is_over() && silent.is_over()).then_some(())
    })
    .await;
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9), "{took:?}");
    kept.send(HEALTH).unwrap();
    assert_eq!(
        kept.answer().unwrap().status,
        200,
        "it may be idle for longer"
    );
}

#[tokio::test]
async fn an_answer_under_way_is_given_before_an_orderly_stop_and_idle_connections_do_not_delay_it()
{
    let directory = tempfile::tempdir().unwrap();
    let mut node = single(directory.path(), &[]).await;
    let held = silent(node.port, 50);
    let mut idle = Raw::connect(node.port).unwrap();
    idle.send(HEALTH).unwrap();
    assert_eq!(idle.answer().unwrap().status, 200);
    let begun = Instant::now();
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(held.iter().all(Raw::is_over) && idle.is_over());
}

/// Neither the files nor the connections of a node run out when a limit is lower than its own.
#[tokio::test]
async fn a_low_limit_on_open_files_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]);
    command.args([env!("CARGO_BIN_EXE_kraft-node"), "start"]);
    command.args(crate::server_support::QUICK);
    command.args(["--id=1", "--listen=127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    let node = Node::start(command, directory.path());
    assert!(node.said().contains("ulimit -n"), "{}", node.said());
    let _held = silent(node.port, 400);
    eventually("a write", async || {
        (write(&node).await == 200).then_some(())
    })
    .await;
    for _ in 0..20 {
        eventually("a write", async || {
            (write(&node).await == 200).then_some(())
        })
        .await;
    }
    assert!(
        !node.said().contains("no more connections"),
        "{}",
        node.said()
    );
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let mut raw = Raw::connect(node.port).unwrap();
    let long = "x".repeat(100_000);
    // Fails where the node has answered and closed before all of it was sent.
    let _ = raw.send(format!(
        "GET /health HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n"
    ));
    if let Some(answer) = raw.answer() {
        assert_eq!(answer.status, 431);
    }
    assert_eq!(write(&node).await, 200);
}

/// What is asked in plain words and in one piece is answered in a shorter way than the rest; nobody can tell.
#[tokio::test]
async fn plain_requests_and_others_follow_each_other_on_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let write = |value: u32, more: &str| {
        let body = json!({ "value": value }).to_string();
        let length = body.len();
        format!(
            "PUT /registers/a HTTP/1.1\r\nhost: x\r\n{more}content-length: {length}\r\n\r\n{body}"
        )
    };
    let read = |query: &str| format!("GET /registers/a{query} HTTP/1.1\r\nhost: x\r\n\r\n");
    let ask = |raw: &mut Raw, request: &str| {
        raw.send(request).unwrap();
        raw.answer().unwrap()
    };
    let long = read("?consistency=local");
    for other in [&*long, HEALTH, &write(1, "accept: */*\r\nte: trailers\r\n")] {
        let mut raw = Raw::connect(node.port).unwrap();
        for request in [
            &*write(1, ""),
            &*read(""),
            other,
            &*write(2, ""),
            &*read(""),
        ] {
            assert_eq!(ask(&mut raw, request).status, 200, "{request}");
        }
    }

    let mut raw = Raw::connect(node.port).unwrap();
    let stamp = "X-Client-Id: c\r\nX-Request-Id: 7\r\n";
    assert_eq!(ask(&mut raw, &write(3, stamp)).status, 200);
    let again = ask(&mut raw, &write(4, stamp));
    assert_eq!(again.status, 409, "another request under the same number");
    let cluster = "x-kraft-cluster-id: another\r\n";
    let foreign = ask(&mut raw, &write(5, cluster));
    assert_eq!(foreign.status, 400);

    // Two at once, and one in two pieces.
    let mut pair = Raw::connect(node.port).unwrap();
    let first = write(6, "");
    let last = read("").replace("host: x", "host: x\r\nconnection: close");
    pair.send(format!("{first}{last}")).unwrap();
    let (said, _) = pair.rest();
    let (answer, length) = Answer::parse(&said).unwrap();
    assert_eq!(answer.status, 200);
    let (answer, _) = Answer::parse(&said[length..]).unwrap();
    let value = answer.json()["value"].clone();
    assert_eq!((answer.status, value), (200, json!(6)));
    let mut pieces = Raw::connect(node.port).unwrap();
    let (piece, rest) = first.split_at(first.len() - 4);
    pieces.send(piece).unwrap();
    // Whoever asks after that piece is answered after it was read.
    assert_eq!(ask(&mut raw, HEALTH).status, 200);
    assert_eq!(ask(&mut pieces, rest).status, 200);
}

/// Otherwise a request could be hidden in what a proxy takes for the body of another one.
#[tokio::test]
async fn what_follows_a_request_of_two_lengths_is_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let chunked = "transfer-encoding: chunked";
    let chunk = "b\r\n{\"value\":1}\r\n0\r\n\r\n";
    let smuggled = "{\"value\":2}";
    let smuggled = format!(
        "PUT /registers/b HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    );
    let length = format!("content-length: {}", chunk.len() + smuggled.len());
    for headers in [
        format!("{length}\r\n{chunked}"),
        format!("{chunked}\r\n{length}"),
        chunked.to_owned(),
    ] {
        let mut raw = Raw::connect(node.port).unwrap();
        raw.send(format!(
            "PUT /registers/a HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{chunk}{smuggled}"
        ))
        .unwrap();
        let (said, is_over) = raw.rest();
        let (answer, length) = Answer::parse(&said).unwrap();
        assert_eq!(answer.status, 200, "{headers}");
        assert_eq!(said.len(), length, "{headers}: a second answer");
        assert!(is_over, "{headers}");
    }
    let (_, body) = ask(client().get(node.url("/registers/b"))).await.unwrap();
    assert!(body["value"].is_null(), "{body}");
}

/// Whoever announces, sends or goes on sending too much is told so without being waited for, and reads it.
#[tokio::test]
async fn a_body_that_is_too_long_is_refused_at_once_and_ends_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let head = |more: &str| format!("PUT /registers/a HTTP/1.1\r\nhost: x\r\n{more}\r\n\r\n");
    let most = "x".repeat(3_000_000);
    for (what, request) in [
        ("announced", head("content-length: 200000") + "{"),
        ("announced as huge", head("content-length: 99999999999999")),
        (
            "asked before",
            head("expect: 100-continue\r\ncontent-length: 200000"),
        ),
        (
            "sent",
            head(&format!("content-length: {}", most.len())) + &most,
        ),
        (
            "sent before another request",
            head("content-length: 200000") + &most[..200_000] + HEALTH,
        ),
        (
            "going on",
            head("transfer-encoding: chunked") + "30d40\r\n" + &most[..200_000] + "\r\n",
        ),
    ] {
        let mut raw = Raw::connect(node.port).unwrap();
        raw.send(&request).unwrap();
        let (said, is_over) = raw.rest();
        assert!(is_over, "{what}: the connection stays");
        let (answer, length_bytes) = Answer::parse(&said).expect(what);
        assert_eq!(answer.status, 413, "{what}");
        assert!(
            answer.head.contains("connection: close"),
            "{what}: {}",
            answer.head
        );
        assert_eq!(said.len(), length_bytes, "{what}: one answer");
    }
    assert_eq!(write(&node).await, 200);
}
