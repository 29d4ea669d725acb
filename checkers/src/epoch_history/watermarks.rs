//! Owns property K2: high watermarks never go back, and what is committed stays.
//! Never asks whether enough nodes hold what is committed; that is I6.

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::committed::CommittedBatch;
use super::log::{Batch, batch_json};
use super::model::{Model, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(super) struct Watermarks {
    property: Property,
}

impl Watermarks {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "K2",
                "the high watermark never goes back, and committed data never changes",
                "KIP-595; KAFKA-10533",
            ),
        }
    }
}

impl Rule for Watermarks {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        if let Some(end) = model.cut_by(event) {
            self.check_cut(model, event, end);
        }
        if let TraceDetail::HighWatermark { high_watermark, .. } = event.detail {
            self.check_no_retreat(model, event, high_watermark);
        }
    }

    fn after(&mut self, _model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        for (batch, earlier) in &outcome.conflicts {
            self.property
                .violated(event.time, || two_commits(event, batch, earlier));
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl Watermarks {
    /// The log is cut back to `end`, or written over from there on.
    fn check_cut(&mut self, model: &Model, event: &TraceEvent, end: i64) {
        self.property.checked += 1;
        let node = model.node(event);
        if let Some((high_watermark, reported)) = &node.high_watermark
            && *high_watermark > end
        {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} cut its log back to {end} at {}, below its own high watermark of \
                     {high_watermark}",
                    event.node,
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(reported))
            });
            return;
        }
        if end < node.log.start() {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} cut its log back to {end} at {}, below its start at {}, which only what is \
                     committed may be",
                    event.node,
                    seconds(event.time),
                    node.log.start()
                );
                (summary, event_json(event), Value::Null)
            });
            return;
        }
        let told = node.log.range(end, i64::MAX);
        let removed = told
            .filter(|batch| batch.identity.is_some())
            .find_map(|batch| {
                let committed = model.committed.beginning_at(batch.base_offset);
                // Nobody counts a copy of a replica that has not reached the epoch that committed the batch:
                // it may still do what the leader of an earlier one told it to.
                committed
                    .filter(|committed| committed.batch == batch && committed.epoch <= event.epoch)
            });
        if let Some(committed) = removed {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} removed offset {} at {}, which {} had reported as committed at {}",
                    event.node,
                    committed.batch.base_offset,
                    seconds(event.time),
                    committed.node,
                    seconds(committed.time)
                );
                (summary, event_json(event), committed.json())
            });
        }
    }

    fn check_no_retreat(&mut self, model: &Model, event: &TraceEvent, high_watermark: i64) {
        self.property.checked += 1;
        if let Some((earlier, reported)) = &model.node(event).high_watermark
            && *earlier > high_watermark
        {
            self.property.violated(event.time, || {
                let summary = format!(
                    "the high watermark of {} went back from {earlier} (at {}) to {high_watermark} \
                     (at {})",
                    event.node,
                    seconds(reported.time),
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(reported))
            });
        }
    }
}

/// Two reports of the same offset as committed, with different batches: how a violation is told.
pub(super) fn two_commits(
    event: &TraceEvent,
    batch: &Batch,
    earlier: &CommittedBatch,
) -> (String, Value, Value) {
    let summary = format!(
        "offset {} was committed twice: {} at {} and {} at {} report different batches",
        batch.base_offset,
        earlier.node,
        seconds(earlier.time),
        event.node,
        seconds(event.time)
    );
    let here = json!({"event": event_json(event), "batch": batch_json(batch)});
    (summary, here, earlier.json())
}
