//! Owns property I5: the epoch of a node never goes back, restarts included.
//! Never looks at what happens in an epoch.

use std::rc::Rc;

use results::trace::TraceEvent;

use super::epochs::Replica;
use super::property::{Property, event_json};
use crate::seconds;

#[derive(Debug)]
pub(super) struct EpochAscends {
    property: Property,
    /// Highest epoch by replica, with the event that reported it.
    highest: Vec<Option<Rc<TraceEvent>>>,
}

impl EpochAscends {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I5",
                "the epoch of a node never goes back, restarts included",
                "KIP-595",
            ),
            highest: Vec::new(),
        }
    }

    /// `replica` is who speaks.
    pub(super) fn observe(&mut self, replica: Replica, event: &Rc<TraceEvent>) {
        self.property.checked += 1;
        if self.highest.len() <= replica {
            self.highest.resize(replica + 1, None);
        }
        let highest = self.highest[replica].get_or_insert_with(|| event.clone());
        if highest.epoch < event.epoch {
            *highest = event.clone();
        } else if highest.epoch > event.epoch {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} went back from epoch {} (at {}) to epoch {} (at {})",
                    event.node,
                    highest.epoch,
                    seconds(highest.time),
                    event.epoch,
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(highest))
            });
        }
    }

    pub(super) fn into_property(self) -> Property {
        self.property
    }
}
