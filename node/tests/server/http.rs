//! Owns the tests of a single node process: its HTTP interface, its start and its end.
//! Never looks inside the process.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::server_support::{Node, ask, client, eventually, single, start_command};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[tokio::test]
async fn registers_can_be_written_read_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let register = node.url("/registers/a%2Fb%20%C3%A9");
    let swap = node.url("/registers/a%2Fb%20%C3%A9/compare-and-set");

    let (status, body) = ask(client.get(&register)).await.unwrap();
    assert_eq!((status, &body["value"]), (200, &Value::Null));
    let (status, written) = ask(client
        .put(&register)
        .json(&json!({"value": {"x": [1, 0.1]}})))
    .await
    .unwrap();
    assert_eq!(status, 200, "{written}");
    let (status, read) = ask(client.get(&register)).await.unwrap();
    assert_eq!((status, &read["value"]), (200, &json!({"x": [1, 0.1]})));
    assert_eq!(read["epoch"], written["epoch"]);
    assert!(
        read["offset"].as_i64() > written["offset"].as_i64(),
        "{read} {written}"
    );

    let request = json!({"expected": {"x": [1, 0.1]}, "new": 2});
    let (status, body) = ask(client.post(&swap).json(&request)).await.unwrap();
    assert_eq!(status, 200, "{body}");
    assert!(body["offset"].as_i64() > written["offset"].as_i64());
    let (status, body) = ask(client.post(&swap).json(&request)).await.unwrap();
    assert_eq!(status, 409, "{body}");
    let error = &body["error"];
    assert_eq!(
        (&error["code"], &error["current"]),
        (&json!("COMPARE_MISMATCH"), &json!(2))
    );
    assert_eq!(error["outcome"], "not-applied");
    assert!(body["epoch"].is_i64() && body["offset"].is_i64(), "{body}");
    assert_eq!(ask(client.get(&register)).await.unwrap().1["value"], 2);
}

