//! Owns the checker of steps: is each step that a node reports one that the protocol allows there?
//! Never shares code with the node, and never guesses: what the trace does not tell is counted as open.
//!
//! The specification is a small program of its own. It keeps of every replica what its steps have made of
//! it, and holds the next step against the rules before it makes it. With messages in the trace it can judge
//! what was answered; without them, what a replica does by itself.

mod messages;
mod patience;
mod replica;
mod rules;
mod steps;

use results::manifest::Manifest;
use results::schedule::Schedule;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, Validity};

use crate::epoch_history::nodes::Nodes;
use crate::{conclusion, counted};
use patience::Patience;
use replica::Replica;
use rules::Rules;

const SOURCE: &str = "KIP-595; KIP-853; KIP-996, as an executable specification";

/// Follows all nodes, event by event.
#[derive(Debug, Default)]
pub struct Specification {
    replicas: Nodes<Replica>,
    rules: Rules,
    patience: Patience,
    event_count: u64,
}

impl Specification {
    /// Takes the next event; those of a node come in the order in which it reported them.
    pub fn observe(&mut self, event: &TraceEvent) {
        self.event_count += 1;
        let replica = self.replicas.enter(&event.node, Replica::default);
        replica.enter(event);
        // After a gap nobody knows what a step began from.
        if !replica.is_broken {
            steps::take(replica, &mut self.rules, event);
            self.patience.observe(replica, event);
        }
    }

    /// What came of all events of a run with these options and faults: they say how long nodes may wait.
    pub fn conclude_run(mut self, manifest: &Manifest, schedule: &Schedule) -> CheckerResult {
        let patience = std::mem::take(&mut self.patience);
        patience.conclude(manifest, schedule, &mut self.rules);
        self.conclude()
    }

    /// What came of all events, apart from how long anything took.
    pub fn conclude(self) -> CheckerResult {
        let broken = self.replicas.iter().find(|(_, replica)| replica.is_broken);
        let lost = broken.map(|(node, _)| format!("events of {node} are missing"));
        let (first, properties) = self.rules.finish(lost.as_deref());
        let checked: u64 = properties.values().map(|property| property.checked).sum();
        let (valid, summary) = match (first, lost) {
            (Some(id), _) => {
                let property = &properties[id];
                let summary = format!("{id} ({}): {}", property.title, property.summary);
                (Validity::Invalid, summary)
            }
            (None, Some(lost)) => (Validity::Unknown, format!("evidence was lost: {lost}")),
            (None, None) if checked == 0 => {
                (Validity::Unknown, "no step could be judged".to_owned())
            }
            (None, None) => {
                let steps = counted(checked, "rule");
                let open = properties.values().filter(|it| it.checked == 0).count();
                let mut summary = format!(
                    "every step was allowed ({steps} applied to {})",
                    counted(self.event_count, "event")
                );
                if open > 0 {
                    summary.push_str(&format!("; {} not decidable", counted(open as u64, "rule")));
                }
                (Validity::Valid, summary)
            }
        };
        let mut result = conclusion(valid, SOURCE, summary);
        if let Some(id) = first {
            result.evidence = properties[id].evidence.clone();
        }
        result.properties = properties;
        result
    }
}

/// Holds every step of a run against the specification, and how long its nodes waited.
pub fn check_run(trace: &[TraceEvent], manifest: &Manifest, schedule: &Schedule) -> CheckerResult {
    let mut specification = Specification::default();
    for event in trace {
        specification.observe(event);
    }
    specification.conclude_run(manifest, schedule)
}

/// Holds every step of a trace against the specification.
pub fn check(trace: &[TraceEvent]) -> CheckerResult {
    let mut specification = Specification::default();
    for event in trace {
        specification.observe(event);
    }
    specification.conclude()
}
