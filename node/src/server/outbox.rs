//! Owns what leaves a node's loop: the way to clients, peers, the trace, the log and the metrics.
//! Never lets anything leave before the trace events that explain it.

use std::io;
use std::time::Instant;

use crate::client::ClientReply;
use crate::ids::{Epoch, NodeId};
use crate::message::{Request, Response};
use crate::moment::{Edge, Moment};
use crate::node_loop::{Departure, Outbox};
use crate::raft::{Correlation, Role};
use crate::trace::{TraceEvent, Traced};

use super::barriers::{Barriers, Place};
use super::clock::monotonic_ns;
use super::driver::DriverError;
use super::gate::Gate;
use super::log;
use super::metrics::Metrics;
use super::peers::Peers;
use super::pending::Pending;
use super::trace_writer::TraceWriter;

/// A request that has departed and is not sent off yet.
#[derive(Debug)]
struct PeerRequest {
    peer: NodeId,
    endpoint: Option<String>,
    correlation: Correlation,
    request: Box<Request>,
}

/// Brings what leaves the node on its way, never before the trace events that explain it.
#[derive(Debug)]
pub(crate) struct ProcessOutbox {
    pub(crate) trace: Option<TraceWriter>,
    pub(crate) peers: Peers,
    pub(crate) clients: Pending<ClientReply>,
    pub(crate) askers: Pending<Response>,
    /// Where the node waits if somebody wants it to.
    barriers: Barriers,
    /// Role and epoch as last reported; none before the start is over.
    standing: (Option<Role>, Epoch),
    pub(super) gate: Gate,
    /// Requests to peers that are on their way.
    requests: Vec<PeerRequest>,
    /// Whether anything has left since somebody last looked.
    pub(super) has_sent: bool,
    pub(super) metrics: Metrics,
    /// Whether other voters may be in force, since somebody last looked.
    pub(super) voters_changed: bool,
    /// Set once the trace cannot be written; nothing leaves from then on.
    trace_failure: Option<io::Error>,
}

impl ProcessOutbox {
    pub(crate) fn new(
        trace: Option<TraceWriter>,
        peers: Peers,
        clients: Pending<ClientReply>,
        askers: Pending<Response>,
        barriers: Barriers,
    ) -> Self {
        Self {
            trace,
            peers,
            clients,
            askers,
            barriers,
            standing: (None, Epoch(0)),
            gate: Gate::default(),
            requests: Vec::new(),
            has_sent: false,
            metrics: Metrics::default(),
            voters_changed: false,
            trace_failure: None,
        }
    }

    fn flush_trace(&mut self) {
        if let Some(trace) = &mut self.trace
            && self.trace_failure.is_none()
        {
            self.trace_failure = trace.flush().err();
        }
    }

    /// Writes what is left of the trace, and then the requests to peers into their sockets. What explains one may
    /// be traced after it has departed: that what it speaks of is durable.
    pub(super) fn send_off(&mut self) {
        self.flush_trace();
        let is_sound = self.trace_failure.is_none();
        for request in self.requests.drain(..).filter(|_| is_sound) {
            let PeerRequest {
                peer,
                endpoint,
                correlation,
                request,
            } = request;
            self.peers
                .send(peer, endpoint.as_deref(), correlation, *request);
        }
    }

    /// Sends off what is left.
    ///
    /// # Errors
    /// When this or an earlier write failed.
    pub(crate) fn finish(&mut self) -> Result<(), DriverError> {
        self.send_off();
        match (self.trace_failure.take(), &self.trace) {
            (Some(source), Some(trace)) => Err(DriverError::Trace {
                path: trace.path().to_path_buf(),
                source,
            }),
            _ => Ok(()),
        }
    }
}

