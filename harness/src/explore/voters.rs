//! Owns which voters a log puts into force, read from its records, and how they may change.
//! Never asks a member who it thinks the voters are, but to compare.

use node::batch::Batch;
use node::control_record::ControlRecord;
use node::ids::{DirectoryId, NodeId, Offset, ReplicaKey};
use node::raft::RecordedVoters;
use node::voters::{Voter, VoterSet};

use super::message::{id_of, name};

/// A set of voters in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InForce {
    /// Where its record is; none for the voters with which it all begins.
    pub(super) offset: Option<Offset>,
    pub(super) voters: Vec<NodeId>,
}

/// The voters in force at the end of a log: a set is in force once it is in the log (KIP-853). Before the first
/// record of it, the first so many members are.
pub(super) fn in_force(log: &[Batch], first_count: usize) -> InForce {
    let last = log.iter().rev().find_map(|batch| {
        let (offset, voters) = recorded(batch).last()?;
        Some(InForce {
            offset: Some(offset),
            voters: voters.ids().collect(),
        })
    });
    last.unwrap_or_else(|| InForce {
        offset: None,
        voters: (0..first_count).map(id_of).collect(),
    })
}

/// The sets of voters that a batch records.
fn recorded(batch: &Batch) -> impl Iterator<Item = (Offset, VoterSet)> {
    control_records(batch).filter_map(|(offset, record)| match record {
        ControlRecord::Voters { voters } => Some((offset, voters)),
        _ => None,
    })
}

/// The control records of a batch.
pub(super) fn control_records(batch: &Batch) -> impl Iterator<Item = (Offset, ControlRecord)> {
    let is_control = batch.is_control();
    let records = batch.records().filter(move |_| is_control);
    records.filter_map(|(offset, payload)| Some((offset, ControlRecord::decode(payload).ok()?)))
}

/// How a set of voters replaces another one against the rules, for people: one voter at a time, and only once
/// what was before is committed, by a leader that has committed something itself.
pub(super) fn objection(
    before: &InForce,
    after: &InForce,
    high_watermark: Option<Offset>,
) -> Option<String> {
    let only_in = |one: &InForce, other: &InForce| {
        let mut voters = one.voters.iter();
        voters
            .by_ref()
            .filter(|id| !other.voters.contains(id))
            .count()
    };
    let changed = only_in(before, after) + only_in(after, before);
    let Some(high_watermark) = high_watermark.filter(|_| changed > 0) else {
        return (changed > 0).then(|| "before it has committed anything in its epoch".to_owned());
    };
    if changed > 1 {
        return Some(format!("by {changed} voters at once"));
    }
    match before.offset {
        Some(offset) if offset >= high_watermark => Some(format!(
            "while the change before, at {offset}, is not committed"
        )),
        _ => None,
    }
}

/// Who a member is where voters are in the log.
pub(super) fn key_of(index: usize) -> ReplicaKey {
    let id = id_of(index);
    ReplicaKey {
        id,
        directory_id: Some(DirectoryId(id.0 as u128)),
    }
}

/// Where a member listens, as far as anybody asks.
pub(super) fn endpoint_of(index: usize) -> String {
    name(index)
}

/// The voters with which it all begins, where they can change.
pub(super) fn first(count: usize) -> RecordedVoters {
    let voters = (0..count).map(|index| Voter {
        key: key_of(index),
        ..Voter::of_id(id_of(index))
    });
    RecordedVoters {
        kraft_version: 1,
        voters: voters.collect(),
    }
}

#[cfg(test)]
mod tests {
    use node::ids::Epoch;

    use super::*;

    fn set(offset: Option<i64>, ids: &[i32]) -> InForce {
        InForce {
            offset: offset.map(Offset),
            voters: ids.iter().copied().map(NodeId).collect(),
        }
    }

    #[test]
    fn the_last_set_in_the_log_is_in_force() {
        let first = first(3).voters;
        let record = |voters: &VoterSet| {
            let voters = voters.clone();
            ControlRecord::Voters { voters }.encode()
        };
        let batch = |offset, control, payload: Vec<u8>| {
            Batch::build(Offset(offset), Epoch(1), 0, control, &[payload])
        };
        let mut log = vec![batch(0, true, record(&first))];
        assert_eq!(in_force(&log, 3), set(Some(0), &[1, 2, 3]));
        log.push(batch(1, true, record(&first.without(NodeId(2)))));
        log.push(batch(2, false, record(&first)));
        assert_eq!(in_force(&log, 3), set(Some(1), &[1, 3]));
        assert_eq!(in_force(&[], 2), set(None, &[1, 2]));
    }

    #[test]
    fn a_change_must_wait_for_the_one_before() {
        let told = |before: &InForce, after: &InForce, end: Option<i64>| {
            objection(before, after, end.map(Offset))
        };
        let three = set(Some(1), &[1, 2, 3]);
        let two = set(Some(4), &[1, 2]);
        assert_eq!(told(&three, &two, Some(2)), None);
        assert_eq!(told(&three, &set(Some(4), &[1, 2, 3]), None), None);
        assert!(
            told(&three, &two, None)
                .unwrap()
                .contains("has committed anything")
        );
        assert!(
            told(&three, &two, Some(1))
                .unwrap()
                .contains("at 1, is not committed")
        );
        assert!(
            told(&three, &set(Some(4), &[1]), Some(2))
                .unwrap()
                .contains("2 voters")
        );
    }
}
