//! Owns property K4: what an observer knows to be committed is what the voters committed.
//! Never asks about the rest of its log, which may be cut off yet.

use std::rc::Rc;

use results::trace::TraceEvent;

use super::model::{Model, Outcome};
use super::property::Property;
use super::rule::Rule;
use super::watermarks::two_commits;

#[derive(Debug)]
pub(super) struct Observers {
    property: Property,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "K4",
                "below its high watermark, the log of an observer is the committed log",
                "KIP-595; KIP-853",
            ),
        }
    }
}

impl Rule for Observers {
    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        // Batches that nobody else reported before are compared when the next node reports them.
        if outcome.compared_count == 0 || !model.node(event).is_observer(&event.node) {
            return;
        }
        self.property.checked += 1;
        for (batch, earlier) in &outcome.conflicts {
            self.property
                .violated(event.time, || two_commits(event, batch, earlier));
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}
