//! Owns `meta.properties`: which replica of which cluster a data directory belongs to.
//! Never changes what it says; a directory without an id of its own may be given one later.
//!
//! Version 1 has no directory id, version 2 has one (Kafka's `directory.id`, KIP-853). Version 3 also says that the voters of the cluster are in its log: a replica of such a
//! cluster that was given voters of its own could begin a second one (KAFKA-19489). Version 4 says each of these by a
//! line of its own, and that there is a file that tells where the log ends. Version 5 ends with a checksum over the lines
//! before it: a single bit that changes in a directory id makes a voter a stranger to its own cluster.

use std::fmt;

use crate::ids::{DirectoryId, NodeId, ReplicaKey};
use crate::storage::disk::{Disk, read_whole};
use crate::storage::error::{OpenError, StorageError, read_error};
use crate::storage::quorum_state::replace;

/// Name of the file.
pub const FILE: &str = "meta.properties";
/// What the file is called until it is complete.
pub const TEMPORARY_FILE: &str = "meta.properties.tmp";

const VERSION_WITHOUT_DIRECTORY: u32 = 1;
const VERSION_OF_CONFIGURED_VOTERS: u32 = 2;
const VERSION_OF_VOTERS_IN_LOG: u32 = 3;
const VERSION_OF_LOG_END: u32 = 4;
const VERSION: u32 = 5;
const VOTERS_IN_LOG: &str = "voters=log";
const LOG_END_TOLD: &str = "log.end=told";
const CHECKSUM: &str = "checksum=";

/// Where a replica has the voters of its cluster from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VotersFrom {
    /// From what it is started with (kraft.version 0).
    Configuration,
    /// From its log, or the leader's (kraft.version 1, KIP-853).
    Log,
}

/// Whose data directory it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: String,
    /// The replica in it.
    pub node_id: NodeId,
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "node {} of cluster {:?}",
            self.node_id.0, self.cluster_id
        )
    }
}

impl Identity {
    /// Refuses a cluster id that would not come back from the file as it was.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let id = &self.cluster_id;
        if id.is_empty() || id.trim() != id || id.contains(char::is_control) {
            return Err(OpenError::ClusterId {
                cluster_id: id.clone(),
            });
        }
        Ok(())
    }
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) identity: Identity,
    pub(crate) directory_id: Option<DirectoryId>,
    /// From its log only if it has an id.
    pub(crate) voters_from: VotersFrom,
    /// Whether there is a `log-end` file. Directories of earlier versions may have none.
    pub(crate) tells_log_end: bool,
    /// Whether the file has a checksum; only if it tells of `log-end`. Those of earlier versions have none.
    pub(crate) has_checksum: bool,
}

/// Reads the file; `None` where there is none.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<Meta>, OpenError> {
    let bytes = read_whole(disk, FILE).map_err(read_error("read", FILE))?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

/// Which replica the content of the file names.
///
/// # Errors
/// If it is damaged, or of another version.
pub fn replica_of(bytes: &[u8]) -> Result<ReplicaKey, OpenError> {
    let meta = decode(bytes)?;
    Ok(ReplicaKey {
        id: meta.identity.node_id,
        directory_id: meta.directory_id,
    })
}

/// Where the replica that the content of the file names has its voters from.
///
/// # Errors
/// If it is damaged, or of another version.
pub fn voters_from(bytes: &[u8]) -> Result<VotersFrom, OpenError> {
    Ok(decode(bytes)?.voters_from)
}

/// Writes the file. Durable on return.
pub(crate) fn write<D: Disk>(disk: &mut D, meta: &Meta) -> Result<(), StorageError> {
    replace(disk, FILE, TEMPORARY_FILE, encode(meta).as_bytes())
}

fn encode(meta: &Meta) -> String {
    let version = match (meta.tells_log_end, meta.directory_id, meta.voters_from) {
        (true, _, _) if meta.has_checksum => VERSION,
        (true, _, _) => VERSION_OF_LOG_END,
        (false, None, _) => VERSION_WITHOUT_DIRECTORY,
        (false, Some(_), VotersFrom::Configuration) => VERSION_OF_CONFIGURED_VOTERS,
        (false, Some(_), VotersFrom::Log) => VERSION_OF_VOTERS_IN_LOG,
    };
    let Identity {
        cluster_id,
        node_id: NodeId(node_id),
    } = &meta.identity;
    let mut lines = format!("version={version}\ncluster.id={cluster_id}\nnode.id={node_id}\n");
    if let Some(directory_id) = meta.directory_id {
        lines += &format!("directory.id={directory_id}\n");
        if meta.voters_from == VotersFrom::Log {
            lines += &format!("{VOTERS_IN_LOG}\n");
        }
    }
    if meta.tells_log_end {
        lines += &format!("{LOG_END_TOLD}\n");
    }
    if meta.has_checksum {
        lines += &format!("{CHECKSUM}{:08x}\n", crc32c::crc32c(lines.as_bytes()));
    }
    lines
}

