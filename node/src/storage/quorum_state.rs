//! Owns the quorum-state file: epoch, leader and vote, and the configured voters, replaced as one.
//! Never decides what is in it.
//!
//! One JSON line in the shape of Kafka's file (-1 for "none"), plus a checksum over the line without it:
//! the vote is not replicated, so nobody else could tell that it rotted. The data directory of the
//! candidate that got the vote is there where it is known (KIP-853), also in data version 0, where Kafka
//! forgets it and would vote for another replica of the same id.
//!
//! Data version 0 names the voters that were configured (kraft.version 0): a replica that came back among
//! others could be part of a majority that has no member in common with an earlier one. In version 1 the
//! voters are in the log only.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{DirectoryId, Epoch, NodeId, ReplicaKey};
use crate::raft::QuorumState;
use crate::storage::disk::{Disk, read_whole};
use crate::storage::error::{OpenError, StorageError, read_error, write_error};

/// Name of the file.
pub const FILE: &str = "quorum-state";
/// What a file is called until it is complete.
pub const TEMPORARY_FILE: &str = "quorum-state.tmp";

const VERSION_OF_CONFIGURED_VOTERS: u32 = 0;
const DATA_VERSION: u32 = 1;
const NONE: i32 = -1;

/// Voters that were configured; `None` where nobody has noted them, or they are in the log.
pub(crate) type ConfiguredVoters = Option<BTreeSet<NodeId>>;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) state: QuorumState,
    pub(crate) voters: ConfiguredVoters,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// Always empty, as in Kafka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    leader_id: i32,
    leader_epoch: i32,
    voted_id: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    voted_directory_id: Option<DirectoryId>,
    /// Always 0, as in Kafka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    applied_offset: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_voters: Option<Vec<ConfiguredVoter>>,
    #[serde(rename = "data_version")]
    data_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfiguredVoter {
    voter_id: NodeId,
}

/// Replaces the file. Durable on return.
pub(crate) fn write<D: Disk>(
    disk: &mut D,
    state: QuorumState,
    voters: &ConfiguredVoters,
) -> Result<(), StorageError> {
    replace(disk, FILE, TEMPORARY_FILE, encode(state, voters).as_bytes())
}

/// Replaces the file, and leaves it to chance whether that survives a power cut.
pub(crate) fn write_unsynced<D: Disk>(
    disk: &mut D,
    state: QuorumState,
    voters: &ConfiguredVoters,
) -> Result<(), StorageError> {
    disk.write(TEMPORARY_FILE, encode(state, voters).as_bytes())
        .map_err(write_error("write", TEMPORARY_FILE))?;
    disk.rename(TEMPORARY_FILE, FILE)
        .map_err(write_error("replace", FILE))
}

/// Replaces the file twice: a crash in between leaves leader and vote of the new epoch in the old.
pub(crate) fn write_vote_then_epoch<D: Disk>(
    disk: &mut D,
    state: QuorumState,
    voters: &ConfiguredVoters,
) -> Result<(), StorageError> {
    let found = read_whole(disk, FILE).ok().flatten();
    if let Some(Ok(before)) = found.map(|bytes| decode(&bytes)) {
        let half = QuorumState {
            epoch: before.state.epoch,
            ..state
        };
        write(disk, half, voters)?;
    }
    write(disk, state, voters)
}

/// Replaces `file` such that after a crash either the old or the new content is there, never a mix.
pub(crate) fn replace<D: Disk>(
    disk: &mut D,
    file: &str,
    temporary_file: &str,
    bytes: &[u8],
) -> Result<(), StorageError> {
    disk.write(temporary_file, bytes)
        .map_err(write_error("write", temporary_file))?;
    disk.sync(temporary_file)
        .map_err(write_error("sync", temporary_file))?;
    disk.rename(temporary_file, file)
        .map_err(write_error("replace", file))?;
    disk.sync_directory()
        .map_err(write_error("sync the directory for", file))
}

/// Reads the file; `None` where there is none.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<Noted>, OpenError> {
    let bytes = read_whole(disk, FILE).map_err(read_error("read", FILE))?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

