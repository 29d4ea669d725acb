//! Owns what is known of each node at some moment, from what it said until then.
//! Never looks at what came later.

use std::collections::BTreeMap;

use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::{Value, json};

/// One node, as it described itself last.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeState {
    pub(super) role: Option<Role>,
    pub(super) epoch: i32,
    pub(super) log_end: i64,
    pub(super) high_watermark: i64,
}

impl NodeState {
    fn apply(&mut self, event: &TraceEvent) {
        self.epoch = event.epoch;
        match &event.detail {
            TraceDetail::Started(started) => {
                *self = Self {
                    role: Some(started.role),
                    epoch: event.epoch,
                    log_end: started.log_end,
                    high_watermark: 0,
                };
            }
            TraceDetail::RoleChange { role, .. } => self.role = Some(*role),
            TraceDetail::Append { last_offset, .. } => self.log_end = last_offset + 1,
            TraceDetail::Truncate { log_end } => self.log_end = *log_end,
            TraceDetail::HighWatermark { high_watermark, .. } => {
                self.high_watermark = *high_watermark;
            }
            TraceDetail::SnapshotInstalled { end_offset, .. } => {
                self.log_end = *end_offset;
                self.high_watermark = self.high_watermark.max(*end_offset);
            }
            _ => {}
        }
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let role = self.role.map(|role| role.to_string());
        let role = role.as_deref().unwrap_or("of unknown state");
        let (epoch, log_end) = (self.epoch, self.log_end);
        format!("{role} in epoch {epoch} with a log up to {log_end}")
    }

    pub(super) fn evidence(&self) -> Value {
        json!({
            "role": self.role,
            "epoch": self.epoch,
            "log_end": self.log_end,
            "high_watermark": self.high_watermark,
        })
    }
}

/// By node, what it had said by `time_ns`. Nodes that had not said anything are absent.
pub(super) fn at(trace: &[TraceEvent], time_ns: u64) -> BTreeMap<String, NodeState> {
    let mut states: BTreeMap<String, NodeState> = BTreeMap::new();
    // The events of a node are in its order; those of different nodes need not be in any.
    for event in trace.iter().filter(|event| event.time <= time_ns) {
        if let Some(state) = states.get_mut(event.node.as_str()) {
            state.apply(event);
        } else {
            let state = states.entry(event.node.to_string()).or_default();
            state.apply(event);
        }
    }
    states
}
