//! Owns sets that only grow, where every element is added at most once and reads return everything.
//! Never handles removals or questions about one element.
//!
//! Reads must contain one another. Between two of them come the elements that only the larger one has.

use rustc_hash::FxHashMap;

use super::super::models::set::{Set, SetAction, repeated};
use super::super::timeline::{NEVER, Timeline};
use super::{Clusters, Fast};

/// Decides; `None` where elements are not unique.
pub(in super::super) fn decide(set: &Set, timeline: &Timeline<SetAction>) -> Option<Fast> {
    let mut added: FxHashMap<u32, u32> = FxHashMap::default();
    let intervals = timeline.intervals();
    let mut read: Vec<u32> = Vec::new();
    for (operation, action) in timeline.actions().iter().enumerate() {
        match action {
            SetAction::Add(element) => {
                if added.insert(*element, operation as u32).is_some() {
                    return None;
                }
            }
            SetAction::Read(contents) if intervals[operation].1 != NEVER => read.push(*contents),
            SetAction::Read(_) => {}
            SetAction::Remove(_) | SetAction::Contains(_) | SetAction::Lacks(_) => return None,
        }
    }
    let contents = |number: u32| set.contents[number as usize].as_slice();
    if read
        .iter()
        .any(|number| repeated(contents(*number)).is_some())
    {
        return Some(Fast::NotLinearizable);
    }
    read.sort_unstable_by(|one, other| {
        let (one, other) = (contents(*one), contents(*other));
        one.len().cmp(&other.len()).then_with(|| one.cmp(other))
    });
    read.dedup_by(|one, other| contents(*one) == contents(*other));
    // Two clusters for every read: the elements that are new in it, and the reads themselves.
    let last = 2 * read.len();
    let mut cluster_of = vec![last; timeline.len()];
    let mut cluster_of_read: FxHashMap<&[u32], usize> = FxHashMap::default();
    let mut before: &[u32] = &[];
    for (rank, number) in read.iter().enumerate() {
        let now = contents(*number);
        let mut rest = before;
        for element in now {
            if let Some((first, others)) = rest.split_first()
                && first == element
            {
                rest = others;
                continue;
            }
            let Some(add) = added.get(element) else {
                return Some(Fast::NotLinearizable);
            };
            cluster_of[*add as usize] = 2 * rank;
        }
        if !rest.is_empty() {
            return Some(Fast::NotLinearizable);
        }
        cluster_of_read.insert(now, 2 * rank + 1);
        before = now;
    }
    let mut clusters = Clusters::new(last + 1);
    for (operation, action) in timeline.actions().iter().enumerate() {
        let is_completed = intervals[operation].1 != NEVER;
        let cluster = match action {
            SetAction::Read(number) if is_completed => cluster_of_read[contents(*number)],
            SetAction::Add(_) if is_completed || cluster_of[operation] != last => {
                cluster_of[operation]
            }
            _ => continue,
        };
        clusters.add(cluster, operation, intervals[operation]);
    }
    if clusters.are_out_of_order() {
        return Some(Fast::NotLinearizable);
    }
    Some(Fast::Linearizable(clusters.order(|_| false)))
}
