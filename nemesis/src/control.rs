//! Owns the harness's end of a node's control socket: requests, answers, and what can go wrong between.
//! Never connects, starts or restarts a node, and never takes a late answer for the one it waits for.

use crate::fault::DiskFault;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long a call may take unless said otherwise, waiting for earlier calls included.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest line that a node may send.
const LINE_MAX_BYTES: usize = 1 << 20;

/// A client of one node's control socket. Clones share the connection and take turns.
///
/// Requests and answers are JSON objects, one per line; an answer echoes the `id` of its request. A
/// request that timed out may still be carried out later, when a stopped node continues: the node acts
/// on requests in the order they were sent, so a later one always has the last word.
#[derive(Debug, Clone)]
pub struct ControlClient {
    turn: Arc<Mutex<Turn>>,
    writer: Arc<Mutex<Writer>>,
    timeout: Duration,
}

/// What a node says when it comes to a barrier.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BarrierReached {
    /// Names the barrier; [`ControlClient::go_on`] opens it.
    pub barrier: u64,
    /// The event: `flush`, `became-leader` and so on.
    pub event: String,
    /// `before` or `after`.
    pub edge: String,
    /// Whether the node waits there. It does not after it has sent something, which leaves only if it
    /// goes on.
    pub held: bool,
    /// The state that the node last reported: `leader`, `follower` and so on.
    #[serde(default)]
    pub role: Option<String>,
    /// Its epoch.
    pub epoch: i32,
    /// Number of the event in its trace; before an event, of the next one.
    pub seq: u64,
}

/// The barriers that a node comes to, in order. Ends with the connection.
pub type BarriersReached = UnboundedReceiver<BarrierReached>;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Port of its HTTP front.
    pub http_port: u16,
    /// Its role in the election: `leader`, `follower`, `candidate` and so on.
    pub role: String,
    /// Its epoch.
    pub epoch: u64,
    /// The leader of that epoch, if it knows one.
    #[serde(default)]
    pub leader: Option<String>,
    /// Its high watermark; unknown to a leader that has not committed in its epoch.
    #[serde(default)]
    pub high_watermark: Option<u64>,
    /// Offset after the last record of its log.
    pub log_end: u64,
    /// Offset after the last record that its newest snapshot covers; 0 for none. Absent where it does not
    /// tell.
    #[serde(default)]
    pub snapshot_end: Option<u64>,
    /// Its clock.
    pub clock: ClockReading,
}

/// A fault of a disk as a node has it told.
pub fn disk_fault(fault_id: u64, fault: DiskFault) -> Value {
    let mut told = json!(fault);
    if let Value::Object(told) = &mut told {
        told.insert("fault_id".into(), json!(fault_id));
        // That is for whoever starts nodes.
        told.remove("restart");
    }
    told
}

/// A node's clock as measured by the node.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct ClockReading {
    /// Jump last asked for, in milliseconds.
    pub offset_ms: i64,
    /// Milliseconds that pass on it for each real one.
    pub rate: f64,
    /// How far it is ahead of real time, in milliseconds.
    pub skew_ms: f64,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No answer in time: the node is stopped, overloaded or wedged.
    #[error("the node did not answer \"{command}\" within {timeout_ms} ms")]
    Timeout {
        /// The command.
        command: String,
        /// The time it had.
        timeout_ms: u128,
    },
    /// The connection is gone, usually because the node is.
    #[error("the control connection is closed: {0}")]
    Closed(String),
    /// The node understood and declined.
    #[error("the node refused: {0}")]
    Refused(String),
    /// The node sent something that is no answer.
    #[error("the node sent an answer that makes no sense: {0}")]
    Malformed(String),
}

impl ControlClient {
    /// A client on a connected socket, with [`DEFAULT_TIMEOUT`] for every call, and the barriers that the
    /// node comes to. Must be called inside a Tokio runtime.
    pub fn new(stream: UnixStream) -> (Self, BarriersReached) {
        Self::with_timeout(stream, DEFAULT_TIMEOUT)
    }

