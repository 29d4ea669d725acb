//! Owns checking epochs and logs event by event, while a run goes on.
//! Never concludes more than the checker does afterwards; it only concludes it sooner.

use std::collections::BTreeMap;
use std::rc::Rc;

use results::trace::TraceEvent;

use super::epochs::Epochs;
use super::model::Model;
use super::property::Property;
use super::rule::Rule;
use super::{numbered_voters, rules};

/// Watches a trace of which no event is lost, as in a simulation.
#[derive(Debug)]
pub struct Watch {
    model: Model,
    epochs: Epochs,
    rules: Vec<Box<dyn Rule>>,
    time: u64,
}

impl Watch {
    /// Watches the nodes of a cluster with this many voters.
    pub fn new(voter_count: u32) -> Self {
        let configured = numbered_voters(voter_count as usize);
        Self::of(Model::new(BTreeMap::new(), configured, true))
    }

    pub(super) fn of(model: Model) -> Self {
        Self {
            model,
            epochs: Epochs::new(),
            rules: rules(),
            time: 0,
        }
    }

    /// Takes the next event, no earlier than the one before. Returns the id of a property that is
    /// violated by now, if any is. That a majority lacks what a leader committed shows only once time
    /// has gone on: until then, its flush may still be reported. What snapshots hold is compared with
    /// what is committed only afterwards.
    pub fn observe(&mut self, event: &TraceEvent) -> Option<&'static str> {
        self.take(event);
        let by_rule = || self.rules.iter().find_map(|rule| rule.violated());
        self.epochs.violated().or_else(by_rule)
    }

    pub(super) fn take(&mut self, event: &TraceEvent) {
        if event.time != self.time {
            self.settle();
            self.time = event.time;
        }
        let event = Rc::new(event.clone());
        self.model.enter(&event.node);
        self.epochs.observe(&event);
        for rule in &mut self.rules {
            rule.before(&self.model, &event);
        }
        let outcome = self.model.apply(&event);
        for rule in &mut self.rules {
            rule.after(&self.model, &event, &outcome);
        }
    }

    /// Events of the node are missing from here on.
    pub(super) fn lose(&mut self, node: &str) {
        self.model.lose(node);
    }

    /// Everything up to the present time is known.
    pub(super) fn settle(&mut self) {
        for rule in &mut self.rules {
            rule.settle(&self.model);
        }
    }

    pub(super) fn epochs(&mut self) -> &mut Epochs {
        &mut self.epochs
    }

    /// What cannot be judged because traces end early.
    pub(super) fn take_doubts(&mut self) -> Vec<String> {
        let doubts = self.rules.iter_mut().flat_map(|rule| rule.take_doubts());
        doubts.collect()
    }

    /// All properties. `complete`: no evidence was lost.
    pub(super) fn finish(self, complete: bool) -> Vec<Property> {
        let Self {
            model,
            epochs,
            rules,
            ..
        } = self;
        let rules = rules.into_iter();
        rules
            .flat_map(|rule| rule.finish(&model, complete))
            .chain(epochs.into_properties())
            .collect()
    }
}
#[cfg(test)]
mod tests {
    use results::trace::TraceDetail;

    use super::*;

    fn event(time: u64, node: &str, detail: TraceDetail) -> TraceEvent {
        TraceEvent {
            time,
            node: node.into(),
            incarnation: 1,
            seq: time,
            epoch: 3,
            detail,
        }
    }

    #[test]
    fn a_violation_shows_at_the_event_that_makes_it() {
        let mut watch = Watch::new(3);
        let vote = |candidate: &str| TraceDetail::VotePersisted {
            candidate: candidate.into(),
        };
        assert_eq!(watch.observe(&event(1, "n1", vote("n2"))), None);
        assert_eq!(watch.observe(&event(2, "n3", vote("n3"))), None);
        assert_eq!(watch.observe(&event(3, "n1", vote("n3"))), Some("K6"));
    }

    #[test]
    fn a_high_watermark_beyond_the_log_shows_at_once() {
        let mut watch = Watch::new(3);
        let beyond = TraceDetail::HighWatermark {
            high_watermark: 4,
            log_end: 3,
        };
        assert_eq!(watch.observe(&event(1, "n1", beyond)), Some("K3"));
    }
}
