//! Owns how long leaders left silent voters without an announcement, and followers waited in vain.
//! Never judges what clocks, pauses, slow disks or a slow machine may have drawn out.

use std::collections::BTreeMap;

use results::manifest::Manifest;
use results::schedule::{Schedule, ScheduledFault};
use results::shared_text::SharedText;
use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::{Map, Value};

use super::replica::Replica;
use super::rules::{Rule, Rules};
use crate::epoch_history::nodes::Nodes;
use crate::seconds;

const MS: u64 = 1_000_000;
/// Shorter waits than this are never too long, whatever the timers are.
const NOTED_NS: u64 = 300 * MS;
/// So many of the longest waits are kept.
const KEPT_MAX_COUNT: usize = 256;
/// What a node's own work, and messages on their way, may add to a wait.
const SLACK_MS: u64 = 300;
/// How long what a fault did to a node may be felt once it is healed.
const AFTERMATH_MS: u64 = 1_000;
/// How long a node may be held at the event that a fault waited for, once that fault was to begin: as long as
/// that waits for another node.
const HOLD_MS: u64 = 6_000;

/// A wait that is over.
#[derive(Debug, Clone)]
struct Wait {
    node: SharedText,
    /// The voter that was left alone; `None` for a follower that waited for its leader.
    voter: Option<String>,
    epoch: i32,
    since_ns: u64,
    until_ns: u64,
    /// Whether it began when the leader resigned.
    is_resigned: bool,
}

impl Wait {
    fn length_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.since_ns)
    }
}

/// What one node waits for at present.
#[derive(Debug)]
enum Waiting {
    /// By voter: when the leader last heard a fetch of it, or told it that it leads.
    Leader(BTreeMap<String, u64>),
    /// Since when no fetch of the follower succeeded, and whether its leader resigned then.
    Follower { since_ns: u64, is_resigned: bool },
}

/// Watches the waits of all nodes that report messages.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// By node; `None` for one that waits for nothing.
    waiting: Nodes<Option<(i32, Waiting)>>,
    long: Vec<Wait>,
}

impl Patience {
    /// Takes an event, after the replica has taken its step.
    pub(super) fn observe(&mut self, replica: &Replica, event: &TraceEvent) {
        if !replica.reports_messages {
            return;
        }
        match &event.detail {
            TraceDetail::Started(_) => {
                // How long it waited before it ended, nobody knows.
                *self.waiting.enter(&event.node, || None) = None;
                self.begin(replica, event);
            }
            TraceDetail::RoleChange { .. } | TraceDetail::EpochAdopted { .. } => {
                self.end(event);
                self.begin(replica, event);
            }
            TraceDetail::RpcReceived { from, message } => match (&*message.rpc, replica.role) {
                ("fetch", Some(Role::Leader)) if !message.is_response => {
                    self.contact(event, from);
                }
                (kind, Some(Role::Follower))
                    if message.is_response && shows_a_leader(kind, message.error.as_deref()) =>
                {
                    self.end(event);
                    self.begin(replica, event);
                }
                _ => {}
            },
            // Whoever takes a resignation gives up on that leader when its turn comes, sooner or later than
            // it would have done.
            TraceDetail::RpcSent { message, .. }
                if &*message.rpc == "end-quorum-epoch"
                    && message.is_response
                    && message.error.is_none() =>
            {
                self.take_resignation(event);
            }
            TraceDetail::RpcSent { to, message }
                if &*message.rpc == "begin-quorum-epoch" && !message.is_response =>
            {
                self.contact(event, to);
            }
            TraceDetail::VotersAppended { .. } | TraceDetail::Truncate { .. } => {
                self.change_voters(replica, event);
            }
            _ => {}
        }
    }

    fn begin(&mut self, replica: &Replica, event: &TraceEvent) {
        let waiting = match replica.role {
            Some(Role::Leader) => {
                let voters = replica.voters().into_iter().flatten();
                let others = voters.filter(|voter| *voter != event.node.as_str());
                Waiting::Leader(others.map(|voter| (voter.clone(), event.time)).collect())
            }
            // A follower that does not vote stands for no election, so it has nothing better to do than wait.
            Some(Role::Follower) if replica.is_voter(&event.node) == Some(true) => {
                Waiting::Follower {
                    since_ns: event.time,
                    is_resigned: false,
                }
            }
            _ => return,
        };
        *self.waiting.enter(&event.node, || None) = Some((replica.epoch, waiting));
    }

