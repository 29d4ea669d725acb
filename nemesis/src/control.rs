//! Owns the harness's end of a node's control socket: requests, answers, and what can go wrong between.
//! Never connects, starts or restarts a node, and never takes a late answer for the one it waits for.

#[cfg(test)]
mod tests;

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