fn encode(state: QuorumState, voters: &ConfiguredVoters) -> String {
    let id = |node: Option<NodeId>| node.map_or(NONE, |node| node.0);
    let voters = voters.as_ref().map(|voters| {
        let voters = voters.iter();
        voters
            .map(|&voter_id| ConfiguredVoter { voter_id })
            .collect()
    });
    let is_configured = voters.is_some();
    let mut line = Line {
        cluster_id: is_configured.then(String::new),
        leader_id: id(state.leader),
        leader_epoch: state.epoch.0,
        voted_id: id(state.voted_for.map(|key| key.id)),
        voted_directory_id: state.voted_for.and_then(|key| key.directory_id),
        applied_offset: is_configured.then_some(0),
        current_voters: voters,
        data_version: match is_configured {
            true => VERSION_OF_CONFIGURED_VOTERS,
            false => DATA_VERSION,
        },
        checksum: None,
    };
    let json = |line: &Line| {
        serde_json::to_string(line).expect("a struct of numbers and strings has a JSON form")
    };
    line.checksum = Some(format!("{:08x}", crc32c::crc32c(json(&line).as_bytes())));
    json(&line) + "\n"
}

fn decode(bytes: &[u8]) -> Result<Noted, OpenError> {
    let damaged = |found: String| OpenError::Damaged {
        file: FILE.to_owned(),
        position_bytes: 0,
        expected: "one line of JSON with a matching checksum".to_owned(),
        found,
    };
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let version = &value["data_version"];
    if version.as_u64() > Some(u64::from(DATA_VERSION)) {
        return Err(OpenError::Version {
            file: FILE,
            field: "data_version",
            found: version.to_string(),
            known: DATA_VERSION,
        });
    }
    let line: Line = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    let node = |id: i32| (id != NONE).then_some(NodeId(id));
    let state = QuorumState {
        epoch: Epoch(line.leader_epoch),
        leader: node(line.leader_id),
        voted_for: node(line.voted_id).map(|id| ReplicaKey {
            id,
            directory_id: line.voted_directory_id,
        }),
    };
    let voters = line.current_voters.map(|voters| {
        let voters = voters.into_iter();
        voters.map(|voter| voter.voter_id).collect()
    });
    let numbers_are_valid =
        line.leader_epoch >= 0 && line.leader_id >= NONE && line.voted_id >= NONE;
    // There is one way to write a state, so every other text was not written here.
    if !numbers_are_valid || encode(state, &voters).as_bytes() != bytes {
        let text = String::from_utf8_lossy(bytes);
        return Err(damaged(format!(
            "{:?}, which fails the checksum",
            text.trim_end()
        )));
    }
    Ok(Noted { state, voters })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::tests::notices_all_damage;

    const STATES: [QuorumState; 3] = [
        QuorumState {
            epoch: Epoch(0),
            leader: None,
            voted_for: None,
        },
        QuorumState {
            epoch: Epoch(7),
            leader: Some(NodeId(0)),
            voted_for: Some(ReplicaKey {
                id: NodeId(3),
                directory_id: None,
            }),
        },
        QuorumState {
            epoch: Epoch(7),
            leader: None,
            voted_for: Some(ReplicaKey {
                id: NodeId(3),
                directory_id: Some(DirectoryId(7 << 100)),
            }),
        },
    ];

    /// Every state, without configured voters and with some.
    fn all() -> impl Iterator<Item = Noted> {
        let sets = [None, Some(vec![]), Some(vec![0]), Some(vec![1, 2, 30])];
        let sets = sets.map(|ids| ids.map(|ids| ids.into_iter().map(NodeId).collect()));
        STATES.into_iter().flat_map(move |state| {
            let sets = sets.clone().into_iter();
            sets.map(move |voters| Noted { state, voters })
        })
    }

    fn encoded(noted: &Noted) -> String {
        encode(noted.state, &noted.voters)
    }

    #[test]
    fn the_file_has_kafkas_shape() {
        let line = encode(STATES[0], &None);
        assert!(
            line.starts_with(r#"{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"data_version":1,"#),
            "{line}"
        );
        assert!(line.ends_with("\"}\n"), "{line}");
        let line = encode(STATES[2], &None);
        let start = r#"{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":""#;
        assert!(line.starts_with(start), "{line}");
        let line = encode(STATES[1], &Some([1, 2].map(NodeId).into()));
        let start = r#"{"clusterId":"","leaderId":0,"leaderEpoch":7,"votedId":3,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0,"#;
        assert!(line.starts_with(start), "{line}");
    }

    #[test]
    fn states_come_back() {
        for noted in all() {
            assert_eq!(decode(encoded(&noted).as_bytes()).unwrap(), noted);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        for noted in all() {
            notices_all_damage(encoded(&noted).as_bytes(), decode);
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let line = encode(STATES[1], &None).replace("\"data_version\":1", "\"data_version\":2");
        let refused = decode(line.as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
        assert!(refused.to_string().contains("data_version 2"), "{refused}");
    }
}