    /// A client on a connected socket whose calls may take `timeout` each.
    pub fn with_timeout(stream: UnixStream, timeout: Duration) -> (Self, BarriersReached) {
        let (input, output) = stream.into_split();
        let (answers, answered) = unbounded_channel();
        let (barriers, reached) = unbounded_channel();
        tokio::spawn(sort_lines(input, answers, barriers));
        let client = Self {
            turn: Arc::new(Mutex::new(Turn {
                answered,
                last_id: 0,
            })),
            writer: Arc::new(Mutex::new(Writer {
                output,
                outgoing: Vec::new(),
                closed: None,
            })),
            timeout,
        };
        (client, reached)
    }

    /// Puts barriers into the node's way at these events and edges (`("flush", "before")`), and takes all
    /// others away. The node waits at each until it is told to go on.
    pub async fn set_barriers(&self, at: &[(String, &str)]) -> Result<(), ControlError> {
        let places = at
            .iter()
            .map(|(event, edge)| json!({ "event": event, "edge": edge }));
        let mut parameters = Map::new();
        parameters.insert("at".into(), places.collect());
        self.call("barriers", &parameters).await.map(drop)
    }

    /// Lets the node go on from a barrier. Unlike calls, it does not wait for its turn: a node that waits
    /// there answers nobody.
    pub async fn go_on(&self, barrier: u64) -> Result<(), ControlError> {
        let mut writer = self.writer.lock().await;
        writer.flush().await?;
        let line = json!({ "command": "continue", "barrier": barrier });
        writer.outgoing = format!("{line}\n").into_bytes();
        writer.flush().await
    }

    /// Asks the node for its status.
    pub async fn status(&self) -> Result<NodeStatus, ControlError> {
        let answer = self.call("status", &Map::new()).await?;
        NodeStatus::deserialize(answer).map_err(|error| ControlError::Malformed(error.to_string()))
    }

    /// Sets the node's clock and returns what it measured afterwards. An offset of 0 with a rate of 1
    /// sets it right.
    pub async fn set_clock(&self, offset_ms: i64, rate: f64) -> Result<ClockReading, ControlError> {
        let mut parameters = Map::new();
        parameters.insert("offset_ms".into(), json!(offset_ms));
        parameters.insert("rate".into(), json!(rate));
        let answer = self.call("clock", &parameters).await?;
        ClockAnswer::deserialize(answer)
            .map(|answer| answer.clock)
            .map_err(|error| ControlError::Malformed(error.to_string()))
    }

    /// Asks the node to take a snapshot as soon as it may take one.
    pub async fn take_snapshot(&self) -> Result<(), ControlError> {
        self.call("snapshot", &Map::new()).await.map(drop)
    }

    /// Lets the node's disk do something wrong, until [`Self::heal_disk`] is told the same number.
    pub async fn fail_disk(&self, fault_id: u64, fault: DiskFault) -> Result<(), ControlError> {
        let parameters = disk_fault(fault_id, fault);
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        self.call("disk-fault", &parameters).await.map(drop)
    }

    /// Ends a fault of the node's disk; returns how many operations it hit.
    pub async fn heal_disk(&self, fault_id: u64) -> Result<u64, ControlError> {
        let mut parameters = Map::new();
        parameters.insert("fault_id".into(), json!(fault_id));
        let answer = self.call("disk-heal", &parameters).await?;
        let hit_count = answer["hit_count"].as_u64();
        hit_count.ok_or_else(|| ControlError::Malformed("no \"hit_count\" in it".into()))
    }

