//! Owns properties K2 and K3: high watermarks never go back, and stay within the log.
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
    no_retreat: Property,
    within_log: Property,
}

impl Watermarks {
    pub(super) fn new() -> Self {
        Self {
            no_retreat: Property::new(
                "K2",
                "the high watermark never goes back, and committed data never changes",
                "KIP-595; KAFKA-10533",
            ),
            within_log: Property::new(
                "K3",
                "the high watermark is never beyond the end of the log, nor below its start",
                "KIP-595; KIP-630",
            ),
        }
    }
}

impl Rule for Watermarks {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        if let Some(end) = model.cut_by(event) {
            self.check_cut(model, event, end);
        }
        match event.detail {
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            } => {
                self.check_within_log(model, event, high_watermark, log_end);
                self.check_no_retreat(model, event, high_watermark);
            }
            TraceDetail::LogStartAdvanced { log_start } => {
                self.check_start(model, event, log_start);
            }
            _ => {}
        }
    }

    fn after(&mut self, _model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        for (batch, earlier) in &outcome.conflicts {
            self.no_retreat
                .violated(event.time, || two_commits(event, batch, earlier));
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.no_retreat, self.within_log]
    }
}

impl Watermarks {
    /// The log is cut back to `end`, or written over from there on.
    fn check_cut(&mut self, model: &Model, event: &TraceEvent, end: i64) {
        self.no_retreat.checked += 1;
        let node = model.node(event);
        if let Some((high_watermark, reported)) = &node.high_watermark
            && *high_watermark > end
        {
            self.no_retreat.violated(event.time, || {
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
            self.no_retreat.violated(event.time, || {
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
                    .filter(|committed| committed.batch == *batch && committed.epoch <= event.epoch)
            });
        if let Some(committed) = removed {
            self.no_retreat.violated(event.time, || {
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
        self.no_retreat.checked += 1;
        if let Some((earlier, reported)) = &model.node(event).high_watermark
            && *earlier > high_watermark
        {
            self.no_retreat.violated(event.time, || {
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

    fn check_within_log(
        &mut self,
        model: &Model,
        event: &TraceEvent,
        high_watermark: i64,
        log_end: i64,
    ) {
        self.within_log.checked += 1;
        let node = model.node(event);
        if high_watermark > log_end {
            self.within_log.violated(event.time, || {
                let summary = format!(
                    "{} had a high watermark of {high_watermark} at {}, but its log ended at \
                     {log_end}",
                    event.node,
                    seconds(event.time)
                );
                (summary, event_json(event), Value::Null)
            });
        } else if high_watermark < node.log.start() {
            self.within_log.violated(event.time, || {
                let summary = format!(
                    "{} had a high watermark of {high_watermark} at {}, but its log started at {}",
                    event.node,
                    seconds(event.time),
                    node.log.start()
                );
                (summary, event_json(event), Value::Null)
            });
        }
    }

    fn check_start(&mut self, model: &Model, event: &TraceEvent, log_start: i64) {
        self.within_log.checked += 1;
        if let Some((high_watermark, reported)) = &model.node(event).high_watermark
            && *high_watermark < log_start
        {
            self.within_log.violated(event.time, || {
                let summary = format!(
                    "{} deleted its log below {log_start} at {}, beyond its high watermark of \
                     {high_watermark}",
                    event.node,
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
