//! Owns the way of each event through the model of the nodes and past every property.
//! Never judges; the properties do.

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::TraceEvent;

use super::epochs::Epochs;
use super::model::Model;
use super::property::Property;
use super::rule::Rule;
use super::rules::Rules;

/// All properties, and the model of the nodes that they look at.
#[derive(Debug)]
pub(super) struct Watch {
    model: Model,
    epochs: Epochs,
    rules: Rules,
    time: u64,
}

impl Watch {
    pub(super) fn of(model: Model) -> Self {
        Self {
            model,
            epochs: Epochs::new(),
            rules: Rules::new(),
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
        self.rules.before(&self.model, event);
        let outcome = self.model.apply(event);
        self.rules.after(&self.model, event, &outcome);
    }

    /// Events of the node are missing from here on.
    pub(super) fn lose(&mut self, node: &SharedText) {
        self.model.lose(node);
    }

    /// Everything up to the present time is known.
    pub(super) fn settle(&mut self) {
        self.rules.settle(&self.model);
    }

    pub(super) fn epochs(&mut self) -> &mut Epochs {
        &mut self.epochs
    }

    /// What cannot be judged because traces end early.
    pub(super) fn take_doubts(&mut self) -> Vec<String> {
        self.rules.take_doubts()
    }

    /// All properties. `complete`: no evidence was lost.
    pub(super) fn finish(self, complete: bool) -> Vec<Property> {
        let Self {
            model,
            epochs,
            rules,
            ..
        } = self;
        let mut properties = rules.finish(&model, complete);
        properties.extend(epochs.into_properties());
        properties
    }
}
