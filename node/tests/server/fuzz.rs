//! Owns a client that says whatever comes to its mind to a cluster: nodes answer as described or hang
//! up, stay healthy, and agree in the end.
//! Never sends what only a replica of the same cluster may say: replicas trust each other.
//!
//! `FUZZ_SEED` chooses what is said, `FUZZ_SECONDS` for how long; failures name the seed.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::server_support::cluster::Cluster;
use crate::server_support::raw::{Answer, Raw};
use crate::server_support::{ask, eventually};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

/// A node that says nothing for this long waits for more.
const SILENCE: Duration = Duration::from_millis(150);

/// The same, after it has answered something.
const SHORT_SILENCE: Duration = Duration::from_millis(15);

const SPEAKER_COUNT: u64 = 8;

/// So much is said on a slow machine, too: enough to meet every kind of answer.
const UTTERANCE_COUNT_MIN: u64 = 1000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Makes things up.
struct Imagination(ChaCha8Rng);

impl Imagination {
    fn new(seed: u64, utterance: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(utterance);
        Self(random)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.below(most + 1)];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    fn key(&mut self) -> String {
        match self.below(30) {
            0 => String::new(),
            1 => "%ff%fe".into(),
            2 => "%".into(),
            3 => "..%2f..%2fetc".into(),
            4 => "%00%0d%0a".into(),
            5 => "k".repeat(self.below(600)),
            _ => format!("k{}", self.below(5)),
        }
    }

    fn target(&mut self) -> String {
        let key = self.key();
        let path = match self.below(16) {
            13..16 | 0..3 => format!("/registers/{key}"),
            3 => format!("/registers/{key}/compare-and-set"),
            4 => format!("/lists/{key}"),
            5 => format!("/sets/{key}"),
            6 => format!("/counters/{key}"),
            7..9 => "/transactions".into(),
            9 => self
                .one(&[
                    "/quorum",
                    "/state",
                    "/metrics",
                    "/health",
                    "/health/ready",
                    "/openapi.json",
                ])
                .to_owned(),
            10 => self
                .one(&[
                    "/raft/vote",
                    "/raft/fetch",
                    "/raft/begin-quorum-epoch",
                    "/raft/x",
                ])
                .to_owned(),
            11 => format!("/{key}/{key}"),
            12 if self.once_in(2) => self
                .one(&["*", "http://x/health", "", "//", "/registers", "/\u{e9}"])
                .to_owned(),
            _ => "/".repeat(self.below(40) + 1),
        };
        match self.below(10) {
            0 => format!("{path}?consistency=local"),
            1 => format!("{path}?{key}=%zz&consistency=x"),
            _ => path,
        }
    }

    /// Mostly one that the path takes.
    fn body(&mut self, target: &str) -> Vec<u8> {
        let operation = |key: &str| json!({"type": "counter-add", "key": key, "delta": 3});
        let number = self.below(1000);
        let kind = match target.split('/').nth(1) {
            _ if self.once_in(3) => self.below(16),
            _ if target.contains("/compare-and-set") => 5,
            Some("registers" | "lists" | "sets") => 0,
            Some("counters") => 4,
            Some("transactions") => self.below(2) + 6,
            _ => self.below(16),
        };
        let mut body = match kind {
            0..4 => json!({"value": number}).to_string().into_bytes(),
            4 => json!({"delta": number}).to_string().into_bytes(),
            5 => json!({"expected": null, "new": number})
                .to_string()
                .into_bytes(),
            6 => json!({"operations": vec![operation("k0"); self.below(140)]})
                .to_string()
                .into_bytes(),
            7 => json!({"operations": [operation("k1"), {"type": "list-read", "key": "k2"}]})
                .to_string()
                .into_bytes(),
            8 => deep(self.below(100_000)),
            9 => [&b"{\"value\":\""[..], &self.bytes(100), b"\"}"].concat(),
            10 => format!("{{\"value\":\"{}\"}}", "x".repeat(self.below(300_000))).into_bytes(),
            11 => b"{\"value\":1e999,\"value\":-0.0}".to_vec(),
            12 => foreign_message(),
            13 if self.once_in(20) => vec![b' '; 5_000_000],
            13 => Vec::new(),
            14 => b"{\"value\":\"\\ud800\"}".to_vec(),
            _ => self.bytes(300),
        };
        if self.once_in(10) {
            body.truncate(self.below(body.len() + 1));
        }
        if self.once_in(10) && !body.is_empty() {
            let at = self.below(body.len());
            body[at] ^= 1 << self.below(8);
        }
        body
    }

