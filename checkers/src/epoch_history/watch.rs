//! Owns the way of each event through the model of the nodes and past every property.
//! Never judges; the properties do.

use std::rc::Rc;

use results::trace::TraceEvent;

use super::epochs::Epochs;
use super::model::Model;
use super::property::Property;
use super::rule::Rule;
use super::rules;

/// All properties, and the model of the nodes that they look at.
#[derive(Debug)]
pub(super) struct Watch {
    model: Model,
    epochs: Epochs,
    rules: Vec<Box<dyn Rule>>,
    time: u64,
}

impl Watch {
    pub(super) fn of(model: Model) -> Self {
        Self {
            model,
            epochs: Epochs::new(),
            rules: rules(),
            time: 0,
        }
    }

    /// Takes the next event, no earlier than the one before.
    pub(super) fn take(&mut self, event: &Rc<TraceEvent>) {
        if event.time != self.time {
            self.settle();
            self.time = event.time;
        }
        self.model.enter(&event.node);
        self.epochs.observe(event);
        for rule in &mut self.rules {
            rule.before(&self.model, event);
        }
        let outcome = self.model.apply(event);
        for rule in &mut self.rules {
            rule.after(&self.model, event, &outcome);
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