#[tokio::test]
async fn every_malformed_request_is_refused_in_json() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let register = node.url("/registers/a");
    let swap = node.url("/registers/a/compare-and-set");
    let deep = |depth| format!("{{\"value\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let long = format!("{{\"value\":\"{}\"}}", "x".repeat(70_000));
    let huge = format!("{{\"value\":\"{}\"}}", "x".repeat(1_000_000));
    for (request, expected) in [
        (client.put(&register).body("{\"value\":"), 400),
        (client.put(&register).body(""), 400),
        (client.put(&register).body("[]"), 400),
        (client.put(&register).body("{\"val\":1}"), 400),
        (client.put(&register).body("{\"value\":1,\"more\":2}"), 400),
        (client.put(&register).body("{\"value\":1e999}"), 400),
        (
            client.put(&register).body(&b"{\"value\":\"\xff\"}"[..]),
            400,
        ),
        (client.put(&register).body(deep(101)), 400),
        (client.put(&register).body(deep(200)), 400),
        (client.put(&register).body(long), 400),
        (client.put(&register).body(huge), 413),
        (client.post(&swap).body("{\"expected\":1}"), 400),
        (client.post(&swap).body("{\"new\":1}"), 400),
        (client.get(node.url("/registers/%ff")), 400),
        (client.get(node.url("/registers/%")), 400),
        (client.get(node.url("/counters/a%zz")), 400),
        (
            client.put(node.url("/registers/%4")).body("{\"value\":1}"),
            400,
        ),
        (
            client
                .post(node.url("/registers/a%%41/compare-and-set"))
                .body("{\"expected\":null,\"new\":1}"),
            400,
        ),
        (client.get(node.url("/registers/")), 404),
        (client.get(node.url("/nowhere")), 404),
        (client.delete(&register), 405),
        (client.put(&swap).body("{}"), 405),
        (client.get(node.url("/raft/fetch")), 405),
        (client.get(node.url("/quorum?unknown=1")), 400),
        (client.get(node.url("/metrics?unknown")), 400),
        (
            client
                .put(node.url("/registers/a?consistency=local"))
                .body("{\"value\":1}"),
            400,
        ),
        (client.post(node.url("/raft/vote")).body("{}"), 400),
        (client.post(node.url("/raft/fetch")).body("\0\0\0\0"), 400),
    ] {
        let shown = format!("{request:?}");
        let (status, body) = ask(request).await.unwrap();
        assert_eq!(status, expected, "{shown}: {body}");
        let error = body["error"].as_object().unwrap();
        let keys: Vec<_> = error.keys().collect();
        assert_eq!(keys, ["code", "message", "outcome"], "{shown}");
        assert_eq!(error["code"], "INVALID_REQUEST", "{shown}");
        assert_eq!(error["outcome"], "refused", "{shown}");
        assert_eq!(
            body["leader"],
            json!({"id": 1, "url": node.url("")}),
            "{shown}"
        );
        assert!(body["epoch"].is_i64(), "{shown}");
    }
    let (_, body) = ask(client.get(&register)).await.unwrap();
    assert_eq!(
        body["value"],
        Value::Null,
        "nothing that was refused took effect"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_body_names_the_field() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let fetch = json!({
        "cluster_id": "test", "replica": {"id": 2}, "current_leader_epoch": 1, "fetch_offset": 0,
        "last_fetched_epoch": 0, "high_watermark": null, "max_wait_ms": 0, "max_bytes": 1, "read_round": 0,
    });
    let snapshot = json!({
        "cluster_id": "test", "replica": {"id": 2}, "current_leader_epoch": 1, "max_bytes": 1,
        "snapshot_id": {"end_offset": 5, "epoch": 1}, "position_bytes": 0,
    });
    let delta = json!({"delta": 1});
    for (method, path, sound, field, value) in [
        ("POST", "/raft/fetch", &fetch, "max_wait_ms", json!(-1)),
        ("POST", "/raft/fetch", &fetch, "max_bytes", json!(-1)),
        ("POST", "/raft/fetch", &fetch, "fetch_offset", json!("0")),
        (
            "POST",
            "/raft/fetch-snapshot",
            &snapshot,
            "position_bytes",
            json!(-1),
        ),
        (
            "POST",
            "/raft/fetch-snapshot",
            &snapshot,
            "snapshot_id",
            json!(7),
        ),
        ("POST", "/counters/a", &delta, "delta", json!(1.5)),
    ] {
        let mut body = sound.clone();
        body[field] = value;
        let request = client.request(method.parse().unwrap(), node.url(path));
        let (status, body) = ask(request.json(&body)).await.unwrap();
        assert_eq!(status, 400, "{body}");
        assert_eq!(body["error"]["code"], "INVALID_REQUEST", "{body}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!(": {field}: invalid ")),
            "{message}"
        );
    }
    let mut nested = fetch.clone();
    nested["replica"]["id"] = json!(1_u64 << 40);
    let request = client.post(node.url("/raft/fetch")).json(&nested);
    let (_, body) = ask(request).await.unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains(": replica.id: invalid "), "{message}");
    let deep = format!("{{\"value\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let request = client.put(node.url("/registers/a")).body(deep);
    let (_, body) = ask(request).await.unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    let words = ["value[0], ", " levels deep: recursion limit exceeded at "];
    assert!(words.iter().all(|it| message.contains(it)), "{message}");
    assert!(message.len() < 150, "{message}");
}

#[tokio::test]
async fn head_is_answered_as_get_is_without_the_body() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    for path in [
        "/registers/a",
        "/lists/a?consistency=local",
        "/quorum",
        "/state",
        "/metrics",
        "/health",
        "/health/ready",
        "/openapi.json",
        "/quorum?unknown=1",
        "/nowhere",
    ] {
        let full = client.get(node.url(path)).send().await.unwrap();
        let head = client.head(node.url(path)).send().await.unwrap();
        assert_eq!(head.status(), full.status(), "{path}");
        assert_eq!(
            head.headers()["content-type"],
            full.headers()["content-type"],
            "{path}"
        );
        assert!(head.bytes().await.unwrap().is_empty(), "{path}");
    }
    let request = client.head(node.url("/transactions"));
    assert_eq!(request.send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn values_at_the_limits_of_json_survive_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for (key, value) in [
        ("nested", nested.as_str()),
        ("largest", "1.7976931348623157e308"),
        ("smallest", "5e-324"),
        ("third", "0.33333333333333331"),
        ("integer", "18446744073709551615"),
        ("text", "\"\\u0000\\ud83d\\ude00\\\"\""),
    ] {
        let path = format!("/registers/{key}");
        let body = format!("{{\"value\":{value}}}");
        let (status, answer) = ask(client.put(node.url(&path)).body(body)).await.unwrap();
        assert_eq!(status, 200, "{key}: {answer}");
        let expected: Value = serde_json::from_str(value).unwrap();
        let (_, answer) = ask(client.get(node.url(&path))).await.unwrap();
        assert_eq!(answer["value"], expected, "{key}");
    }
}

#[tokio::test]
async fn people_can_look_at_the_quorum() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let (status, body) = ask(client.get(node.url("/quorum"))).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(body["cluster_id"], "test");
    assert_eq!(
        (&body["id"], &body["role"], &body["leader"]),
        (&json!(1), &json!("leader"), &json!(1))
    );
    assert_eq!(body["high_watermark"], body["log_end"]);
    assert_eq!(body["voters"][0]["id"], 1);
    assert_eq!(
        ask(client.get(node.url("/health"))).await.unwrap(),
        (200, json!({"status": "up"}))
    );
    assert_eq!(
        ask(client.get(node.url("/health/ready"))).await.unwrap(),
        (200, json!({"status": "ready"}))
    );
}

#[tokio::test]
async fn metrics_follow_what_the_node_does() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let metrics = async || {
        let response = client.get(node.url("/metrics")).send().await.unwrap();
        let media_type = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            media_type.starts_with("text/plain; version=0.0.4"),
            "{media_type}"
        );
        response.text().await.unwrap()
    };
    let value = |text: &str, name: &str| -> f64 {
        let start = format!("kafka_server_raft_metrics_{name} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&start));
        found
            .unwrap_or_else(|| panic!("{name} in {text}"))
            .parse()
            .unwrap()
    };
    let before = metrics().await;
    assert!(value(&before, "current_state{state=\"leader\"}") == 1.0);
    assert!(value(&before, "current_leader") == 1.0);
    for _ in 0..3 {
        let request = client.put(node.url("/registers/a")).body("{\"value\":1}");
        assert_eq!(ask(request).await.unwrap().0, 200);
    }
    let after = metrics().await;
    for name in ["high_watermark", "log_end_offset", "append_records_total"] {
        assert!(value(&after, name) == value(&before, name) + 3.0, "{name}");
    }
    let (average, longest) = (
        value(&after, "commit_latency_avg"),
        value(&after, "commit_latency_max"),
    );
    assert!(average > 0.0 && longest >= average, "{average} {longest}");
    let idle = value(&after, "poll_idle_ratio_avg");
    assert!(idle > 0.0 && idle <= 1.0, "{idle}");
    let lag = after
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| line.split_once("last_applied_record_lag_ms "))
        .map(|(_, lag)| lag.parse::<i64>().unwrap());
    assert!(lag.is_some_and(|lag| (0..60_000).contains(&lag)), "{after}");
}

