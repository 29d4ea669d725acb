//! Owns the tests of what ties a node process to a harness: control socket and death of the parent.
//! Never lets another process inherit a test's end of the socket.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server_support::{Node, PATIENCE, QUICK, ask, client, eventually};
use serde_json::{Value, json};

/// The harness' end of a control socket.
struct Control {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Control {
    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.stream, "{line}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }
}

/// Hands the socket over as standard input, so that no other child of this process can inherit it.
fn controlled(directory: &Path) -> (Node, Control) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
    command.args(["start", "--control-fd=0"]);
    start(command, directory)
}

/// Lets a shell move the socket to another descriptor on the way.
fn controlled_through(descriptor: u8, directory: &Path) -> (Node, Control) {
    let mut command = Command::new("sh");
    let script = format!("exec \"$@\" {descriptor}<&0 </dev/null");
    command.args([
        "-c",
        &script,
        "sh",
        env!("CARGO_BIN_EXE_kraft-node"),
        "start",
    ]);
    command.arg(format!("--control-fd={descriptor}"));
    start(command, directory)
}

fn start(mut command: Command, directory: &Path) -> (Node, Control) {
    let (stream, theirs) = UnixStream::pair().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    command
        .args(QUICK)
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"]);
    command
        .arg(directory.join("data"))
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let node = Node::start(command, directory);
    let lines = BufReader::new(stream.try_clone().unwrap());
    (node, Control { stream, lines })
}

/// Writes in another thread, as this one blocks on the control socket; the status, if there is an answer.
fn write_meanwhile(url: String) -> std::thread::JoinHandle<Option<u16>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let write = async { ask(client().put(url).body("{\"value\":1}")).await };
        runtime.block_on(write).ok().map(|(status, _)| status)
    })
}

async fn leader_status(control: &mut Control) -> Value {
    for _ in 0..2000 {
        let status = control.ask(r#"{"id":1,"command":"status"}"#);
        if status["role"] == "leader" && !status["high_watermark"].is_null() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the node never led");
}

#[tokio::test]
async fn status_has_the_documented_shape() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut control) = controlled(directory.path());
    let status = leader_status(&mut control).await;
    let expected = json!({
        "id": 1, "ok": true, "node": "n1", "http_port": node.port, "role": "leader",
        "epoch": status["epoch"], "leader": "n1",
        "high_watermark": status["high_watermark"], "log_end": status["log_end"],
        "clock": {"offset_ms": 0, "rate": 1.0, "skew_ms": 0.0}, "snapshot_end": 0,
    });
    assert_eq!(status, expected);
    assert!(status["epoch"].as_i64() >= Some(1) && status["log_end"].as_i64() >= Some(1));
}

