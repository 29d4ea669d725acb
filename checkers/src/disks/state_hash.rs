//! Owns the hash by which nodes compare states, worked out anew from the entries of a snapshot.
//! Never shares code with the node, and never takes over a hash that stands in the snapshot.
//!
//! FNV-1a (64 bits) over every part, spread by the finalizer of MurmurHash3; what has no order is added up.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fold::entries;

/// The hash of the state that the records of a snapshot hold, as traces write it; `None` where they hold none.
pub(super) fn of_snapshot<'a>(records: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut sums = Sums::default();
    for entry in entries(records) {
        sums.add(&entry.ok()?)?;
    }
    Some(format!("{:016x}", sums.finish()))
}

#[derive(Default)]
struct Sums {
    objects: u64,
    sessions: u64,
    /// By key: what its values so far hash to.
    lists: BTreeMap<String, u64>,
    sets: BTreeMap<String, u64>,
}

/// Numbers of the kinds of objects.
const REGISTER: u64 = 1;
const LIST: u64 = 2;
const SET: u64 = 3;
const COUNTER: u64 = 4;

impl Sums {
    /// Adds an entry, which is JSON; `None` if it is none of a state.
    fn add(&mut self, entry: &[u8]) -> Option<()> {
        let read: Value = serde_json::from_slice(entry).ok()?;
        let (kind, it) = read.as_object()?.iter().next()?;
        match kind.as_str() {
            "summary" => {}
            "register" => {
                let content = Hash::new().json(&it["value"].to_string()).end();
                self.object(REGISTER, it["key"].as_str()?, content);
            }
            "counter" => {
                let value = it["value"].as_i64()?;
                self.object(COUNTER, it["key"].as_str()?, spread(value as u64));
            }
            "list" => {
                let hash = self
                    .lists
                    .entry(it["key"].as_str()?.to_owned())
                    .or_default();
                for value in it["values"].as_array()? {
                    *hash = Hash::new().number(*hash).json(&value.to_string()).end();
                }
            }
            "set" => {
                let hash = self.sets.entry(it["key"].as_str()?.to_owned()).or_default();
                for value in it["values"].as_array()? {
                    let text = value.to_string();
                    *hash = hash.wrapping_add(Hash::new().bytes(text.as_bytes()).end());
                }
            }
            "session" => self.sessions = self.sessions.wrapping_add(session(entry, it)?),
            _ => return None,
        }
        Some(())
    }

    fn object(&mut self, kind: u64, key: &str, content: u64) {
        let hash = Hash::new().number(kind).bytes(key.as_bytes());
        self.objects = self.objects.wrapping_add(hash.number(content).end());
    }

    fn finish(mut self) -> u64 {
        for (key, content) in std::mem::take(&mut self.lists) {
            self.object(LIST, &key, content);
        }
        for (key, content) in std::mem::take(&mut self.sets) {
            self.object(SET, &key, content);
        }
        spread(self.objects ^ spread(self.sessions))
    }
}

/// What a session adds. The outcome counts as it is written: it comes last in its entry, and in no text
/// before it can quotes stand without a backslash.
fn session(entry: &[u8], it: &Value) -> Option<u64> {
    let text = std::str::from_utf8(entry).ok()?;
    let (_, rest) = text.split_once(",\"outcome\":")?;
    let outcome = rest.strip_suffix("}}")?;
    let told = Hash::new()
        .bytes(it["client"].as_str()?.as_bytes())
        .number(it["last_request"].as_u64()?)
        .number(it["fingerprint"].as_u64()?)
        .number(it["offset"].as_i64()? as u64)
        .json(outcome)
        .end();
    Some(spread(told ^ spread(it["used"].as_i64()? as u64 + 1)))
}

/// FNV-1a with 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Hash(u64);

impl Hash {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    fn number(self, number: u64) -> Self {
        self.raw(&number.to_be_bytes())
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.raw(bytes).number(bytes.len() as u64)
    }

    pub(super) fn json(self, text: &str) -> Self {
        self.raw(text.as_bytes()).number(0)
    }

    pub(super) fn end(self) -> u64 {
        spread(self.0)
    }
}

fn spread(mut number: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        number = (number ^ number >> 33).wrapping_mul(factor);
    }
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash_of(entries: &[Value]) -> Option<String> {
        let records: Vec<Vec<u8>> = entries
            .iter()
            .map(|entry| [&[0], entry.to_string().as_bytes()].concat())
            .collect();
        of_snapshot(records.iter().map(Vec::as_slice))
    }

    #[test]
    fn the_functions_are_the_published_ones() {
        assert_eq!(Hash::new().raw(b"foobar").0, 0x8594_4171_f739_67e8);
        assert_eq!(spread(1), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn every_part_of_a_state_counts_and_its_summary_does_not() {
        let session = r#"{"session":{"client":"a","last_request":4,"fingerprint":1,"offset":3,"used":3,"outcome":{"done":{"results":[{}]}}}}"#;
        let session = |change: (&str, &str)| -> Vec<u8> {
            let text = session.replace(change.0, change.1);
            [&[0], text.as_bytes()].concat()
        };
        let entries = [
            json!({"summary": {"digest": 1}}),
            json!({"register": {"key": "r", "value": {"a": 1}}}),
            json!({"list": {"key": "l", "values": [5, 6]}}),
            json!({"set": {"key": "s", "values": ["x", "y"]}}),
            json!({"counter": {"key": "c", "value": 3}}),
        ];
        let whole = hash_of(&entries).unwrap();
        assert_eq!(hash_of(&entries[1..]).unwrap(), whole);
        for left_out in 1..entries.len() {
            let mut fewer = entries.to_vec();
            fewer.remove(left_out);
            assert_ne!(hash_of(&fewer).unwrap(), whole, "{left_out}");
        }
        let pieces = [
            json!({"list": {"key": "l", "values": [5]}}),
            json!({"list": {"key": "l", "values": [6]}}),
        ];
        assert_eq!(hash_of(&pieces), hash_of(&entries[2..3]));
        let other_order = [json!({"list": {"key": "l", "values": [6, 5]}})];
        assert_ne!(hash_of(&other_order), hash_of(&entries[2..3]));
        let of_session = |change| of_snapshot(std::iter::once(&session(change)[..])).unwrap();
        let as_it_is = of_session(("", ""));
        for change in [
            ("\"a\"", "\"b\""),
            (":4", ":5"),
            ("used\":3", "used\":4"),
            ("{}", ""),
        ] {
            assert_ne!(of_session(change), as_it_is, "{change:?}");
        }
        assert_eq!(hash_of(&[json!({"odd": {}})]), None);
    }
}