#[tokio::test]
async fn requests_of_another_cluster_are_answered_with_kafkas_code() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let request = json!({
        "cluster_id": "other", "voter": {"id": 1}, "replica": {"id": 2}, "replica_epoch": 9,
        "last_epoch": 0, "last_offset": 0, "pre_vote": false,
    });
    let (status, body) = ask(client().post(node.url("/raft/vote")).json(&request))
        .await
        .unwrap();
    assert_eq!(
        (status, &body["error"]),
        (200, &json!("INCONSISTENT_CLUSTER_ID"))
    );
    assert_eq!(body["vote_granted"], false);
}

#[tokio::test]
async fn a_node_without_majority_refuses_and_knows_no_leader() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = start_command();
    command
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"])
        .arg(directory.path().join("data"));
    let ports = crate::server_support::free_ports(2);
    command.arg(format!("--peer=2=http://127.0.0.1:{}", ports[0]));
    command.arg(format!("--peer=3=http://127.0.0.1:{}", ports[1]));
    let node = Node::start(command, directory.path());
    let client = client();
    for request in [
        client.get(node.url("/registers/a")),
        client.put(node.url("/registers/a")).body("{\"value\":1}"),
        client
            .post(node.url("/registers/a/compare-and-set"))
            .body("{\"expected\":1,\"new\":2}"),
    ] {
        let (status, body) = ask(request).await.unwrap();
        assert_eq!(status, 421, "{body}");
        assert_eq!(body["error"]["code"], "NOT_LEADER_OR_FOLLOWER");
        assert_eq!(body["error"]["outcome"], "refused");
        assert_eq!(body["leader"], Value::Null);
    }
}