impl Outbox for ProcessOutbox {
    fn depart(&mut self, departure: Departure) {
        self.flush_trace();
        if self.trace_failure.is_some() {
            return;
        }
        self.has_sent = true;
        match departure {
            Departure::Send {
                peer,
                endpoint,
                correlation,
                request,
            } => self.requests.push(PeerRequest {
                peer,
                endpoint,
                correlation,
                request,
            }),
            Departure::Reply { ticket, response } => self.askers.answer(ticket, *response),
            Departure::ClientReply { ticket, reply } => {
                self.gate.answered(ticket, Instant::now());
                self.clients.answer(ticket, reply);
            }
        }
    }

    fn wants_messages(&self) -> bool {
        self.trace.as_ref().is_some_and(TraceWriter::wants_messages)
    }

    fn wants_moments(&self) -> bool {
        self.barriers.any_armed()
    }

    fn moment(&mut self, edge: Edge, moment: Moment) {
        if !self.barriers.is_armed(edge, moment) {
            return;
        }
        // Whatever is done to the node while it waits, its evidence is complete.
        self.flush_trace();
        let told_count = self.trace.as_ref().map_or(0, TraceWriter::told_count);
        let (role, epoch) = self.standing;
        let seq = match edge {
            Edge::Before => told_count,
            Edge::After => told_count.saturating_sub(1),
        };
        self.barriers.wait(edge, moment, Place { role, epoch, seq });
    }

    fn trace(&mut self, traced: Traced) {
        report(&traced);
        match &traced.event {
            TraceEvent::Started(started) => self.standing.0 = Some(started.role),
            TraceEvent::RoleChange { role, .. } => self.standing.0 = Some(*role),
            _ => {}
        }
        self.standing.1 = traced.epoch;
        self.voters_changed |= matches!(
            traced.event,
            TraceEvent::VotersAppended { .. }
                | TraceEvent::Truncate { .. }
                | TraceEvent::SnapshotInstalled { .. }
        );
        let now_ns = monotonic_ns();
        // The monotonic clock of a machine does not go below zero.
        self.metrics.observe(now_ns.unsigned_abs(), &traced);
        if let Some(trace) = &mut self.trace {
            trace.record(now_ns, &traced);
        }
    }
}

/// Tells the log what matters to those who run the node.
fn report(Traced { epoch, event }: &Traced) {
    let role = match event {
        TraceEvent::Started(started) => Some(started.role),
        TraceEvent::RoleChange { role, .. } => Some(*role),
        _ => None,
    };
    log::note_standing(role, *epoch);
    match event {
        TraceEvent::Started(started) if started.truncated_bytes > 0 => tracing::warn!(
            log_start = started.log_start.0,
            log_end = started.log_end.0,
            truncated_bytes = started.truncated_bytes,
            "recovered, without a last write that was not finished"
        ),
        TraceEvent::Started(started) => tracing::info!(
            log_start = started.log_start.0,
            log_end = started.log_end.0,
            truncated_bytes = started.truncated_bytes,
            "recovered"
        ),
        TraceEvent::RoleChange {
            role,
            leader,
            reason,
            ..
        } => {
            let leader = leader.as_deref().unwrap_or("unknown");
            tracing::info!(leader, reason, "now {}", role_name(*role));
        }
        TraceEvent::Truncate { log_end } => {
            tracing::info!(log_end = log_end.0, "the log was cut back to the leader's");
        }
        TraceEvent::SnapshotFrozen { end_offset, .. } => {
            tracing::info!(end_offset = end_offset.0, "took a snapshot");
        }
        TraceEvent::SnapshotInstalled { end_offset, .. } => {
            tracing::info!(
                end_offset = end_offset.0,
                "goes on from the leader's snapshot"
            );
        }
        TraceEvent::LogStartAdvanced { log_start } => {
            tracing::info!(log_start = log_start.0, "deleted the log before a snapshot");
        }
        TraceEvent::VotersAppended { offset, voters, .. } => {
            tracing::info!(offset = offset.0, "the voters are {}", voters.join(", "));
        }
        TraceEvent::VotePersisted { candidate } => tracing::debug!(candidate, "voted"),
        TraceEvent::EpochAdopted { leader } => {
            let leader = leader.as_deref().unwrap_or("unknown");
            tracing::debug!(leader, "adopted an epoch or its leader");
        }
        // Refusals to start end the process with a line of their own.
        TraceEvent::RefusedToStart { .. }
        | TraceEvent::Append { .. }
        | TraceEvent::Flush { .. }
        | TraceEvent::RpcSent { .. }
        | TraceEvent::RpcReceived { .. }
        | TraceEvent::ReadServed { .. }
        | TraceEvent::HighWatermark { .. } => {}
    }
}

