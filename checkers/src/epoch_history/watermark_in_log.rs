//! Owns property K3: a high watermark stays within the log.
//! Never asks how it moves; that is K2.

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::Value;

use super::model::Model;
use super::property::{Property, event_json};
use super::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(super) struct WatermarkInLog {
    property: Property,
}

impl WatermarkInLog {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "K3",
                "the high watermark is never beyond the end of the log, nor below its start",
                "KIP-595; KIP-630",
            ),
        }
    }
}

impl Rule for WatermarkInLog {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        match event.detail {
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            } => self.check_within_log(model, event, high_watermark, log_end),
            TraceDetail::LogStartAdvanced { log_start } => {
                self.check_start(model, event, log_start);
            }
            _ => {}
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl WatermarkInLog {
    fn check_within_log(
        &mut self,
        model: &Model,
        event: &TraceEvent,
        high_watermark: i64,
        log_end: i64,
    ) {
        self.property.checked += 1;
        let node = model.node(event);
        if high_watermark > log_end {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} had a high watermark of {high_watermark} at {}, but its log ended at \
                     {log_end}",
                    event.node,
                    seconds(event.time)
                );
                (summary, event_json(event), Value::Null)
            });
        } else if high_watermark < node.log.start() {
            self.property.violated(event.time, || {
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
        self.property.checked += 1;
        if let Some((high_watermark, reported)) = &model.node(event).high_watermark
            && *high_watermark < log_start
        {
            self.property.violated(event.time, || {
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
