//! Owns property I3: the same offset and epoch mean the same batch, and committed batches agree.
//! Never forgets a batch, whatever becomes of the log that held it.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{TraceDetail, TraceEvent};
use serde_json::json;

use super::ascending::Ascending;
use super::model::{Model, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use super::watermarks::two_commits;
use crate::seconds;

/// First report of a batch, by epoch and base offset.
#[derive(Debug)]
struct Appended {
    last_offset: i64,
    crc: u32,
    node: SharedText,
    time: u64,
}

#[derive(Debug)]
pub(super) struct Matching {
    property: Property,
    appended: BTreeMap<i32, Ascending<Appended>>,
}

impl Matching {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I3",
                "same offset and epoch mean the same batch, and committed batches agree",
                "log matching, Ongaro & Ousterhout 2014; KIP-595",
            ),
            appended: BTreeMap::new(),
        }
    }
}

impl Rule for Matching {
    fn after(&mut self, _model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        for (batch, earlier) in &outcome.conflicts {
            self.property
                .violated(event.time, || two_commits(event, batch, earlier));
        }
        self.check(event);
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl Matching {
    fn check(&mut self, event: &TraceEvent) {
        let TraceDetail::Append {
            base_offset,
            last_offset,
            batch_epoch: epoch,
            crc,
        } = event.detail
        else {
            return;
        };
        self.property.checked += 1;
        // What other nodes hold is mostly this very batch, which is found faster than what overlaps it.
        let appended = self.appended.entry(epoch).or_default();
        let exact = appended.get(base_offset);
        if exact.is_some_and(|earlier| earlier.last_offset == last_offset && earlier.crc == crc) {
            return;
        }
        let overlapping = appended
            .last_up_to(last_offset)
            .filter(|(_, earlier)| earlier.last_offset >= base_offset);
        let Some((earlier_base, earlier)) = overlapping else {
            let first = Appended {
                last_offset,
                crc,
                node: event.node.clone(),
                time: event.time,
            };
            appended.insert(base_offset, first);
            return;
        };
        let same =
            earlier_base == base_offset && earlier.last_offset == last_offset && earlier.crc == crc;
        if same {
            return;
        }
        self.property.violated(event.time, || {
            let summary = format!(
                "offset {base_offset} of epoch {epoch} is not the same everywhere: {} appended \
                 another batch there at {} than {} had at {}",
                event.node,
                seconds(event.time),
                earlier.node,
                seconds(earlier.time)
            );
            let contradicts = json!({
                "node": earlier.node,
                "time": earlier.time,
                "base_offset": earlier_base,
                "last_offset": earlier.last_offset,
                "epoch": epoch,
                "crc": earlier.crc,
            });
            (summary, event_json(event), contradicts)
        });
    }
}