    fn headers(&mut self) -> String {
        let mut headers = String::new();
        while self.once_in(3) {
            let (count, key) = (self.below(30), self.key());
            headers += &match self.below(10) {
                0 => format!("x-client-id: c{}\r\nx-request-id: {count}\r\n", count % 3),
                1 => "x-client-id: a\r\nx-client-id: b\r\n".into(),
                2 => format!("x-request-id: -{count}\r\n"),
                3 => format!(
                    "content-type: {}\r\n",
                    self.one(&["text/xml", "", "a/b; c=\"", "é"])
                ),
                4 => format!(
                    "x-kraft-cluster-id: {}\r\n",
                    self.one(&["test", "other", ""])
                ),
                5 => "expect: 100-continue\r\n".into(),
                6 => format!("x-{count}: {key}\r\n").repeat(count * 5),
                7 => "upgrade: h2c\r\nconnection: upgrade\r\n".into(),
                8 => format!("accept-encoding: {key}\r\nrange: bytes=0-\r\n"),
                _ => format!("no colon {count}\r\n"),
            };
        }
        headers
    }

    /// Mostly one that the path takes.
    fn method(&mut self, target: &str) -> &'static str {
        if self.once_in(6) {
            return self.one(&[
                "GET", "PUT", "POST", "DELETE", "PATCH", "TRACE", "X", "g\u{0}t",
            ]);
        }
        let is_register = target.starts_with("/registers/") && !target.contains("/compare-and-set");
        let is_read = !target.starts_with("/transactions") && self.once_in(4);
        match is_register {
            _ if is_read => "GET",
            true => "PUT",
            false => "POST",
        }
    }

    fn request(&mut self) -> Vec<u8> {
        let version = if self.once_in(30) {
            self.one(&["HTTP/1.0", "HTTP/2.0", "HTTP/9", ""])
        } else {
            "HTTP/1.1"
        };
        let (target, headers) = (self.target(), self.headers());
        let method = self.method(&target);
        let body = if method == "GET" {
            Vec::new()
        } else {
            self.body(&target)
        };
        let mut request =
            format!("{method} {target} {version}\r\nhost: x\r\n{headers}").into_bytes();
        let framing = match self.below(40) {
            // Longer and shorter than what follows.
            0 => format!("content-length: {}\r\n\r\n", body.len() + 7),
            1 => format!("content-length: {}\r\n\r\n", body.len() / 2),
            2 => "content-length: 99999999999999999999\r\n\r\n".into(),
            3 => format!(
                "content-length: 3\r\ncontent-length: {}\r\n\r\n",
                body.len()
            ),
            4 => "transfer-encoding: chunked\r\n\r\n".into(),
            5..12 => {
                let chunk = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
                request.extend_from_slice(chunk.as_bytes());
                request.extend_from_slice(&body);
                request.extend_from_slice(b"\r\n0\r\n\r\n");
                return request;
            }
            _ => format!("content-length: {}\r\n\r\n", body.len()),
        };
        request.extend_from_slice(framing.as_bytes());
        request.extend_from_slice(&body);
        request
    }

    /// Everything that is said on one connection.
    fn utterance(&mut self) -> Vec<u8> {
        let mut bytes = match self.below(20) {
            0 => self.bytes(2000),
            1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00".to_vec(),
            2 => [
                &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
                &self.bytes(500),
            ]
            .concat(),
            3..6 => (0..self.below(6) + 2)
                .flat_map(|_| self.request())
                .collect(),
            _ => self.request(),
        };
        if self.once_in(10) {
            bytes.truncate(self.below(bytes.len() + 1));
        }
        bytes
    }
}