#[tokio::test]
async fn a_log_can_be_dumped_while_its_node_runs() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let request = client()
        .put(node.url("/registers/colour"))
        .body("{\"value\":\"blue\"}");
    let (_, written) = ask(request).await.unwrap();
    let dump = |data: std::path::PathBuf| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        run(command.args(["dump-log", "--records", "--data"]).arg(data))
    };
    let line = format!(
        "| offset: {} size: 72 payload: {{\"operations\":[{{\"type\":\"register-write\",\
         \"key\":\"colour\",\"value\":\"blue\"}}]}}",
        written["offset"]
    );
    let (code, said, output) = dump(directory.path().join("data"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((code, said.as_str()), (0, ""), "{text}");
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    assert!(text.contains("isControl: true"), "{text}");
    let (code, said, _) = dump(directory.path().join("nowhere"));
    assert_eq!((code, said.lines().count()), (255, 1), "{said}");
}

#[tokio::test]
async fn acknowledged_writes_survive_a_power_cut() {
    let directory = tempfile::tempdir().unwrap();
    let client = client();
    let mut last = json!(null);
    for round in 0..3 {
        let node = single(directory.path(), &[]).await;
        let (_, body) = ask(client.get(node.url("/registers/a"))).await.unwrap();
        assert_eq!(body["value"], last, "round {round}");
        for write in 0..20 {
            last = json!([round, write]);
            let request = client
                .put(node.url("/registers/a"))
                .json(&json!({"value": last}));
            assert_eq!(ask(request).await.unwrap().0, 200);
        }
        node.kill();
    }
}

#[tokio::test]
async fn signals_stop_a_node_in_an_orderly_way() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        if signal == Signal::SIGHUP && ignores_hangups() {
            // So would the node.
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut node = single(directory.path(), &[]).await;
        node.signal(signal);
        assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
        assert!(node.said().contains("stopped"), "{}", node.said());
    }
}

fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut masks = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(masks.next().unwrap().trim(), 16).unwrap();
    mask & 1 == 1
}

#[tokio::test]
async fn a_node_that_is_to_survive_a_hangup_does() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_kraft-node"));
    command.args(start_command().get_args());
    command
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"])
        .arg(directory.path().join("data"))
        .stdin(std::process::Stdio::null());
    let mut node = Node::start(command, directory.path());
    node.signal(Signal::SIGHUP);
    let (status, _) = ask(client().get(node.url("/quorum"))).await.unwrap();
    assert_eq!(status, 200);
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
    assert!(
        node.said().contains("reason=\"SIGTERM\""),
        "{}",
        node.said()
    );
}

#[tokio::test]
async fn the_trace_tells_of_every_incarnation_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.jsonl");
    let option = format!("--trace={}", trace.display());
    let client = client();
    for incarnation in 1..=2 {
        let number = format!("--incarnation={incarnation}");
        let node = single(directory.path(), &[&option, &number, "--trace-origin-ns=1"]).await;
        let request = client.put(node.url("/registers/a")).body("{\"value\":1}");
        let (_, body) = ask(request).await.unwrap();
        let text = fs::read_to_string(&trace).unwrap();
        let committed = format!(
            "\"high_watermark\":{}",
            body["offset"].as_i64().unwrap() + 1
        );
        assert!(
            text.contains(&committed),
            "the answer came before its trace: {text}"
        );
        node.kill();
    }
    let mut next = [0; 3];
    let mut last_time = 0;
    for line in fs::read_to_string(&trace).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let incarnation = event["incarnation"].as_u64().unwrap() as usize;
        assert_eq!(event["seq"], next[incarnation], "{line}");
        next[incarnation] += 1;
        let time = event["time"].as_u64().unwrap();
        assert!(time >= last_time && event["node"] == "n1", "{line}");
        last_time = time;
    }
    assert!(next[1] > 3 && next[2] > 3, "{next:?}");
}

