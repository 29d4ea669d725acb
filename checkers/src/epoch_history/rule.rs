//! Owns how properties watch a trace go by.
//! Never holds state; that is with each property.

use std::fmt::Debug;
use std::rc::Rc;

use results::trace::TraceEvent;

use super::model::{Model, Outcome};
use super::property::Property;

/// A property, or a few that share what they look at. The events come in the order of the trace: those
/// of one node in the order of their numbers, those of different nodes by time.
pub(super) trait Rule: Debug + Sized {
    /// Whether it has to see what is said of messages, which is most of a trace that tells of them.
    const LOOKS_AT_MESSAGES: bool = false;

    /// Time has moved on: everything up to now is known, of all nodes.
    fn settle(&mut self, _model: &Model) {}

    /// The event is about to change the model.
    fn before(&mut self, _model: &Model, _event: &Rc<TraceEvent>) {}

    /// The event has changed the model.
    fn after(&mut self, _model: &Model, _event: &Rc<TraceEvent>, _outcome: &Outcome) {}

    /// After the last event: what cannot be judged because traces end early.
    fn take_doubts(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// After everything else. `complete`: no evidence was lost.
    fn finish(self, model: &Model, complete: bool) -> Vec<Property>;
}