    fn take_resignation(&mut self, event: &TraceEvent) {
        let waiting = self.waiting.get(&event.node);
        let Some(Some((epoch, Waiting::Follower { .. }))) = waiting else {
            return;
        };
        let epoch = *epoch;
        self.end(event);
        let waiting = Waiting::Follower {
            since_ns: event.time,
            is_resigned: true,
        };
        *self.waiting.enter(&event.node, || None) = Some((epoch, waiting));
    }

    /// The leader has heard of a voter, or told it that it leads.
    fn contact(&mut self, event: &TraceEvent, voter: &str) {
        let Some(Some((epoch, Waiting::Leader(voters)))) = self.waiting.get_mut(&event.node) else {
            return;
        };
        let Some(last) = voters.get_mut(voter) else {
            return;
        };
        let since_ns = std::mem::replace(last, event.time);
        if is_short(since_ns, event.time) {
            return;
        }
        let wait = Wait {
            node: event.node.clone(),
            voter: Some(voter.to_owned()),
            epoch: *epoch,
            since_ns,
            until_ns: event.time,
            is_resigned: false,
        };
        self.note(wait);
    }

    fn change_voters(&mut self, replica: &Replica, event: &TraceEvent) {
        let Some(Some((_, Waiting::Leader(known)))) = self.waiting.get_mut(&event.node) else {
            return;
        };
        let Some(voters) = replica.voters() else {
            return known.clear();
        };
        known.retain(|voter, _| voters.contains(voter));
        for voter in voters.iter().filter(|it| *it != event.node.as_str()) {
            known.entry(voter.clone()).or_insert(event.time);
        }
    }

    /// Whatever the node waited for, it does so no longer.
    fn end(&mut self, event: &TraceEvent) {
        let ended = self.waiting.get_mut(&event.node).and_then(Option::take);
        let Some((epoch, waiting)) = ended else {
            return;
        };
        if let Waiting::Follower { since_ns, .. } = waiting
            && is_short(since_ns, event.time)
        {
            return;
        }
        for wait in waits(&event.node, epoch, waiting, event.time) {
            self.note(wait);
        }
    }

    fn note(&mut self, wait: Wait) {
        if is_short(wait.since_ns, wait.until_ns) {
            return;
        }
        if self.long.len() >= KEPT_MAX_COUNT {
            let shortest = (0..self.long.len()).min_by_key(|at| self.long[*at].length_ns());
            if let Some(shortest) =
                shortest.filter(|at| self.long[*at].length_ns() < wait.length_ns())
            {
                self.long.swap_remove(shortest);
            } else {
                return;
            }
        }
        self.long.push(wait);
    }

    /// Judges the waits of a simulated run by its timers; elsewhere the machine may have been slow. Waits that
    /// last to the end of the trace are not over, and nobody knows whether their nodes still ran.
    pub(super) fn conclude(self, manifest: &Manifest, schedule: &Schedule, rules: &mut Rules) {
        if !manifest.is_simulated() {
            return;
        }
        let timers = &manifest.options.timers;
        // Every half fetch timeout the leader tells those who were silent for as long, unless it waits for the
        // answer to the time before.
        let period_ms = timers.fetch_timeout_ms / 2;
        let unanswered_ms = timers.request_timeout_ms + timers.retry_backoff_ms;
        let announced_ms = period_ms + period_ms.max(unanswered_ms);
        for wait in self.long {
            if schedule.faults.iter().any(|fault| draws_out(fault, &wait)) {
                continue;
            }
            let (since, lasted_ms) = (seconds(wait.since_ns), wait.length_ns() / MS);
            match &wait.voter {
                Some(voter) => {
                    let holds = lasted_ms <= announced_ms + SLACK_MS;
                    rules.demand_at(Rule::Announcements, &wait.node, wait.until_ns, holds, || {
                        format!(
                            "it led epoch {}, heard no fetch of {voter} for {lasted_ms} ms from {since} on, \
                             and did not tell it so again, as it has to every half fetch timeout",
                            wait.epoch
                        )
                    });
                }
                None => {
                    let (timeout_ms, told) = if wait.is_resigned {
                        let timeout_ms = timers.election_backoff_max_ms;
                        (
                            timeout_ms,
                            "its leader had resigned, and its longest back-off",
                        )
                    } else {
                        (timers.fetch_timeout_ms, "its fetch timeout")
                    };
                    let holds = lasted_ms <= timeout_ms + SLACK_MS;
                    rules.demand_at(Rule::Followers, &wait.node, wait.until_ns, holds, || {
                        format!(
                            "it followed in epoch {} for {lasted_ms} ms from {since} on without an answer \
                             to any fetch; {told} is {timeout_ms} ms",
                            wait.epoch
                        )
                    });
                }
            }
        }
    }
}