fn deep(depth: usize) -> Vec<u8> {
    format!("{{\"value\":{}{}}}", "[".repeat(depth), "]".repeat(depth)).into_bytes()
}

/// A replica of another cluster, which nobody may listen to.
fn foreign_message() -> Vec<u8> {
    json!({
        "cluster_id": "other", "voter_id": 1, "replica_id": 2, "replica_epoch": 2_000_000_000,
        "last_epoch": 2_000_000_000, "last_offset": 9_000_000, "pre_vote": false,
        "leader_id": 2, "leader_epoch": 2_000_000_000, "current_leader_epoch": 2_000_000_000,
        "fetch_offset": 0, "last_fetched_epoch": 0, "high_watermark": null, "max_wait_ms": 10,
        "max_bytes": 1000, "read_round": 0, "preferred_successors": [],
    })
    .to_string()
    .into_bytes()
}

/// What may follow a status: nothing for what is no HTTP, a described error for the rest.
fn check(answer: &Answer) -> Result<(), String> {
    const CODES: [(u16, &[&str]); 10] = [
        (400, &["INVALID_REQUEST", "INCONSISTENT_CLUSTER_ID"]),
        (404, &["INVALID_REQUEST"]),
        (405, &["INVALID_REQUEST"]),
        (408, &["INVALID_REQUEST"]),
        (
            409,
            &[
                "COMPARE_MISMATCH",
                "COUNTER_OVERFLOW",
                "RESULT_TOO_LARGE",
                "STALE_REQUEST",
                "REQUEST_ID_REUSED",
            ],
        ),
        (413, &["INVALID_REQUEST"]),
        (414, &[]),
        (421, &["NOT_LEADER_OR_FOLLOWER"]),
        (431, &[]),
        (504, &["REQUEST_TIMED_OUT", "LEADERSHIP_LOST"]),
    ];
    if answer.status == 200 || answer.status == 100 {
        return Ok(());
    }
    let known = CODES.iter().find(|(status, _)| *status == answer.status);
    let Some((status, codes)) = known else {
        return Err("nobody has described this status".into());
    };
    if answer.body.is_empty() && [400, 414, 431].contains(status) {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let text = |name: &str| body["error"][name].as_str().unwrap_or_default();
    if !codes.contains(&text("code")) || text("outcome").is_empty() || text("message").is_empty() {
        return Err(format!("not as described: {body}"));
    }
    Ok(())
}

/// Says something to a node, and gives how it was answered.
fn speak(port: u16, imagination: &mut Imagination) -> Result<Vec<u16>, String> {
    let bytes = imagination.utterance();
    let shown = || {
        bytes
            .escape_ascii()
            .to_string()
            .chars()
            .take(3000)
            .collect::<String>()
    };
    let mut raw = Raw::connect(port).map_err(|error| format!("no connection: {error}"))?;
    let mut left = &bytes[..];
    while !left.is_empty() {
        let most = if imagination.once_in(3) {
            20
        } else {
            left.len()
        };
        let (part, rest) = left.split_at(imagination.below(most.min(left.len())) + 1);
        // Fails once the node has heard enough.
        if raw.send(part).is_err() {
            break;
        }
        left = rest;
    }
    // Most are answered at once; the others are waited for.
    let mut said = raw.until_silent(SHORT_SILENCE);
    if Answer::parse(&said).is_none() {
        said.extend(raw.until_silent(SILENCE));
    }
    let _ = raw.finish();
    let (rest, is_over) = raw.rest();
    if !is_over {
        return Err(format!("the node hangs after {}", shown()));
    }
    said.extend(rest);
    let mut statuses = Vec::new();
    let mut unread = &said[..];
    while let Some((answer, length)) = Answer::parse(unread) {
        check(&answer).map_err(|what| format!("{what}: {answer:?} after {}", shown()))?;
        statuses.push(answer.status);
        unread = &unread[length..];
    }
    Ok(statuses)
}

/// Connections that drip, in every state that a request can be in.
fn drip(port: u16, is_over: &AtomicBool) {
    let starts = [
        "GET /health HTTP/1.1\r\nx-slow: ",
        "PUT /registers/a HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{\"value\":\"",
        "PUT /registers/a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n",
        "",
    ];
    let mut open: Vec<Raw> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if open.len() < 40 {
            for start in starts {
                let mut raw = Raw::connect(port).unwrap();
                raw.send(start).unwrap();
                open.push(raw);
            }
        }
        open.retain_mut(|raw| raw.send("x").is_ok());
        thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test]
async fn whatever_clients_say_nodes_answer_as_described_and_agree() {
    let seed = number("FUZZ_SEED", 1);
    let duration = Duration::from_secs(number("FUZZ_SECONDS", 5));
    let cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let drippers: Vec<_> = cluster
        .ports
        .iter()
        .map(|&port| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || drip(port, &is_over))
        })
        .collect();
    let speakers: Vec<_> = (0..SPEAKER_COUNT)
        .map(|_| {
            let (ports, next) = (cluster.ports.clone(), Arc::clone(&next));
            thread::spawn(move || {
                let mut counts = BTreeMap::new();
                loop {
                    let utterance = next.fetch_add(1, Ordering::Relaxed);
                    if utterance >= UTTERANCE_COUNT_MIN && begun.elapsed() >= duration {
                        break;
                    }
                    let mut imagination = Imagination::new(seed, utterance);
                    let port = ports[imagination.below(3)];
                    let statuses = speak(port, &mut imagination)
                        .unwrap_or_else(|error| panic!("FUZZ_SEED={seed}, {utterance}: {error}"));
                    for status in statuses {
                        *counts.entry(status).or_insert(0) += 1;
                    }
                }
                counts
            })
        })
        .collect();
    while !speakers.iter().all(thread::JoinHandle::is_finished) {
        for at in 0..3 {
            let (status, body) = ask(cluster.client.get(cluster.url(at, "/health")))
                .await
                .unwrap();
            assert_eq!(
                (status, body),
                (200, json!({"status": "up"})),
                "FUZZ_SEED={seed}"
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut counts = BTreeMap::<u16, u64>::new();
    for speaker in speakers {
        for (status, count) in speaker.join().expect("what was found is above") {
            *counts.entry(status).or_default() += count;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    drippers
        .into_iter()
        .for_each(|dripper| dripper.join().unwrap());
    println!(
        "{} utterances, answers by status: {counts:?}",
        next.load(Ordering::Relaxed)
    );
    for status in [200, 400, 404, 405, 413, 421] {
        assert!(counts.contains_key(&status), "never {status}: {counts:?}");
    }
    cluster.write_anywhere("a", json!(2)).await;
    cluster.agree().await;
    let states = eventually("three states of one age", async || {
        let mut states = Vec::new();
        for at in 0..3 {
            let (_, state) = ask(cluster.client.get(cluster.url(at, "/state")))
                .await
                .ok()?;
            states.push((state["applied"].as_i64()?, state["hash"].clone()));
        }
        states
            .iter()
            .all(|state| state.0 == states[0].0)
            .then_some(states)
    })
    .await;
    assert!(
        states.iter().all(|state| *state == states[0]),
        "FUZZ_SEED={seed}: {states:?}"
    );
    for node in cluster.nodes.iter().flatten() {
        assert!(
            !node.said().contains("stopped"),
            "FUZZ_SEED={seed}: {}",
            node.said()
        );
    }
}
