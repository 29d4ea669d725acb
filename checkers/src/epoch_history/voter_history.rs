//! Owns the model of which voters one node goes by, as far as the trace tells.
//! Never judges a change: a set is in force from its record on, undone if the record is cut off (KIP-853).

use std::collections::BTreeSet;
use std::rc::Rc;

use results::trace::TraceEvent;

/// Names of voters.
pub(super) type VoterSet = Rc<BTreeSet<String>>;

/// A set of voters from a list of names.
pub(super) fn voter_set(names: &[String]) -> VoterSet {
    Rc::new(names.iter().cloned().collect())
}

/// "n1, n2", for people.
pub(super) fn names_of<Name: AsRef<str>>(voters: &BTreeSet<Name>) -> String {
    if voters.is_empty() {
        return "nobody".into();
    }
    let names: Vec<&str> = voters.iter().map(AsRef::as_ref).collect();
    names.join(", ")
}

/// How many voters were added and removed between the two.
pub(super) fn changed_count(one: &BTreeSet<String>, other: &BTreeSet<String>) -> usize {
    one.symmetric_difference(other).count()
}

/// A record with a set of voters in the log of one node.
#[derive(Debug, Clone)]
pub(super) struct VoterEntry {
    pub(super) offset: i64,
    pub(super) voters: VoterSet,
    /// The report of its append.
    pub(super) event: Rc<TraceEvent>,
}

/// The voters before the first record, and every record with voters in the log of one node.
#[derive(Debug, Default)]
pub(super) struct VoterHistory {
    /// `None` where the trace does not tell.
    base: Option<VoterSet>,
    /// Whether snapshot or log name them, rather than the configuration.
    base_is_recorded: bool,
    /// Below this log end, what was in force instead is not known.
    base_from: i64,
    entries: Vec<VoterEntry>,
}

impl VoterHistory {
    /// Nothing is known.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// These voters are configured.
    pub(super) fn configure(&mut self, voters: VoterSet) {
        *self = Self {
            base: Some(voters),
            ..Self::default()
        };
    }

    /// Snapshot or log, which end at `log_end`, name these voters.
    pub(super) fn recover(&mut self, voters: VoterSet, log_end: i64) {
        if self.latest() != Some(&voters) {
            *self = Self {
                base: Some(voters),
                base_from: log_end,
                ..Self::default()
            };
        }
        self.base_is_recorded = true;
    }

    /// A snapshot that names these voters has replaced the log.
    pub(super) fn install(&mut self, voters: VoterSet, end_offset: i64) {
        self.forget();
        self.recover(voters, end_offset);
    }

    /// The voters in force at the end of the log.
    pub(super) fn latest(&self) -> Option<&VoterSet> {
        self.before_entry(self.entries.len())
    }

    /// The records in the log at `from` and above, each with the voters in force before it.
    pub(super) fn changes_from(
        &self,
        from: i64,
    ) -> impl Iterator<Item = (Option<&VoterSet>, &VoterEntry)> {
        let first = self.entries.partition_point(|entry| entry.offset < from);
        let changes = self.entries.iter().enumerate().skip(first);
        changes.map(|(at, entry)| (self.before_entry(at), entry))
    }

    /// What snapshot and log say below `end`, with the record that says it if it is in the log. `None`
    /// if neither says anything.
    pub(super) fn recorded_before(&self, end: i64) -> Option<(&VoterSet, Option<&VoterEntry>)> {
        let count = self.entries.partition_point(|entry| entry.offset < end);
        match count.checked_sub(1).and_then(|last| self.entries.get(last)) {
            Some(last) => Some((&last.voters, Some(last))),
            None if self.base_is_recorded => Some((self.base.as_ref()?, None)),
            None => None,
        }
    }

    pub(super) fn append(&mut self, entry: VoterEntry) {
        self.cut(entry.offset);
        self.entries.push(entry);
    }

    /// Forgets the records at `end` and above.
    pub(super) fn cut(&mut self, end: i64) {
        if end < self.base_from {
            self.forget();
            return;
        }
        let keep = self.entries.partition_point(|entry| entry.offset < end);
        self.entries.truncate(keep);
    }

    fn before_entry(&self, at: usize) -> Option<&VoterSet> {
        match at.checked_sub(1) {
            Some(before) => self.entries.get(before).map(|entry| &entry.voters),
            None => self.base.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Rc<TraceEvent> {
        let event = serde_json::from_str(
            r#"{"time":1,"node":"n1","incarnation":1,"seq":0,"epoch":1,"event":"other"}"#,
        )
        .unwrap();
        Rc::new(event)
    }

    fn set(names: &[&str]) -> VoterSet {
        Rc::new(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn records_are_in_force_until_they_are_cut_off() {
        let event = event();
        let mut history = VoterHistory::default();
        assert_eq!(history.latest(), None);
        history.configure(set(&["n1"]));
        for (offset, voters) in [(3, set(&["n1", "n2"])), (7, set(&["n2"]))] {
            history.append(VoterEntry {
                offset,
                voters,
                event: event.clone(),
            });
        }
        assert_eq!(history.latest(), Some(&set(&["n2"])));
        let recorded = |end| history.recorded_before(end).map(|(voters, _)| voters.len());
        assert_eq!(
            [recorded(3), recorded(4), recorded(9)],
            [None, Some(2), Some(1)]
        );
        let (before, change) = history.changes_from(4).next().unwrap();
        assert_eq!((before, change.offset), (Some(&set(&["n1", "n2"])), 7));
        assert_eq!(history.changes_from(8).count(), 0);
        history.cut(7);
        assert_eq!(history.latest(), Some(&set(&["n1", "n2"])));
        history.cut(0);
        assert_eq!(history.latest(), Some(&set(&["n1"])));
    }

    #[test]
    fn what_a_start_found_may_be_in_the_part_that_is_cut_off() {
        let mut history = VoterHistory::default();
        history.configure(set(&["n1"]));
        history.recover(set(&["n1"]), 5);
        assert_eq!(history.recorded_before(0).unwrap().0, &set(&["n1"]));
        history.cut(2);
        assert_eq!(
            history.latest(),
            Some(&set(&["n1"])),
            "nothing contradicts it"
        );
        history.recover(set(&["n1", "n2"]), 9);
        history.cut(9);
        assert_eq!(history.latest(), Some(&set(&["n1", "n2"])));
        history.cut(8);
        assert_eq!(history.latest(), None);
        history.install(set(&["n2"]), 12);
        assert_eq!(history.recorded_before(12).unwrap().0, &set(&["n2"]));
    }

    #[test]
    fn additions_and_removals_are_counted() {
        assert_eq!(changed_count(&set(&["n1", "n2"]), &set(&["n1", "n2"])), 0);
        assert_eq!(changed_count(&set(&["n1", "n2"]), &set(&["n1"])), 1);
        assert_eq!(changed_count(&set(&["n1", "n2"]), &set(&["n1", "n3"])), 2);
        assert_eq!(names_of(&set(&["n1", "n2"])), "n1, n2");
        assert_eq!(names_of(&set(&[])), "nobody");
    }
}
