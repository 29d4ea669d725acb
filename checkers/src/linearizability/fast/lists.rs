//! Owns lists where every element is appended at most once and reads return everything.
//! Never handles replacements of the whole, or pieces of several elements.
//!
//! The longest read dictates the order of all appends that were observed. What nobody observed comes
//! after everything.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::super::models::sequence::{Sequence, SequenceAction};
use super::super::timeline::{NEVER, Timeline};
use super::{Clusters, Fast};

/// Decides; `None` where elements are not unique.
pub(in super::super) fn decide<T: Copy + Eq + Hash>(
    sequence: &Sequence<T>,
    timeline: &Timeline<SequenceAction>,
) -> Option<Fast> {
    let mut appended: FxHashMap<T, u32> = FxHashMap::default();
    let mut longest: &[T] = &[];
    let intervals = timeline.intervals();
    for (operation, action) in timeline.actions().iter().enumerate() {
        match action {
            SequenceAction::Put(_) => return None,
            SequenceAction::Append(piece) => {
                let [element] = sequence.piece(*piece) else {
                    return None;
                };
                if appended.insert(*element, operation as u32).is_some() {
                    return None;
                }
            }
            SequenceAction::Read(piece) => {
                let read = sequence.piece(*piece);
                if read.len() > longest.len() && intervals[operation].1 != NEVER {
                    longest = read;
                }
            }
        }
    }
    // Cluster 0 is the empty list, the last one is what nobody observed.
    let last = longest.len() + 1;
    let mut cluster_of = vec![last; timeline.len()];
    for (place, element) in longest.iter().enumerate() {
        let Some(append) = appended.get(element) else {
            return Some(Fast::NotLinearizable);
        };
        if std::mem::replace(&mut cluster_of[*append as usize], place + 1) != last {
            return Some(Fast::NotLinearizable);
        }
    }
    let mut clusters = Clusters::new(last + 1);
    let mut append_call = vec![0; last + 1];
    for (operation, action) in timeline.actions().iter().enumerate() {
        let is_completed = intervals[operation].1 != NEVER;
        let cluster = cluster_of[operation];
        if matches!(action, SequenceAction::Append(_)) && (is_completed || cluster != last) {
            append_call[cluster] = intervals[operation].0;
            clusters.add(cluster, operation, intervals[operation]);
        }
    }
    for (operation, action) in timeline.actions().iter().enumerate() {
        let end = intervals[operation].1;
        let SequenceAction::Read(piece) = action else {
            continue;
        };
        if end == NEVER {
            continue;
        }
        let read = sequence.piece(*piece);
        if !longest.starts_with(read) || end < append_call[read.len()] {
            return Some(Fast::NotLinearizable);
        }
        clusters.add(read.len(), operation, intervals[operation]);
    }
    if clusters.are_out_of_order() {
        return Some(Fast::NotLinearizable);
    }
    let is_append = |operation| {
        matches!(
            timeline.action(operation as usize),
            SequenceAction::Append(_)
        )
    };
    Some(Fast::Linearizable(clusters.order(is_append)))
}
