//! Owns how a state comes back from the records of a snapshot.
//! Never believes them: what is incomplete, changed or out of order is refused, without a panic.

use std::borrow::Cow;
use std::mem;

use serde_json::Value;

use super::entry::{ENDS, Entry, GOES_ON, Summary, VERSION};
use crate::batch::MAX_BATCH_BYTES;
use crate::machine::{Applied, Machine, Stamp};

/// Longest entry that is put together from several records, in bytes: more than anything that came
/// out of a record of the log can need.
const MAX_ENTRY_BYTES: usize = 2 * MAX_BATCH_BYTES;

/// A snapshot that cannot be loaded. Nothing of it may be used; another copy of it, or another
/// snapshot, is needed.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot cannot be loaded (record {record_index}, counted from 0): {fault}")]
pub struct SnapshotRecordError {
    /// Which record it is, counted from 0; the number of records when what comes after the last one
    /// is missing, or when they are wrong only as a whole.
    pub record_index: u64,
    /// What is wrong.
    #[source]
    pub fault: SnapshotFault,
}

/// What is wrong with a record of a snapshot, or with all of them together.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// The first byte is none that a writer of this version writes.
    #[error("it does not begin as a record of a snapshot does")]
    Marker,
    /// Records that belong together are too long together.
    #[error("it goes on for more than {MAX_ENTRY_BYTES} bytes")]
    Length,
    /// What the record says is not an entry of this version.
    #[error("it is no entry of a snapshot: {0}")]
    Entry(#[source] serde_json::Error),
    /// The summary does not come first, or comes again.
    #[error("the summary is not the first entry, or not the only one")]
    Summary,
    /// Another program wrote it.
    #[error("it has version {found}, and this program reads version {VERSION}")]
    Version {
        /// Version of the snapshot.
        found: u32,
    },
    /// An object or session comes twice, or after one that it precedes.
    #[error("{what} {name:?} comes twice or too late")]
    Order {
        /// Kind of what comes.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A list or set has no values, or a set has one twice or too late.
    #[error("the values of {what} {name:?} are not those of one")]
    Values {
        /// Kind of the object.
        what: &'static str,
        /// Its key.
        name: String,
    },
    /// No machine could hold the session next to the others.
    #[error("the session of client {client:?} cannot have come about")]
    Session {
        /// Whose session it is.
        client: String,
    },
    /// Records are missing at the end.
    #[error("it ends too early")]
    Incomplete,
    /// What was loaded is not what was written.
    #[error("the content is not what the summary says; expected {expected}, found {found}")]
    Content {
        /// Counts and digest that the summary names.
        expected: String,
        /// Counts and digest of what was loaded.
        found: String,
    },
}

/// Takes the records of a snapshot, in order, and makes a machine of them.
///
/// The machine is a new one that holds what the snapshot holds and nothing else: it replaces what
/// was there before and is never merged into it (KAFKA-14894).
#[derive(Debug, Default)]
pub struct MachineLoader {
    machine: Machine,
    summary: Option<Summary>,
    /// What came last. Entries must rise.
    last: Option<(Section, String)>,
    /// The beginning of an entry that goes on.
    begun: Vec<u8>,
    record_count: u64,
    is_refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Registers,
    Lists,
    Sets,
    Counters,
    Sessions,
}

impl Section {
    fn what(self) -> &'static str {
        match self {
            Self::Registers => "register",
            Self::Lists => "list",
            Self::Sets => "set",
            Self::Counters => "counter",
            Self::Sessions => "the session of client",
        }
    }
}

impl MachineLoader {
    /// Takes the next record.
    ///
    /// # Errors
    /// When it cannot be part of the snapshot. Nothing that follows makes up for it: from then on,
    /// [`Self::finish`] fails.
    pub fn push(&mut self, record: &[u8]) -> Result<(), SnapshotRecordError> {
        let taken = self.take(record).map_err(|fault| {
            self.is_refused = true;
            let record_index = self.record_count;
            SnapshotRecordError {
                record_index,
                fault,
            }
        });
        self.record_count += 1;
        taken
    }

    /// The machine, after the last record.
    ///
    /// # Errors
    /// When a record was refused or is missing, or when the whole is not what the snapshot's summary
    /// says: other counts of objects and sessions, or another digest.
    pub fn finish(self) -> Result<Machine, SnapshotRecordError> {
        let refused = |fault| SnapshotRecordError {
            record_index: self.record_count,
            fault,
        };
        let Some(expected) = &self.summary else {
            return Err(refused(SnapshotFault::Incomplete));
        };
        if self.is_refused || !self.begun.is_empty() {
            return Err(refused(SnapshotFault::Incomplete));
        }
        let found = Summary::of(&self.machine);
        if found != *expected {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            return Err(refused(SnapshotFault::Content { expected, found }));
        }
        Ok(self.machine)
    }

