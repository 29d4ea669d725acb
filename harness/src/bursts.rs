//! Owns bursts: faults during which clients do not wait between operations.
//! Never touches the cluster; hurried clients are all there is to it.

use std::collections::BTreeMap;

use results::schedule::FaultOutcome;
use serde_json::{Map, json};

use crate::clients::Clients;
use crate::world::{FaultReport, HealReport};

/// Bursts under way.
#[derive(Debug, Default)]
pub struct Bursts {
    /// By fault: when it began, in nanoseconds, and how many operations had begun by then.
    begun: BTreeMap<u64, (u64, u64)>,
}

impl Bursts {
    /// Begins a burst. Clients who never wait cannot be hurried, and then it is skipped.
    pub fn begin(&mut self, id: u64, now_ns: u64, clients: &mut Clients) -> FaultReport {
        if clients.never_wait() {
            return FaultReport {
                outcome: FaultOutcome::Skipped,
                reason: Some("clients do not wait between operations anyway".into()),
                effect: Map::new(),
            };
        }
        self.begun.insert(id, (now_ns, clients.begun_count()));
        clients.hurry(true, now_ns);
        FaultReport {
            outcome: FaultOutcome::Installed,
            reason: None,
            effect: Map::new(),
        }
    }

    /// Ends a burst, with what it came to; nothing if this fault is none. Clients take their time again once
    /// the last one has ended.
    pub fn end(&mut self, id: u64, now_ns: u64, clients: &mut Clients) -> Option<HealReport> {
        let (since_ns, before_count) = self.begun.remove(&id)?;
        clients.hurry(!self.begun.is_empty(), now_ns);
        let begun_count = clients.begun_count() - before_count;
        let lasted_ms = (now_ns - since_ns) / 1_000_000;
        let effect = json!({
            "operations_begun": begun_count,
            "operations_begun_per_second": begun_count * 1_000 / lasted_ms.max(1),
        });
        Some(HealReport {
            problem: None,
            effect: effect.as_object().cloned().unwrap_or_default(),
        })
    }
}
