//! Owns property I2: a new leader holds everything committed in earlier epochs.
//! Never looks twice at what a node was found to hold, while that stays in its log.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::json;

use super::log::{batch_json, may_be_same};
use super::model::{Model, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(super) struct Completeness {
    property: Property,
    /// By node: everything committed below was found in its log.
    agreed_below: BTreeMap<SharedText, i64>,
}

impl Completeness {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I2",
                "a new leader holds everything committed in earlier epochs",
                "leader completeness, Ongaro & Ousterhout 2014; KIP-595",
            ),
            agreed_below: BTreeMap::new(),
        }
    }
}

impl Rule for Completeness {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let cut = match &event.detail {
            TraceDetail::Started(started) => Some(started.log_end),
            _ => model.cut_by(event),
        };
        if let Some(end) = cut
            && let Some(agreed_below) = self.agreed_below.get_mut(&event.node)
        {
            *agreed_below = (*agreed_below).min(end);
        }
    }

    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        if let Some(from) = outcome.new_from {
            for agreed_below in self.agreed_below.values_mut() {
                *agreed_below = (*agreed_below).min(from);
            }
        }
        let becomes_leader = matches!(
            event.detail,
            TraceDetail::RoleChange {
                role: Role::Leader,
                ..
            }
        );
        if becomes_leader && !model.node(event).lost {
            self.check(model, event);
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl Completeness {
    fn check(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        self.property.checked += u64::from(model.committed.has_before_epoch(event.epoch));
        let log = &model.node(event).log;
        let agreed_below = self.agreed_below.entry(event.node.clone()).or_insert(0);
        let mut all_agreed = true;
        for committed in model.committed.from(*agreed_below) {
            let base_offset = committed.batch.base_offset;
            if committed.epoch >= event.epoch {
                all_agreed = false;
                continue;
            }
            let found = log.at(base_offset);
            // What a snapshot covers is there, in another form.
            let agrees = base_offset < log.start()
                || found.is_some_and(|found| may_be_same(&found, &committed.batch));
            if agrees {
                if all_agreed {
                    *agreed_below = base_offset + 1;
                }
                continue;
            }
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} became leader of epoch {} at {} without offset {base_offset}, which {} \
                     had reported as committed in epoch {} at {}",
                    event.node,
                    event.epoch,
                    seconds(event.time),
                    committed.node,
                    committed.epoch,
                    seconds(committed.time)
                );
                let contradicts = json!({
                    "committed": committed.json(),
                    "leader_has": found.as_ref().map(batch_json),
                });
                (summary, event_json(event), contradicts)
            });
            break;
        }
    }
}