    /// What was loaded so far, taken for the whole: the seeded bug B48.
    pub(crate) fn finish_early(self) -> Machine {
        self.machine
    }

    fn take(&mut self, record: &[u8]) -> Result<(), SnapshotFault> {
        let (&marker, piece) = record.split_first().ok_or(SnapshotFault::Marker)?;
        if !matches!(marker, ENDS | GOES_ON) || piece.is_empty() {
            return Err(SnapshotFault::Marker);
        }
        if self.begun.len() + piece.len() > MAX_ENTRY_BYTES {
            return Err(SnapshotFault::Length);
        }
        if marker == GOES_ON {
            self.begun.extend_from_slice(piece);
            return Ok(());
        }
        let entry = if self.begun.is_empty() {
            serde_json::from_slice(piece)
        } else {
            self.begun.extend_from_slice(piece);
            let whole = mem::take(&mut self.begun);
            serde_json::from_slice(&whole)
        };
        self.enter(entry.map_err(SnapshotFault::Entry)?)
    }

    fn enter(&mut self, entry: Entry<'static>) -> Result<(), SnapshotFault> {
        let entry = match entry {
            Entry::Summary(summary) => return self.begin(summary),
            _ if self.summary.is_none() => return Err(SnapshotFault::Summary),
            entry => entry,
        };
        match entry {
            Entry::Summary(_) => Err(SnapshotFault::Summary),
            Entry::Register { key, value } => {
                self.advance(Section::Registers, &key)?;
                self.machine.objects.write(&key, value.into_owned());
                Ok(())
            }
            Entry::List { key, values } => {
                let values = self.values(Section::Lists, &key, values)?;
                for value in values {
                    self.machine.objects.append(&key, value);
                }
                Ok(())
            }
            Entry::Set { key, values } => {
                let values = self.values(Section::Sets, &key, values)?;
                self.fill_set(&key, values)
            }
            Entry::Counter { key, value } => {
                self.advance(Section::Counters, &key)?;
                self.machine.objects.set_counter(&key, Some(value));
                Ok(())
            }
            Entry::Session {
                client,
                last_request,
                fingerprint,
                offset,
                used,
                outcome,
            } => {
                self.advance(Section::Sessions, &client)?;
                let client = client.into_owned();
                let stamp = Stamp {
                    client: client.clone(),
                    request: last_request,
                };
                let outcome = outcome.into_owned();
                let applied = Applied { outcome, offset };
                let sessions = &mut self.machine.sessions;
                if sessions.restore(stamp, fingerprint, applied, used) {
                    Ok(())
                } else {
                    Err(SnapshotFault::Session { client })
                }
            }
        }
    }

    fn begin(&mut self, summary: Summary) -> Result<(), SnapshotFault> {
        if self.summary.is_some() {
            return Err(SnapshotFault::Summary);
        }
        if summary.version != VERSION {
            let found = summary.version;
            return Err(SnapshotFault::Version { found });
        }
        self.summary = Some(summary);
        Ok(())
    }

    /// Notes what comes, if it comes after all that came before.
    fn advance(&mut self, section: Section, name: &str) -> Result<(), SnapshotFault> {
        let is_next = self.last.as_ref().is_none_or(|(last_section, last_name)| {
            (*last_section, last_name.as_str()) < (section, name)
        });
        if !is_next {
            let (what, name) = (section.what(), name.to_owned());
            return Err(SnapshotFault::Order { what, name });
        }
        self.last = Some((section, name.to_owned()));
        Ok(())
    }

    /// The values of a list or set that begins or goes on.
    fn values(
        &mut self,
        section: Section,
        key: &str,
        values: Vec<Cow<'static, Value>>,
    ) -> Result<impl Iterator<Item = Value> + use<>, SnapshotFault> {
        let goes_on = matches!(&self.last, Some((last, name)) if *last == section && name == key);
        if !goes_on {
            self.advance(section, key)?;
        }
        if values.is_empty() {
            return Err(wrong_values(section, key));
        }
        Ok(values.into_iter().map(Cow::into_owned))
    }

    fn fill_set(
        &mut self,
        key: &str,
        values: impl Iterator<Item = Value>,
    ) -> Result<(), SnapshotFault> {
        let objects = &mut self.machine.objects;
        let held = objects.sets().get(key).and_then(|set| set.values.get_max());
        let mut last = held.map(|(text, _)| text.clone());
        for value in values {
            let text = objects.add_member(key, value);
            if text.is_none() || text <= last {
                return Err(wrong_values(Section::Sets, key));
            }
            last = text;
        }
        Ok(())
    }
}

fn wrong_values(section: Section, key: &str) -> SnapshotFault {
    SnapshotFault::Values {
        what: section.what(),
        name: key.to_owned(),
    }
}
