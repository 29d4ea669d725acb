//! Owns the tests of the control socket's client, against a node that the test plays.

use super::*;
use tokio::io::{AsyncBufReadExt, BufReader};

type Node = BufReader<UnixStream>;

fn pair(timeout_ms: u64) -> (ControlClient, Node) {
    let (client, node, _) = pair_with_barriers(timeout_ms);
    (client, node)
}

fn pair_with_barriers(timeout_ms: u64) -> (ControlClient, Node, BarriersReached) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let timeout = Duration::from_millis(timeout_ms);
    let (client, reached) = ControlClient::with_timeout(ours, timeout);
    (client, BufReader::new(theirs), reached)
}

async fn request(node: &mut Node) -> Value {
    let mut line = String::new();
    node.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

async fn answer(node: &mut Node, line: &str) {
    node.write_all(format!("{line}\n").as_bytes())
        .await
        .unwrap();
}

const PATIENT_MS: u64 = 20_000;

#[tokio::test]
async fn status_and_clock_speak_the_documented_lines() {
    let (client, mut node) = pair(PATIENT_MS);
    let serve = async {
        assert_eq!(
            request(&mut node).await,
            json!({"id": 1, "command": "status"})
        );
        answer(
            &mut node,
            r#"{"id":1,"ok":true,"node":"n1","http_port":41234,"role":"leader","epoch":3,
                "leader":"n1","high_watermark":12,"log_end":15,
                "clock":{"offset_ms":0,"rate":1.0,"skew_ms":0.0}}"#
                .replace('\n', "")
                .as_str(),
        )
        .await;
        assert_eq!(
            request(&mut node).await,
            json!({"id": 2, "command": "clock", "offset_ms": -300, "rate": 1.2})
        );
        answer(
            &mut node,
            r#"{"id":2,"ok":true,"clock":{"offset_ms":-300,"rate":1.2,"skew_ms":-299.5}}"#,
        )
        .await;
        assert_eq!(
            request(&mut node).await,
            json!({"id": 3, "command": "shutdown"})
        );
        answer(&mut node, r#"{"id":3,"ok":true}"#).await;
    };
    let drive = async {
        let status = client.status().await.unwrap();
        assert_eq!((status.node.as_str(), status.http_port), ("n1", 41234));
        assert_eq!(status.high_watermark, Some(12));
        let clock = client.set_clock(-300, 1.2).await.unwrap();
        assert_eq!(clock.skew_ms, -299.5);
        client.shutdown().await.unwrap();
    };
    tokio::join!(serve, drive);
}

#[tokio::test]
async fn disks_fail_and_heal_and_a_node_that_dies_hangs_up() {
    let (client, mut node) = pair(PATIENT_MS);
    let fault = DiskFault {
        what: crate::fault::DiskProblem::SlowSync,
        files: crate::fault::Files::QuorumState,
        delay_ms: Some(7),
        restart: false,
    };
    let serve = async {
        assert_eq!(
            request(&mut node).await,
            json!({"id": 1, "command": "disk-fault", "fault_id": 9, "what": "slow-sync",
                "files": "quorum-state", "delay_ms": 7})
        );
        answer(&mut node, r#"{"id":1,"ok":true}"#).await;
        assert_eq!(
            request(&mut node).await,
            json!({"id": 2, "command": "disk-heal", "fault_id": 9})
        );
        answer(&mut node, r#"{"id":2,"ok":true,"hit_count":4}"#).await;
        assert_eq!(request(&mut node).await, json!({"id": 3, "command": "die"}));
        drop(node);
    };
    let drive = async {
        client.fail_disk(9, fault).await.unwrap();
        assert_eq!(client.heal_disk(9).await, Ok(4));
        client.die().await.unwrap();
    };
    tokio::join!(serve, drive);
}

#[tokio::test]
async fn a_late_answer_is_not_taken_for_the_next_one() {
    let (client, mut node) = pair(100);
    let first = client.set_clock(1, 1.0).await;
    assert!(
        matches!(first, Err(ControlError::Timeout { .. })),
        "{first:?}"
    );
    // Half of the late answer comes during the second call, which times out as well.
    let (second, ()) = tokio::join!(client.set_clock(2, 1.0), async {
        node.write_all(br#"{"id":1,"ok":true,"clock":{"offset"#)
            .await
            .unwrap();
    });
    assert!(
        matches!(second, Err(ControlError::Timeout { .. })),
        "{second:?}"
    );
    let patient = ControlClient {
        timeout: Duration::from_millis(PATIENT_MS),
        ..client.clone()
    };
    let (third, ()) = tokio::join!(patient.set_clock(3, 1.0), async {
        for id in 1..=3 {
            assert_eq!(request(&mut node).await["id"], id);
        }
        answer(&mut node, r#"_ms":1,"rate":1.0,"skew_ms":1.0}}"#).await;
        for id in 2..=3 {
            let line = format!(
                r#"{{"id":{id},"ok":true,"clock":{{"offset_ms":{id},"rate":1.0,"skew_ms":0.0}}}}"#
            );
            answer(&mut node, &line).await;
        }
    });
    assert_eq!(third.unwrap().offset_ms, 3);
}

#[tokio::test]
async fn requests_are_whole_even_when_the_node_reads_too_late() {
    let (client, mut node) = pair(50);
    let mut large = Map::new();
    large.insert("padding".into(), "x".repeat(4 << 20).into());
    for _ in 0..2 {
        let result = client.call("large", &large).await;
        assert!(
            matches!(result, Err(ControlError::Timeout { .. })),
            "{result:?}"
        );
    }
    let patient = ControlClient {
        timeout: Duration::from_millis(PATIENT_MS),
        ..client.clone()
    };
    let (result, ()) = tokio::join!(patient.shutdown(), async {
        let first = request(&mut node).await;
        assert_eq!(first["padding"], large["padding"]);
        let second = request(&mut node).await;
        assert_eq!(second["command"], "shutdown");
        answer(&mut node, r#"{"id":1,"ok":true}"#).await;
        answer(
            &mut node,
            &format!(r#"{{"id":{},"ok":true}}"#, second["id"]),
        )
        .await;
    });
    assert_eq!(result, Ok(()));
}

#[tokio::test]
async fn a_node_at_a_barrier_is_let_go_while_calls_wait() {
    let (client, mut node, mut reached) = pair_with_barriers(PATIENT_MS);
    let serve = async {
        let armed = request(&mut node).await;
        assert_eq!(
            armed,
            json!({"id": 1, "command": "barriers", "at": [{"event": "flush", "edge": "before"}]})
        );
        answer(&mut node, r#"{"id":1,"ok":true}"#).await;
        assert_eq!(request(&mut node).await["command"], "shutdown");
        answer(
            &mut node,
            r#"{"barrier":7,"event":"flush","edge":"before","held":true,"role":"leader","epoch":2,"seq":40}"#,
        )
        .await;
        assert_eq!(
            request(&mut node).await,
            json!({"command": "continue", "barrier": 7})
        );
        answer(&mut node, r#"{"id":2,"ok":true}"#).await;
    };
    let drive = async {
        client
            .set_barriers(&[("flush".into(), "before")])
            .await
            .unwrap();
        let (stopped, ()) = tokio::join!(client.shutdown(), async {
            let at = reached.recv().await.unwrap();
            assert_eq!((at.barrier, at.held, at.seq), (7, true, 40));
            assert_eq!(at.role.as_deref(), Some("leader"));
            client.go_on(at.barrier).await.unwrap();
        });
        stopped.unwrap();
    };
    tokio::join!(serve, drive);
}

#[tokio::test]
async fn clones_take_turns() {
    let (client, mut node) = pair(PATIENT_MS);
    let echo = async {
        for _ in 0..20 {
            let request = request(&mut node).await;
            let line = json!({"id": request["id"], "ok": true, "echo": request["number"]});
            answer(&mut node, &line.to_string()).await;
        }
    };
    let calls: Vec<_> = (0..20u64)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut parameters = Map::new();
                parameters.insert("number".into(), number.into());
                let answer = client.call("echo", &parameters).await.unwrap();
                assert_eq!(answer["echo"], number);
            })
        })
        .collect();
    echo.await;
    for call in calls {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn refusals_nonsense_and_hanging_up_are_told_apart() {
    let (client, mut node) = pair(PATIENT_MS);
    answer(
        &mut node,
        r#"{"id":1,"ok":false,"error":"no such command"}"#,
    )
    .await;
    answer(&mut node, "panicked at").await;
    answer(&mut node, r#"{"id":3,"ok":true}"#).await;
    answer(&mut node, r#"{"ok":true}"#).await;
    answer(&mut node, r#"{"id":99,"ok":true}"#).await;
    assert_eq!(
        client.status().await,
        Err(ControlError::Refused("no such command".into()))
    );
    for _ in 2..=5 {
        let result = client.status().await;
        assert!(
            matches!(result, Err(ControlError::Malformed(_))),
            "{result:?}"
        );
    }
    drop(node);
    for _ in 0..2 {
        let result = client.status().await;
        assert!(matches!(result, Err(ControlError::Closed(_))), "{result:?}");
    }
}
