//! Owns which voters and which `kraft.version` are in force at every offset of the local log (KIP-853).
//! Never decides whether a change is allowed: a record is in force once it is in the log.

use super::{Configuration, RecordedVoters, Recovered};
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::Offset;
use crate::mutants::Bug;
use crate::voters::VoterSet;

/// The voters from the start of the log, and every change of them in the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct VoterHistory {
    /// What was in force before the first entry.
    base: RecordedVoters,
    /// In force from the record at this offset on, ascending.
    entries: Vec<(Offset, RecordedVoters)>,
    /// The seeded bug B37: only what is below is in force.
    in_force_below: Option<Offset>,
}

impl VoterHistory {
    /// The history of a replica that starts. Configured voters are in force at kraft.version 0; those
    /// of the newest snapshot and of the log go before them.
    pub(crate) fn recover(configuration: &Configuration, recovered: &Recovered) -> Self {
        let configured = || RecordedVoters {
            kraft_version: 0,
            voters: configuration.voters.clone(),
        };
        let base = recovered.snapshot_voters.clone().unwrap_or_else(configured);
        let mut history = Self {
            base,
            entries: Vec::new(),
            in_force_below: (configuration.has(Bug::VotersOnCommit)).then_some(recovered.log_start),
        };
        for (offset, record) in &recovered.control_records {
            history.note_record(*offset, record);
        }
        history
    }

    /// The voters in force at the end of the log.
    pub(crate) fn latest(&self) -> &VoterSet {
        match self.in_force_below {
            None => &self.latest_entry().voters,
            Some(end) => &self.at(end).voters,
        }
    }

    /// The `kraft.version` in force at the end of the log.
    pub(crate) fn kraft_version(&self) -> u16 {
        self.latest_entry().kraft_version
    }

    /// Where in the log the latest change is; `None` where there is none in it.
    pub(crate) fn latest_offset(&self) -> Option<Offset> {
        self.entries.last().map(|(offset, _)| *offset)
    }

    /// What is in force just before `end`.
    pub(crate) fn at(&self, end: Offset) -> &RecordedVoters {
        let count = self.entries.partition_point(|(offset, _)| *offset < end);
        match count.checked_sub(1) {
            Some(last) => &self.entries[last].1,
            None => &self.base,
        }
    }

    /// Takes note of a control record in the log; whether it changed anything.
    pub(crate) fn note_record(&mut self, offset: Offset, record: &ControlRecord) -> bool {
        let mut next = self.latest_entry().clone();
        match record {
            ControlRecord::Voters { voters } => next.voters = voters.clone(),
            ControlRecord::KraftVersion { version } => next.kraft_version = *version,
            _ => return false,
        }
        self.entries.push((offset, next));
        true
    }

    /// Forgets changes that a truncation to `log_end` removed; whether there were any.
    pub(crate) fn truncate(&mut self, log_end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(offset, _)| *offset < log_end);
        self.entries.len() != before
    }

    /// The log below `log_start` is gone.
    pub(crate) fn advance_log_start(&mut self, log_start: Offset) {
        self.base = self.at(log_start).clone();
        self.entries.retain(|(offset, _)| *offset >= log_start);
    }

    /// The log was replaced by a snapshot that says this.
    pub(crate) fn reset(&mut self, voters: RecordedVoters) {
        self.base = voters;
        self.entries.clear();
    }

    /// Whether the voters are those of the bootstrap snapshot, which the first leader has to copy into
    /// the log: they are at no offset yet.
    pub(crate) fn is_bootstrap(&self, log_start: Offset) -> bool {
        self.entries.is_empty() && log_start == Offset(0) && self.base.kraft_version >= 1
    }

    /// Everything below is committed, which matters to the seeded bug B37 only.
    pub(crate) fn note_committed(&mut self, high_watermark: Offset) {
        if let Some(end) = &mut self.in_force_below {
            *end = high_watermark.max(*end);
        }
    }

    fn latest_entry(&self) -> &RecordedVoters {
        self.entries.last().map_or(&self.base, |(_, entry)| entry)
    }
}

/// The records of a control batch with their offsets; none for a batch of commands.
///
/// # Errors
/// If one of them is of no known kind.
pub(crate) fn control_records_of(
    batch: &Batch,
) -> Result<Vec<(Offset, ControlRecord)>, serde_json::Error> {
    if !batch.is_control() {
        return Ok(Vec::new());
    }
    batch
        .records()
        .map(|(offset, payload)| Ok((offset, ControlRecord::decode(payload)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn set(ids: &[i32]) -> VoterSet {
        ids.iter().copied().map(NodeId).collect()
    }

    fn history() -> VoterHistory {
        let base = RecordedVoters {
            kraft_version: 1,
            voters: set(&[1]),
        };
        let mut history = VoterHistory {
            base,
            entries: Vec::new(),
            in_force_below: None,
        };
        for (offset, ids) in [(3, &[1, 2][..]), (7, &[1, 2, 3])] {
            let record = ControlRecord::Voters { voters: set(ids) };
            assert!(history.note_record(Offset(offset), &record));
        }
        history
    }

    #[test]
    fn a_change_is_in_force_from_its_record_on() {
        let history = history();
        let at = |end| history.at(Offset(end)).voters.len();
        assert_eq!(
            [at(0), at(3), at(4), at(7), at(8), at(99)],
            [1, 1, 2, 2, 3, 3]
        );
        assert_eq!(history.latest(), &set(&[1, 2, 3]));
        assert_eq!(history.latest_offset(), Some(Offset(7)));
    }

    #[test]
    fn truncation_undoes_changes() {
        let mut history = history();
        assert!(!history.truncate(Offset(8)));
        assert!(history.truncate(Offset(7)));
        assert_eq!(history.latest(), &set(&[1, 2]));
        assert!(history.truncate(Offset(0)));
        assert_eq!(
            (history.latest(), history.latest_offset()),
            (&set(&[1]), None)
        );
    }

    #[test]
    fn what_the_deleted_part_of_the_log_changed_stays_in_force() {
        let mut history = history();
        history.advance_log_start(Offset(5));
        assert_eq!(history.at(Offset(5)).voters, set(&[1, 2]));
        assert_eq!(history.latest_offset(), Some(Offset(7)));
        history.advance_log_start(Offset(8));
        assert_eq!(
            (history.latest(), history.latest_offset()),
            (&set(&[1, 2, 3]), None)
        );
    }
}