/// The role as people and JSON call it.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Unattached => "unattached",
        Role::Prospective => "prospective",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Resigned => "resigned",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Handle;

    use super::*;
    use crate::client::{ClientReply, UnknownCode};
    use crate::ids::{Epoch, NodeId, Offset};
    use crate::message::ApiVersionsRequest;
    use crate::server::TraceOptions;
    use crate::server::mailbox::Mailbox;
    use crate::server::pending::Tickets;

    fn outbox(trace: &Path) -> ProcessOutbox {
        let options = TraceOptions {
            path: trace.into(),
            origin_ns: 0,
            messages: false,
            incarnation: 1,
        };
        let (mailbox, _inbox) = Mailbox::new();
        let timeout = Duration::from_secs(1);
        let nobody = BTreeMap::new();
        let peers = Peers::new(Handle::current(), mailbox, &nobody, &nobody, timeout);
        let tickets = Arc::new(Tickets::default());
        ProcessOutbox::new(
            Some(TraceWriter::open(&options, NodeId(1)).unwrap()),
            peers,
            Pending::new(Arc::clone(&tickets)),
            Pending::new(tickets),
            Barriers::new().0,
        )
    }

    fn flush() -> Traced {
        Traced {
            epoch: Epoch(1),
            event: TraceEvent::Flush { log_end: Offset(1) },
        }
    }

    fn reply() -> ClientReply {
        ClientReply::Unknown {
            code: UnknownCode::Stopping,
            epoch: Epoch(1),
        }
    }

    #[tokio::test]
    async fn a_trace_line_is_in_the_file_before_what_follows_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let mut outbox = outbox(&path);
        let mut waiting = outbox.clients.wait();
        outbox.trace(flush());
        outbox.trace(flush());
        let ticket = waiting.ticket();
        outbox.depart(Departure::ClientReply {
            ticket,
            reply: reply(),
        });
        assert_eq!(waiting.answer().await, Some(reply()));
        assert_eq!(lines(), 2);
        outbox.trace(flush());
        outbox.finish().unwrap();
        assert_eq!(lines(), 3, "nothing stays behind after a call");
    }

    #[tokio::test]
    async fn a_request_is_sent_once_what_was_traced_after_its_departure_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let mut outbox = outbox(&path);
        let cluster_id = "test".into();
        outbox.depart(Departure::Send {
            peer: NodeId(2),
            endpoint: None,
            correlation: Correlation(1),
            request: Box::new(Request::ApiVersions(ApiVersionsRequest { cluster_id })),
        });
        outbox.trace(flush());
        assert_eq!(outbox.requests.len(), 1, "it speaks of what was flushed");
        outbox.send_off();
        assert_eq!(outbox.requests.len(), 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[tokio::test]
    async fn nothing_leaves_once_the_trace_cannot_be_written() {
        let mut outbox = outbox(Path::new("/dev/full"));
        let waiting = outbox.clients.wait();
        let ticket = waiting.ticket();
        outbox.trace(flush());
        outbox.depart(Departure::ClientReply {
            ticket,
            reply: reply(),
        });
        assert_eq!(outbox.clients.len(), 1, "the reply stayed");
        let error = outbox.finish().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot write the trace file /dev/full"),
            "{error}"
        );
    }
}
