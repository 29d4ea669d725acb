//! Owns `meta.properties`: which replica of which cluster a data directory belongs to.
//! Never changes what it says; a directory without an id of its own may be given one later.
//!
//! Version 1 has no directory id, version 2 has one (Kafka's `directory.id`, KIP-853). Version 3, which
//! formatting writes, also says that the voters of the cluster are in its log: a replica of such a
//! cluster that was given voters of its own could begin a second one (KAFKA-19489).

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
const VERSION: u32 = 3;
const VOTERS_IN_LOG: &str = "voters=log\n";

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
    let Identity {
        cluster_id,
        node_id: NodeId(node_id),
    } = &meta.identity;
    let lines = format!("cluster.id={cluster_id}\nnode.id={node_id}\n");
    let Some(directory_id) = meta.directory_id else {
        return format!("version={VERSION_WITHOUT_DIRECTORY}\n{lines}");
    };
    let lines = format!("{lines}directory.id={directory_id}\n");
    match meta.voters_from {
        VotersFrom::Configuration => format!("version={VERSION_OF_CONFIGURED_VOTERS}\n{lines}"),
        VotersFrom::Log => format!("version={VERSION}\n{lines}{VOTERS_IN_LOG}"),
    }
}

fn decode(bytes: &[u8]) -> Result<Meta, OpenError> {
    let damaged = |found: String| OpenError::Damaged {
        file: FILE.to_owned(),
        position_bytes: 0,
        expected: "the lines version=, cluster.id=, node.id=, (from version 2 on) directory.id= \
                   and (in version 3) voters=log, in this order"
            .to_owned(),
        found,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
    let unlike = || damaged(format!("{text:?}"));
    let mut lines = text.lines();
    let mut value = |key: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(key));
        line.ok_or_else(unlike)
    };
    let version = value("version=")?;
    let version = version.parse::<u32>().map_err(|_| unlike())?;
    if !(VERSION_WITHOUT_DIRECTORY..=VERSION).contains(&version) {
        return Err(OpenError::Version {
            file: FILE,
            field: "version",
            found: version.to_string(),
            known: VERSION,
        });
    }
    let cluster_id = value("cluster.id=")?.to_owned();
    let node_id = value("node.id=")?.parse().map_err(|_| unlike())?;
    let directory_id = if version > VERSION_WITHOUT_DIRECTORY {
        let text = value("directory.id=")?;
        Some(text.parse().map_err(|_| unlike())?)
    } else {
        None
    };
    let meta = Meta {
        identity: Identity {
            cluster_id,
            node_id: NodeId(node_id),
        },
        directory_id,
        voters_from: if version == VERSION {
            VotersFrom::Log
        } else {
            VotersFrom::Configuration
        },
    };
    // Which also finds what follows, or is missing.
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

    fn metas() -> [Meta; 3] {
        let directory_id = Some(DirectoryId(7 << 100));
        [
            (None, VotersFrom::Configuration),
            (directory_id, VotersFrom::Configuration),
            (directory_id, VotersFrom::Log),
        ]
        .map(|(directory_id, voters_from)| Meta {
            identity: identity(),
            directory_id,
            voters_from,
        })
    }

    #[test]
    fn what_is_known_comes_back_in_every_version() {
        for meta in metas() {
            assert_eq!(decode(encode(&meta).as_bytes()).unwrap(), meta);
        }
    }

    #[test]
    fn no_flipped_bit_yields_the_same_identity() {
        for meta in metas() {
            let bytes = encode(&meta).into_bytes();
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    decode(&damaged).ok() != Some(meta.clone()),
                    "bit {bit} went unnoticed"
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
            let text = format!("version=4{}", &text["version=1".len()..]);
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
