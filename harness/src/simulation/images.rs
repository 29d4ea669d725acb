//! Owns what is told of the disks of simulated nodes when a run is over.
//! Never waits for anything: what a node has done and not said yet is told with its disk.

use std::collections::BTreeSet;

use results::disk_image::DiskImage;
use results::trace::TraceEvent;

use super::simulated_node::{Output, SimulatedNode};
use super::tracing::{self, Names};

/// What is durable on the disk of a node, and what the node would have said about it next. The disk is empty then.
///
/// `wanted` are the ends of snapshots at which its log is added up.
pub(super) fn image_of(node: &SimulatedNode, wanted: &BTreeSet<i64>, names: &Names) -> DiskImage {
    let mut image = checkers::disks::read(&node.disk.take_durable_files(), wanted);
    let is_crashing = |(_, output): &(u64, Output)| matches!(output, Output::Crash(_));
    image.is_settled = node.is_running() && !node.outputs.iter().any(is_crashing);
    if !node.is_running() {
        return image;
    }
    let pending = node
        .outputs
        .iter()
        .filter_map(|(time_ns, output)| match output {
            Output::Trace(traced) => Some((*time_ns, traced.clone())),
            _ => None,
        });
    let events = (node.next_seq..).zip(pending);
    image.untold = events
        .map(|(seq, (time, traced))| TraceEvent {
            time,
            node: node.name.clone(),
            incarnation: node.incarnation,
            seq,
            epoch: traced.epoch.0,
            detail: tracing::detail(traced.event, names, || None),
        })
        .collect();
    image
}