fn run(command: &mut Command) -> (i32, String, Output) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output.status.code().unwrap(), said, output)
}

#[tokio::test]
async fn what_keeps_a_node_from_starting_is_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let data = directory.path().join("data");
    let fresh = directory.path().join("fresh");
    let busy = format!("--listen=127.0.0.1:{}", node.port);
    let trace = directory.path().join("trace.jsonl");
    let with = |id: &str, listen: &str, data: &std::path::Path| {
        let mut command = start_command();
        command.args([id, listen, "--data"]).arg(data);
        command
    };
    let free = "--listen=127.0.0.1:0";
    let refuse = |command: &mut Command, code: i32, named: &str| {
        let (got, said, output) = run(command);
        assert_eq!(got, code, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(named), "{said}");
        assert!(output.stdout.is_empty(), "it never said that it listens");
    };
    refuse(
        &mut with("--id=2", &busy, &fresh),
        255,
        "cannot listen on 127.0.0.1:",
    );
    refuse(
        &mut with("--id=1", free, &data),
        255,
        "in use by another process",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--peer=2=http://a:1"),
        254,
        "--peer 2=",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--control-fd=77"),
        254,
        "77 is not open",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--control-fd=0"),
        254,
        "0 is not a socket",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--control-fd=2"),
        254,
        "stream for output",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--trace=/dev/null/x"),
        255,
        "cannot write the trace",
    );
    refuse(
        with("--id=2", free, &fresh).arg("--frobnicate"),
        254,
        "--frobnicate",
    );
    assert!(!fresh.exists(), "nothing is half-started");
    refuse(
        &mut with("--id=2", free, std::path::Path::new("/dev/null/x")),
        255,
        "/dev/null/x",
    );
    node.kill();
    refuse(
        with("--id=2", free, &data).arg("--trace").arg(&trace),
        255,
        "belongs to",
    );
    let line: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    assert_eq!(line["event"], "refused-to-start");
}

#[tokio::test]
async fn a_trace_that_cannot_be_written_keeps_the_node_from_going_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = start_command();
    command.args([
        "--id=1",
        "--listen=127.0.0.1:0",
        "--trace=/dev/full",
        "--data",
    ]);
    let (code, said, _) = run(command.arg(directory.path()));
    assert_eq!(code, 255, "{said}");
    assert!(
        said.contains("cannot write the trace file /dev/full"),
        "{said}"
    );
}

/// A disk that fails under a running node ends the process, and no acknowledged write is lost.
#[tokio::test]
async fn a_failing_disk_stops_the_node_with_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut command = Command::new("sh");
    // Without the signal, writing past the limit is an ordinary error of the disk.
    command.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]);
    command
        .args([env!("CARGO_BIN_EXE_kraft-node"), "start"])
        .args(crate::server_support::QUICK);
    command
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"])
        .arg(&data);
    let mut node = Node::start(command, directory.path());
    let client = client();
    let value = |count: usize| json!({"value": [count, "x".repeat(5000)]});
    eventually("the node leads", async || {
        let request = client.put(node.url("/registers/a")).json(&value(0));
        (ask(request).await.ok()?.0 == 200).then_some(())
    })
    .await;
    let mut acknowledged = 0;
    for count in 1..100 {
        match ask(client.put(node.url("/registers/a")).json(&value(count))).await {
            Ok((200, _)) => acknowledged = count,
            _ => break,
        }
    }
    assert!((1..99).contains(&acknowledged), "the disk never failed");
    assert_eq!(node.ended().await.code(), Some(1));
    let said = node.said();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("n1 stopped: "), "{said}");
    drop(node);
    let node = single(directory.path(), &[]).await;
    let (_, body) = ask(client.get(node.url("/registers/a"))).await.unwrap();
    assert!(
        body["value"][0].as_u64().unwrap() >= acknowledged as u64,
        "{body}"
    );
}