#[tokio::test]
async fn the_clock_can_be_bent_and_restored() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut control) = controlled(directory.path());
    leader_status(&mut control).await;
    let answer = control.ask(r#"{"id":2,"command":"clock","offset_ms":-300,"rate":1.5}"#);
    assert_eq!((&answer["id"], &answer["ok"]), (&json!(2), &json!(true)));
    assert_eq!(
        answer["clock"],
        json!({"offset_ms": -300, "rate": 1.5, "skew_ms": -300.0})
    );
    eventually("the drift shows", async || {
        let status = control.ask(r#"{"id":3,"command":"status"}"#);
        (status["clock"]["skew_ms"].as_f64()? > -290.0).then_some(())
    })
    .await;
    let answer = control.ask(r#"{"id":4,"command":"clock","offset_ms":3600000,"rate":0}"#);
    assert_eq!(answer["ok"], true, "{answer}");
    let answer = control.ask(r#"{"id":5,"command":"clock","offset_ms":-3600000,"rate":1}"#);
    assert_eq!(answer["ok"], true, "{answer}");
    let answer = control.ask(r#"{"id":6,"command":"clock","offset_ms":0,"rate":1}"#);
    assert_eq!(
        answer["clock"],
        json!({"offset_ms": 0, "rate": 1.0, "skew_ms": 0.0})
    );
    let request = client().put(node.url("/registers/a")).body("{\"value\":1}");
    assert_eq!(ask(request).await.unwrap().0, 200, "it works as before");
}

#[tokio::test]
async fn what_is_not_understood_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut control) = controlled(directory.path());
    for (line, id) in [
        (r#"{"id":7,"command":"explode"}"#, json!(7)),
        (r#"{"id":"x"}"#, json!("x")),
        (r#"{"id":8,"command":"clock","rate":"fast"}"#, json!(8)),
        (r#"{"id":9,"command":"clock","rate":-1}"#, json!(9)),
        ("not json", Value::Null),
        ("[]", Value::Null),
        ("", Value::Null),
    ] {
        let answer = control.ask(line);
        assert_eq!(
            (&answer["id"], &answer["ok"]),
            (&id, &json!(false)),
            "{line}: {answer}"
        );
        assert!(
            answer["error"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{answer}"
        );
        assert_eq!(answer.as_object().unwrap().len(), 3);
    }
    // Several commands in one write are answered in order.
    let twice = "{\"id\":1,\"command\":\"status\"}\n{\"id\":2,\"command\":\"status\"}";
    assert_eq!(control.ask(twice)["id"], 1);
    assert_eq!(control.answer()["id"], 2);
}

#[tokio::test]
async fn shutdown_is_answered_and_orderly() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut control) = controlled_through(9, directory.path());
    leader_status(&mut control).await;
    assert_eq!(
        control.ask(r#"{"id":3,"command":"shutdown"}"#),
        json!({"id": 3, "ok": true})
    );
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
}

#[tokio::test]
async fn the_end_of_the_harness_is_the_end_of_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut control) = controlled(directory.path());
    leader_status(&mut control).await;
    drop(control);
    assert_eq!(node.ended().await.code(), Some(1));
    assert!(
        node.said()
            .contains("n1 stopped: the harness closed the control socket")
    );
}

#[tokio::test]
async fn a_node_waits_at_a_barrier_until_it_is_told_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut control) = controlled(directory.path());
    leader_status(&mut control).await;
    let unknown =
        control.ask(r#"{"id":2,"command":"barriers","at":[{"event":"boom","edge":"after"}]}"#);
    assert!(
        unknown["error"].as_str().unwrap().contains("boom"),
        "{unknown}"
    );
    let armed =
        control.ask(r#"{"id":3,"command":"barriers","at":[{"event":"flush","edge":"before"}]}"#);
    assert_eq!(armed, json!({"id": 3, "ok": true}));
    let write = write_meanwhile(node.url("/registers/a"));
    let reached = control.answer();
    assert_eq!(
        (
            &reached["event"],
            &reached["edge"],
            &reached["held"],
            &reached["role"]
        ),
        (
            &json!("flush"),
            &json!("before"),
            &json!(true),
            &json!("leader")
        )
    );
    // Nothing of the node answers, but what is about barriers is heard.
    writeln!(control.stream, r#"{{"id":4,"command":"status"}}"#).unwrap();
    let disarmed = control.ask(r#"{"id":5,"command":"barriers","at":[]}"#);
    assert_eq!(disarmed["id"], 5, "{disarmed}");
    assert!(
        !write.is_finished(),
        "what is not durable is not acknowledged"
    );
    let barrier = &reached["barrier"];
    writeln!(
        control.stream,
        r#"{{"command":"continue","barrier":{barrier}}}"#
    )
    .unwrap();
    assert_eq!(control.answer()["id"], 4);
    assert_eq!(write.join().unwrap(), Some(200));
}

#[tokio::test]
async fn a_node_at_a_barrier_ends_with_its_harness() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut control) = controlled(directory.path());
    leader_status(&mut control).await;
    let at = r#"[{"event":"append","edge":"before"}]"#;
    control.ask(&format!(r#"{{"id":3,"command":"barriers","at":{at}}}"#));
    let write = write_meanwhile(node.url("/registers/a"));
    assert_eq!(control.answer()["event"], "append");
    drop(control);
    assert_eq!(node.ended().await.code(), Some(1));
    assert_eq!(write.join().unwrap(), None);
}

#[tokio::test]
async fn a_control_descriptor_must_be_a_connected_unix_stream() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (datagram, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    for (descriptor, named) in [
        (OwnedFd::from(tcp), "is not a Unix domain socket"),
        (OwnedFd::from(datagram), "is not a stream socket"),
        (OwnedFd::from(file), "is not a socket"),
    ] {
        let output = Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" 9<&0 </dev/null",
                "sh",
                env!("CARGO_BIN_EXE_kraft-node"),
            ])
            .args([
                "start",
                "--id=1",
                "--listen=127.0.0.1:0",
                "--control-fd=9",
                "--data",
            ])
            .arg(directory.path().join("data"))
            .stdin(Stdio::from(descriptor))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(254), "{said}");
        assert!(said.contains(named), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_node_can_die_with_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    // A shell that waits for the node is its parent, and is killed.
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "\"$@\" >&2 & echo $!; wait",
            "sh",
            env!("CARGO_BIN_EXE_kraft-node"),
        ])
        .args([
            "start",
            "--id=1",
            "--listen=127.0.0.1:0",
            "--die-with-parent",
            "--data",
        ])
        .arg(directory.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    let mut said = BufReader::new(shell.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(
            said.read_line(&mut line).unwrap() > 0,
            "the node did not start"
        );
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    let state = format!("/proc/{}/stat", pid.trim());
    eventually("the node dies", async || {
        match std::fs::read_to_string(&state) {
            Ok(text) => text.contains(") Z ").then_some(()),
            Err(_) => Some(()),
        }
    })
    .await;
}