/// Whether an answer to such a request shows a follower that its leader is there.
fn shows_a_leader(kind: &str, error: Option<&str>) -> bool {
    match kind {
        "fetch" | "update-raft-voter" => error.is_none(),
        "fetch-snapshot" => error.is_none_or(|error| error == "SNAPSHOT_NOT_FOUND"),
        _ => false,
    }
}

/// Most waits are, and nothing is made of them.
fn is_short(since_ns: u64, until_ns: u64) -> bool {
    until_ns.saturating_sub(since_ns) < NOTED_NS
}

fn waits(node: &SharedText, epoch: i32, waiting: Waiting, until_ns: u64) -> Vec<Wait> {
    let wait = |voter, since_ns, is_resigned| Wait {
        node: node.clone(),
        voter,
        epoch,
        since_ns,
        until_ns,
        is_resigned,
    };
    match waiting {
        Waiting::Follower {
            since_ns,
            is_resigned,
        } => vec![wait(None, since_ns, is_resigned)],
        Waiting::Leader(voters) => voters
            .into_iter()
            .map(|(voter, since_ns)| wait(Some(voter), since_ns, false))
            .collect(),
    }
}

/// Whether a fault may have kept the node that waited from acting in time. What happened to others did not:
/// whoever waits needs only its own timers.
fn draws_out(fault: &ScheduledFault, wait: &Wait) -> bool {
    let Some(resolved) = &fault.resolved else {
        return false;
    };
    let overlaps = |from_ns: u64, to_ns: u64| from_ns < wait.until_ns && wait.since_ns < to_ns;
    let begins_ns = resolved.at_ms.saturating_mul(MS);
    if let Some(event) = &resolved.event
        && event.node == wait.node.as_str()
    {
        // The node was held there until the fault had begun.
        let held_until_ns = begins_ns.saturating_add(HOLD_MS * MS);
        if overlaps(event.time_ns.min(begins_ns), held_until_ns) {
            return true;
        }
    }
    if fault.outcome.is_none() || !hits(&resolved.targets, &wait.node) {
        return false;
    }
    // A clock that was wrong leaves timers behind that were set on it, for nobody knows how long.
    let lasts_on = match fault.fault.kind.as_str() {
        "clock-skew" | "clock-strobe" | "clock-reset" => true,
        "pause" | "slow" | "disk" | "snapshot" => false,
        _ => return false,
    };
    let ends_ms = fault.healed_at_ms.filter(|_| !lasts_on);
    let ends_ns = ends_ms.map_or(u64::MAX, |ends_ms| {
        ends_ms.saturating_add(AFTERMATH_MS).saturating_mul(MS)
    });
    overlaps(begins_ns, ends_ns)
}

/// Whether the targets of a fault name a node; those that name nobody may mean everybody.
fn hits(targets: &Map<String, Value>, node: &str) -> bool {
    fn names(value: &Value, node: &str) -> bool {
        match value {
            Value::String(text) => text == node,
            Value::Array(values) => values.iter().any(|value| names(value, node)),
            Value::Object(entries) => entries
                .iter()
                .any(|(key, value)| key == node || names(value, node)),
            _ => false,
        }
    }
    targets.is_empty() || targets.values().any(|value| names(value, node))
}
