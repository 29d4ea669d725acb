//! Owns the seal of a recording: what its files held when the run was over.
//! Never withstands whoever changes the seal as well: it tells what was lost, cut off or changed since.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a file held. Of a packed one, its content counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the content.
    pub crc32c: u32,
}

impl Sealed {
    /// What a file with this content holds.
    pub fn of(content: &[u8]) -> Self {
        Self {
            bytes: content.len() as u64,
            crc32c: crc32c::crc32c(content),
        }
    }
}

/// By name within the folder of the run: what the file held.
pub type Seal = BTreeMap<String, Sealed>;

/// What is said of a run that was over and has no seal. Earlier builds sealed nothing, but neither does whoever changes
/// a recording and takes its seal away.
pub const UNSEALED: &str = "the recording was not sealed when the run ended: an earlier build recorded it, or its seal \
                            was taken away; so nobody can say whether it is what was recorded";

/// How files differ from a seal, for people. Without a seal nothing is known to differ.
pub(crate) fn differences(seal: Option<&Seal>, found: &Seal) -> Vec<String> {
    let Some(seal) = seal else {
        return Vec::new();
    };
    let mut told = Vec::new();
    for (name, was) in seal {
        match found.get(name) {
            None => told.push(format!("{name} is gone")),
            Some(is) if is.bytes != was.bytes => told.push(format!(
                "{name} had {} bytes and has {}",
                was.bytes, is.bytes
            )),
            Some(is) if is.crc32c != was.crc32c => told.push(format!("{name} was changed")),
            Some(_) => {}
        }
    }
    let added = found.keys().filter(|name| !seal.contains_key(*name));
    told.extend(added.map(|name| format!("{name} was added")));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let files = |contents: &[(&str, &str)]| -> Seal {
            let contents = contents.iter();
            contents
                .map(|(name, content)| ((*name).to_owned(), Sealed::of(content.as_bytes())))
                .collect()
        };
        let seal = files(&[("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")]);
        assert_eq!(differences(Some(&seal), &seal), Vec::<String>::new());
        let found = files(&[("a", "one"), ("b", "owt"), ("c", "thre"), ("e", "five")]);
        assert_eq!(
            differences(Some(&seal), &found),
            [
                "b was changed",
                "c had 5 bytes and has 4",
                "d is gone",
                "e was added"
            ]
        );
        assert_eq!(differences(None, &found), Vec::<String>::new());
    }
}
