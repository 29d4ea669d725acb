//! Owns `meta.properties`: which replica of which cluster a data directory belongs to.
//! Never changes it after the first start.

use std::fmt;

use crate::ids::NodeId;
use crate::storage::disk::{Disk, read_whole};
use crate::storage::error::{OpenError, read_error};
use crate::storage::quorum_state::replace;

/// Name of the file.
pub const FILE: &str = "meta.properties";
/// What the file is called until it is complete.
pub const TEMPORARY_FILE: &str = "meta.properties.tmp";

const VERSION: u32 = 1;

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

/// Reads the file; `None` where there is none.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<Identity>, OpenError> {
    let bytes = read_whole(disk, FILE).map_err(read_error("read", FILE))?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

/// Writes the file. Durable on return.
pub(crate) fn write<D: Disk>(disk: &mut D, identity: &Identity) -> Result<(), OpenError> {
    Ok(replace(
        disk,
        FILE,
        TEMPORARY_FILE,
        encode(identity).as_bytes(),
    )?)
}

fn encode(identity: &Identity) -> String {
    format!(
        "version={VERSION}\ncluster.id={}\nnode.id={}\n",
        identity.cluster_id, identity.node_id.0
    )
}

fn decode(bytes: &[u8]) -> Result<Identity, OpenError> {
    let damaged = |found: String| OpenError::Damaged {
        file: FILE.to_owned(),
        position_bytes: 0,
        expected: "the lines version=, cluster.id= and node.id=, in this order".to_owned(),
        found,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut lines = text.lines();
    let mut value = |key: &str| {
        lines
            .next()
            .and_then(|line| line.strip_prefix(key))
            .ok_or_else(|| damaged(format!("{text:?}")))
    };
    let version = value("version=")?;
    if version != VERSION.to_string() && version.parse::<u32>().is_ok() {
        return Err(OpenError::Version {
            file: FILE,
            field: "version",
            found: version.to_owned(),
            known: VERSION,
        });
    }
    let cluster_id = value("cluster.id=")?.to_owned();
    let node_id = value("node.id=")?
        .parse()
        .map_err(|_| damaged(format!("{text:?}")))?;
    let identity = Identity {
        cluster_id,
        node_id: NodeId(node_id),
    };
    if encode(&identity) == text {
        Ok(identity)
    } else {
        Err(damaged(format!("{text:?}")))
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

    #[test]
    fn an_identity_comes_back() {
        assert_eq!(decode(encode(&identity()).as_bytes()).unwrap(), identity());
    }

    #[test]
    fn no_flipped_bit_yields_the_same_identity() {
        let bytes = encode(&identity()).into_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode(&damaged).ok() != Some(identity()),
                "bit {bit} went unnoticed"
            );
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let text = encode(&identity()).replace("version=1", "version=2");
        let refused = decode(text.as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
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