fn decode(bytes: &[u8]) -> Result<Meta, OpenError> {
    let damaged = |found: String| {
        OpenError::Damaged {
        file: FILE.to_owned(),
        position_bytes: 0,
        expected: "the lines version=, cluster.id=, node.id=, directory.id= (always in versions 2 and 3), voters=log \
                   (always in version 3), log.end=told (always from version 4 on) and checksum= (a CRC-32C of the lines \
                   before it, always in version 5), in this order"
            .to_owned(),
        found,
    }
    };
    let text = std::str::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
    let unlike = || damaged(format!("{text:?}"));
    let mut lines = text.lines().peekable();
    let mut value = |key: &str| {
        lines
            .next_if(|line| line.starts_with(key))?
            .strip_prefix(key)
    };
    let version = value("version=").ok_or_else(unlike)?;
    let version = version.parse::<u32>().map_err(|_| unlike())?;
    if !(VERSION_WITHOUT_DIRECTORY..=VERSION).contains(&version) {
        return Err(OpenError::Version {
            file: FILE,
            field: "version",
            found: version.to_string(),
            known: VERSION,
        });
    }
    let cluster_id = value("cluster.id=").ok_or_else(unlike)?.to_owned();
    let node_id = value("node.id=").and_then(|text| text.parse().ok());
    let directory_id = value("directory.id=").map(str::parse).transpose();
    let meta = Meta {
        identity: Identity {
            cluster_id,
            node_id: NodeId(node_id.ok_or_else(unlike)?),
        },
        directory_id: directory_id.map_err(|_| unlike())?,
        voters_from: value(VOTERS_IN_LOG).map_or(VotersFrom::Configuration, |_| VotersFrom::Log),
        tells_log_end: value(LOG_END_TOLD).is_some(),
        has_checksum: value(CHECKSUM).is_some(),
    };
    // Which also finds a wrong checksum, and what follows, is missing, or does not belong to the version.
    if encode(&meta) == text {
        Ok(meta)
    } else {
        Err(unlike())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            cluster_id: "a = b".to_owned(),
            node_id: NodeId(2),
        }
    }

    /// One of each version before the present one, and all that the present one can say.
    fn metas() -> [Meta; 9] {
        let directory_id = Some(DirectoryId(7 << 100));
        [
            (None, VotersFrom::Configuration, 1),
            (directory_id, VotersFrom::Configuration, 2),
            (directory_id, VotersFrom::Log, 3),
            (None, VotersFrom::Configuration, 4),
            (directory_id, VotersFrom::Configuration, 4),
            (directory_id, VotersFrom::Log, 4),
            (None, VotersFrom::Configuration, 5),
            (directory_id, VotersFrom::Configuration, 5),
            (directory_id, VotersFrom::Log, 5),
        ]
        .map(|(directory_id, voters_from, version)| Meta {
            identity: identity(),
            directory_id,
            voters_from,
            tells_log_end: version >= VERSION_OF_LOG_END,
            has_checksum: version == VERSION,
        })
    }

    #[test]
    fn what_is_known_comes_back_in_every_version() {
        for (meta, version) in metas().into_iter().zip([1, 2, 3, 4, 4, 4, 5, 5, 5]) {
            let text = encode(&meta);
            assert!(text.starts_with(&format!("version={version}\n")), "{text}");
            assert_eq!(decode(text.as_bytes()).unwrap(), meta);
        }
    }

    #[test]
    fn no_flipped_bit_yields_the_same_identity_and_with_a_checksum_none_any() {
        for meta in metas() {
            let bytes = encode(&meta).into_bytes();
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let read = decode(&damaged).ok();
                assert!(read != Some(meta.clone()), "bit {bit} went unnoticed");
                assert!(
                    read.is_none() || !meta.has_checksum,
                    "bit {bit} made it {read:?}"
                );
            }
            for length in 0..bytes.len() {
                assert!(decode(&bytes[..length]).is_err(), "length {length}");
            }
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        for meta in metas() {
            let text = encode(&meta);
            let text = format!("version=6{}", &text["version=1".len()..]);
            let refused = decode(text.as_bytes()).unwrap_err();
            assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
        }
    }

    #[test]
    fn cluster_ids_that_would_not_come_back_are_refused() {
        for cluster_id in ["", " a", "a\n", "a\nnode.id=7"] {
            let identity = Identity {
                cluster_id: cluster_id.to_owned(),
                node_id: NodeId(1),
            };
            assert!(identity.check().is_err(), "{cluster_id:?}");
        }
        assert!(identity().check().is_ok());
    }
}
