//! Owns the entries of a snapshot: what they say, and how they are cut into records.
//! Never decides in which order they come.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::Offset;
use crate::machine::{MAX_COMMAND_BYTES, Machine, Outcome};

/// Longest record of a snapshot, in bytes: as long as a command in the log may be.
pub const MAX_SNAPSHOT_RECORD_BYTES: usize = MAX_COMMAND_BYTES;

/// Version of the layout.
pub const VERSION: u32 = 1;

/// First byte of a record that ends its entry.
pub(super) const ENDS: u8 = 0;
/// First byte of a record whose entry goes on in the next one.
pub(super) const GOES_ON: u8 = 1;

/// One part of the state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Entry<'a> {
    /// Comes first.
    Summary(Summary),
    Register {
        key: Cow<'a, str>,
        value: Cow<'a, Value>,
    },
    /// The next values of a list.
    List {
        key: Cow<'a, str>,
        values: Vec<Cow<'a, Value>>,
    },
    /// The next values of a set, by their JSON texts.
    Set {
        key: Cow<'a, str>,
        values: Vec<Cow<'a, Value>>,
    },
    Counter {
        key: Cow<'a, str>,
        value: i64,
    },
    Session {
        client: Cow<'a, str>,
        last_request: u64,
        fingerprint: u64,
        offset: Offset,
        used: Offset,
        outcome: Cow<'a, Outcome>,
    },
}

/// What is in a snapshot as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Summary {
    pub(super) version: u32,
    pub(super) register_count: u64,
    pub(super) list_count: u64,
    pub(super) set_count: u64,
    pub(super) counter_count: u64,
    pub(super) session_count: u64,
    pub(super) digest: u64,
}

impl Summary {
    pub(super) fn of(machine: &Machine) -> Self {
        let objects = &machine.objects;
        Self {
            version: VERSION,
            register_count: objects.registers().len() as u64,
            list_count: objects.lists().len() as u64,
            set_count: objects.sets().len() as u64,
            counter_count: objects.counters().len() as u64,
            session_count: machine.sessions.by_client().len() as u64,
            digest: machine.digest(),
        }
    }
}

impl Entry<'_> {
    /// Its records, in order.
    pub(super) fn records(&self) -> Vec<Vec<u8>> {
        let mut whole = vec![ENDS];
        serde_json::to_writer(&mut whole, self)
            .expect("an entry of strings, numbers and JSON values always encodes");
        if whole.len() <= MAX_SNAPSHOT_RECORD_BYTES {
            return vec![whole];
        }
        let pieces = whole[1..].chunks(MAX_SNAPSHOT_RECORD_BYTES - 1);
        let last = pieces.len() - 1;
        let marked = pieces.enumerate().map(|(at, piece)| {
            let mut record = Vec::with_capacity(1 + piece.len());
            record.push(if at == last { ENDS } else { GOES_ON });
            record.extend_from_slice(piece);
            record
        });
        marked.collect()
    }
}
