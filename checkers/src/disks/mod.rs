//! Owns the checker of what nodes left on their disks: is it what they said they had there?
//! Never believes a node: the files are read by code of its own, and what cannot be compared is told.

mod batches;
mod change;
mod claims;
mod command;
mod compare;
mod files;
mod fold;
mod promises;
mod state_hash;

use std::collections::BTreeMap;

use results::disk_image::DiskImage;
use results::schedule::Schedule;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::json;

use crate::disk_faults::{has_new_disk, may_have_damaged, waived_recovery};
use crate::epoch_history::nodes::Nodes;
use crate::epoch_history::property::Property;
use crate::{conclusion, counted};
use claims::Claims;
use compare::Comparison;

pub use files::{read, snapshot_ends};
pub use promises::Clients;
use promises::{Disk, Disks};

const SOURCE: &str = "a node that lies about its disk is caught by what is on it";

/// What all nodes claim to be on their disks, event by event.
#[derive(Debug, Default)]
pub struct Claimed {
    nodes: Nodes<Claims>,
}

impl Claimed {
    /// Takes the next event; those of a node come in order, and none is missing.
    pub fn observe(&mut self, event: &TraceEvent) {
        self.nodes
            .enter(&event.node, Claims::default)
            .observe(event);
    }

    /// Compares what was claimed, and what clients were told, with the disks of the nodes, by name.
    ///
    /// A disk whose data a fault has destroyed is left out, since its node is not to be blamed for it.
    pub fn conclude(
        mut self,
        disks: &BTreeMap<String, DiskImage>,
        schedule: &Schedule,
        clients: Clients<'_>,
    ) -> CheckerResult {
        let mut comparison = Comparison::default();
        let mut left_out = BTreeMap::new();
        let mut lost = None;
        let mut compared_count = 0;
        let mut compared = Vec::new();
        for (node, image) in disks {
            let Some(claims) = self.nodes.get_mut(node) else {
                // Whoever is no member yet has not even an epoch.
                if image.quorum_state.is_some() || !image.batches.is_empty() {
                    left_out.insert(node.clone(), "it said nothing in all of the run".to_owned());
                }
                continue;
            };
            for event in &image.untold {
                claims.observe(event);
            }
            if claims.is_broken {
                lost = Some(format!("events of {node} are missing"));
                continue;
            }
            if let Some(reason) = reason_to_leave_out(node, claims, image, schedule) {
                left_out.insert(node.clone(), reason);
                continue;
            }
            compared_count += 1;
            comparison.compare(node, claims, image);
            compared.push((node.as_str(), image));
        }
        comparison.compare_folds(&compared);
        let unfolded_count = comparison.unfolded_count;
        let unread = self
            .nodes
            .iter()
            .find(|(node, _)| !disks.contains_key(*node));
        if let Some((node, _)) = unread {
            lost = Some(format!("the disk of {node} was not read"));
        }
        let held: Vec<Disk<'_>> = compared
            .iter()
            .filter_map(|(node, image)| {
                let claims = self.nodes.get(node)?;
                Some(Disk {
                    node,
                    claims,
                    image,
                })
            })
            .collect();
        let held = Disks {
            disks: &held,
            are_all: lost.is_none() && left_out.is_empty(),
            may_have_lost: waived_recovery(schedule).is_some(),
        };
        let promises = match promises::compare(&held, clients) {
            Ok(promises) => promises.into(),
            Err(malformed) => {
                lost.get_or_insert_with(|| malformed.to_string());
                Vec::new()
            }
        };
        let mut properties = comparison.finish(lost.as_deref());
        properties.extend(finished(promises, lost.as_deref()));
        let mut result = judge(properties, compared_count, lost.as_deref());
        if unfolded_count > 0 {
            result.summary.push_str(&format!(
                "; {} not checked against a log, which was gone",
                counted(unfolded_count, "snapshot")
            ));
        }
        if !left_out.is_empty() {
            let told: Vec<String> = left_out
                .iter()
                .map(|(node, reason)| format!("{node}: {reason}"))
                .collect();
            result
                .summary
                .push_str(&format!("; left out: {}", told.join(", ")));
            if result.evidence.is_null() {
                result.evidence = json!({});
            }
            result.evidence["left_out"] = json!(left_out);
        }
        result
    }
}

/// Compares the disks of the nodes, by name, with their trace and with what clients were told.
pub fn check(
    trace: &[TraceEvent],
    disks: &BTreeMap<String, DiskImage>,
    schedule: &Schedule,
    clients: Clients<'_>,
) -> CheckerResult {
    let mut claimed = Claimed::default();
    for event in trace {
        claimed.observe(event);
    }
    claimed.conclude(disks, schedule, clients)
}

/// Why a disk says nothing about its node, for people.
fn reason_to_leave_out(
    node: &str,
    claims: &Claims,
    image: &DiskImage,
    schedule: &Schedule,
) -> Option<String> {
    let mut faults = schedule.faults.iter();
    if let Some(fault) = faults.find(|fault| {
        may_have_damaged(fault, node) && !has_new_disk(schedule, fault, node, u64::MAX)
    }) {
        let is_sure = fault.damaged_nodes().any(|damaged| damaged == node);
        let destroyed = if is_sure {
            "destroyed"
        } else {
            "may have destroyed"
        };
        return Some(format!("fault {} {destroyed} data on its disk", fault.id));
    }
    if !claims.has_started {
        return Some("it never got to start".into());
    }
    let is_another = image.directory_id.is_some() && image.directory_id != claims.directory_id;
    if is_another && claims.directory_id.is_some() && !image.is_settled {
        return Some("it was given another directory and has not started since".into());
    }
    None
}

fn finished(
    properties: impl IntoIterator<Item = Property>,
    lost: Option<&str>,
) -> impl Iterator<Item = (String, PropertyResult)> {
    let properties = properties.into_iter();
    properties.map(move |property| (property.id.to_owned(), property.finish(lost)))
}

fn judge(
    properties: BTreeMap<String, PropertyResult>,
    compared_count: u64,
    lost: Option<&str>,
) -> CheckerResult {
    let violated = properties
        .iter()
        .find(|(_, property)| property.valid == Validity::Invalid);
    let checked: u64 = properties.values().map(|property| property.checked).sum();
    // Of a log that a snapshot has replaced as a whole, only where it starts is left.
    let of_logs = ["D1", "D5"].map(|id| properties[id].checked);
    let (valid, summary) = match (violated, lost) {
        (Some((id, property)), _) => (
            Validity::Invalid,
            format!("{id} ({}): {}", property.title, property.summary),
        ),
        (None, Some(lost)) => (Validity::Unknown, format!("evidence was lost: {lost}")),
        (None, None) if of_logs == [0, 0] => (
            Validity::Unknown,
            "there was no log to compare on any disk".into(),
        ),
        (None, None) => (
            Validity::Valid,
            format!(
                "{} hold what their nodes said and clients were told ({})",
                counted(compared_count, "disk"),
                counted(checked, "comparison")
            ),
        ),
    };
    let mut result = conclusion(valid, SOURCE, summary);
    if let Some((_, property)) = violated {
        result.evidence = property.evidence.clone();
    }
    result.properties = properties;
    result
}