    /// Tells the node to end as by SIGKILL, with everything that it wrote left to the operating system.
    /// A node that obeys cannot answer: it hangs up.
    pub async fn die(&self) -> Result<(), ControlError> {
        match self.call("die", &Map::new()).await {
            Err(ControlError::Closed(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(ControlError::Malformed("it is still there".into())),
        }
    }

    /// Asks the node to end in good order.
    pub async fn shutdown(&self) -> Result<(), ControlError> {
        self.call("shutdown", &Map::new()).await.map(drop)
    }

    /// Sends any command with its parameters and returns the whole answer, once the node said `ok`.
    pub async fn call(
        &self,
        command: &str,
        parameters: &Map<String, Value>,
    ) -> Result<Value, ControlError> {
        let exchange = async {
            let mut turn = self.turn.lock().await;
            turn.exchange(&self.writer, command, parameters).await
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| {
                Err(ControlError::Timeout {
                    command: command.to_owned(),
                    timeout_ms: self.timeout.as_millis(),
                })
            })
    }
}

#[derive(Deserialize)]
struct ClockAnswer {
    clock: ClockReading,
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    command: &'a str,
    #[serde(flatten)]
    parameters: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Head {
    id: u64,
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

/// What must survive a call given up half-way, besides what is on its way out: the number of the last
/// request, and answers that nobody has taken.
#[derive(Debug)]
struct Turn {
    /// Lines of the node that tell of no barrier, then why there are no more.
    answered: UnboundedReceiver<Result<Vec<u8>, String>>,
    last_id: u64,
}

impl Turn {
    async fn exchange(
        &mut self,
        writer: &Mutex<Writer>,
        command: &str,
        parameters: &Map<String, Value>,
    ) -> Result<Value, ControlError> {
        let id = {
            let mut writer = writer.lock().await;
            // What an earlier call left behind goes first, so that at most one line ever waits here.
            writer.flush().await?;
            self.last_id += 1;
            let request = Request {
                id: self.last_id,
                command,
                parameters,
            };
            let mut line = serde_json::to_vec(&request)
                .map_err(|error| ControlError::Malformed(error.to_string()))?;
            line.push(b'\n');
            writer.outgoing = line;
            writer.flush().await?;
            self.last_id
        };
        loop {
            let line = match self.answered.recv().await {
                Some(Ok(line)) => line,
                Some(Err(reason)) => return Err(writer.lock().await.close(reason)),
                None => return Err(writer.lock().await.close("the node hung up".into())),
            };
            let malformed = |error: serde_json::Error| {
                ControlError::Malformed(format!("{error} in {}", excerpt(&line)))
            };
            let answer: Value = serde_json::from_slice(&line).map_err(malformed)?;
            let head = Head::deserialize(&answer).map_err(malformed)?;
            if head.id < id {
                continue;
            }
            if head.id > id {
                let message = format!("answer to request {}, which was never sent", head.id);
                return Err(ControlError::Malformed(message));
            }
            if head.ok {
                return Ok(answer);
            }
            let reason = head.error.unwrap_or_else(|| "without a reason".into());
            return Err(ControlError::Refused(reason));
        }
    }
}

/// The way to the node, with the bytes of a line that went out only in part.
#[derive(Debug)]
struct Writer {
    output: OwnedWriteHalf,
    outgoing: Vec<u8>,
    closed: Option<String>,
}

impl Writer {
    async fn flush(&mut self) -> Result<(), ControlError> {
        if let Some(reason) = &self.closed {
            return Err(ControlError::Closed(reason.clone()));
        }
        while !self.outgoing.is_empty() {
            // Not `write_all`: given up half-way, it does not tell how much is out.
            match self.output.write(&self.outgoing).await {
                Ok(0) => return Err(self.close("the node takes no more requests".into())),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) => return Err(self.close(error.to_string())),
            }
        }
        Ok(())
    }

    fn close(&mut self, reason: String) -> ControlError {
        let reason = self.closed.get_or_insert(reason);
        ControlError::Closed(reason.clone())
    }
}

/// Takes in what the node says for as long as it does, and hands it to those who wait for it.
async fn sort_lines(
    mut input: OwnedReadHalf,
    answers: UnboundedSender<Result<Vec<u8>, String>>,
    barriers: UnboundedSender<BarrierReached>,
) {
    let mut incoming = Vec::new();
    let reason = loop {
        while let Some(end) = incoming.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = incoming.drain(..=end).collect();
            line.pop();
            // Sending fails when nobody is left to hear of it.
            match serde_json::from_slice(&line) {
                Ok(reached) => drop(barriers.send(reached)),
                Err(_) => drop(answers.send(Ok(line))),
            }
        }
        if incoming.len() > LINE_MAX_BYTES {
            break format!("a line of more than {LINE_MAX_BYTES} bytes");
        }
        match input.read_buf(&mut incoming).await {
            Ok(0) => break "the node hung up".into(),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    let _ = answers.send(Err(reason));
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
}

#[cfg(test)]
mod tests {
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
}
