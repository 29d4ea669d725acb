//! Owns the comparison of one disk with what its node said, and of snapshots between disks.
//! Never excuses a difference that a crash cannot explain.

use std::collections::BTreeMap;

use results::disk_image::{DiskImage, StoredBatch, StoredQuorumState};
use results::verdict::PropertyResult;
use serde_json::{Value, json};

use super::claims::Claims;
use crate::epoch_history::log::{Batch, batch_json};
use crate::epoch_history::property::Property;
use crate::whom;

const SOURCE: &str = "a node must hold on its disk what it says it holds (KIP-595, durability)";

/// All comparisons of all nodes so far.
#[derive(Debug)]
pub(super) struct Comparison {
    durable: Property,
    unreported: Property,
    quorum_state: Property,
    snapshot: Property,
    log_start: Property,
    same_content: Property,
    directory: Property,
    same_as_log: Property,
    hash: Property,
    /// Snapshots that no log on any disk leads up to.
    pub(super) unfolded_count: u64,
    /// By end offset and epoch: whose disk held such a snapshot first, and the checksum of its records.
    contents: BTreeMap<(i64, i32), (String, u32)>,
}

impl Default for Comparison {
    fn default() -> Self {
        let property = |id, title| Property::new(id, title, SOURCE);
        Self {
            durable: property("D1", "batches reported as durable are on the disk"),
            unreported: property("D2", "batches on the disk are those that were reported"),
            quorum_state: property("D3", "epoch, leader and vote on the disk were reported"),
            snapshot: property(
                "D4",
                "the newest reported snapshot is on the disk, and whole",
            ),
            log_start: property("D5", "the log starts on the disk where it was reported to"),
            same_content: Property::new(
                "D6",
                "snapshots with the same name hold the same on all disks",
                "KIP-630",
            ),
            directory: Property::new(
                "D7",
                "the directory is that of the replica that reported",
                "KIP-853",
            ),
            same_as_log: Property::new(
                "D8",
                "a snapshot holds what the commands of the log before its end add up to",
                "KIP-630",
            ),
            hash: Property::new(
                "D9",
                "the hash that is told of a snapshot is that of the state in it",
                "KIP-630; equal states have equal hashes on all nodes",
            ),
            unfolded_count: 0,
            contents: BTreeMap::new(),
        }
    }
}

/// One node in a comparison.
#[derive(Clone, Copy)]
struct Side<'a> {
    node: &'a str,
    claims: &'a Claims,
    image: &'a DiskImage,
}

impl Comparison {
    pub(super) fn compare(&mut self, node: &str, claims: &Claims, image: &DiskImage) {
        let side = Side {
            node,
            claims,
            image,
        };
        self.directory(side);
        self.durable(side);
        if image.is_settled {
            self.unreported(side);
        }
        self.quorum_state(side);
        self.snapshot(side);
        self.log_start(side);
        self.same_content(side);
        self.hash(side);
    }

    /// Compares every snapshot with what logs, on whatever disk, add up to at its end. A log with another epoch
    /// there has other records, and says nothing about it.
    pub(super) fn compare_folds(&mut self, disks: &[(&str, &DiskImage)]) {
        for (node, image) in disks {
            for snapshot in &image.snapshots {
                let Some(state_crc) = snapshot.state_crc else {
                    self.unfolded_count += 1;
                    continue;
                };
                let folds = disks.iter().flat_map(|(other, image)| {
                    let folds = image.folded.iter();
                    folds.map(move |fold| (*other, fold))
                });
                let name = (snapshot.end_offset, snapshot.last_epoch);
                let mut is_checked = false;
                for (other, fold) in folds {
                    if (fold.end_offset, fold.last_epoch) != name {
                        continue;
                    }
                    is_checked = true;
                    self.same_as_log.checked += 1;
                    if fold.state_crc != state_crc {
                        let what = format!(
                            "{node}: its snapshot that ends at {} of epoch {} holds another state than the log of \
                             {other} adds up to there",
                            name.0, name.1
                        );
                        self.same_as_log.violated(0, || {
                            let found = json!({"node": other, "folded": fold});
                            (what, json!({"node": node, "snapshot": snapshot}), found)
                        });
                    }
                }
                self.unfolded_count += u64::from(!is_checked);
            }
        }
    }

    pub(super) fn finish(self, lost: Option<&str>) -> BTreeMap<String, PropertyResult> {
        let properties = [
            self.durable,
            self.unreported,
            self.quorum_state,
            self.snapshot,
            self.log_start,
            self.same_content,
            self.directory,
            self.same_as_log,
            self.hash,
        ];
        super::finished(properties, lost).collect()
    }

    fn directory(&mut self, side: Side<'_>) {
        let Side {
            node,
            claims,
            image,
        } = side;
        self.directory.checked += 1;
        let number = image.node_id.map(|id| format!("n{id}"));
        let is_another = claims.directory_id.is_some() && claims.directory_id != image.directory_id;
        if number.as_deref() != Some(node) || is_another {
            self.directory.violated(claims.time, || {
                side.told(
                    "the directory is that of another replica".into(),
                    json!({"node": node, "directory_id": claims.directory_id}),
                    json!({"node": number, "directory_id": image.directory_id}),
                )
            });
        }
    }

    /// A node that ended in the middle of something may have cut off what is not committed without having
    /// been able to say so.
    fn durable(&mut self, side: Side<'_>) {
        let Side { claims, image, .. } = side;
        let below = if image.is_settled {
            claims.durable_end
        } else {
            claims.durable_end.min(claims.committed_end)
        };
        let from = claims.log.start().max(image.log_start);
        if from >= below {
            return;
        }
        self.durable.checked += 1;
        if image.log_end() < below {
            let said =
                json!({"durable_end": claims.durable_end, "committed_end": claims.committed_end});
            let found = json!({"log_end": image.log_end()});
            let what = format!(
                "everything below {below} was reported as durable, but the log on the disk ends at {}",
                image.log_end()
            );
            return self
                .durable
                .violated(claims.time, || side.told(what, said, found));
        }
        let mut stored = image.batches.iter().peekable();
        let told = claims.log.range(from, below);
        for claimed in told.filter(|batch| batch.identity.is_some() && batch.last_offset < below) {
            while stored
                .next_if(|it| it.base_offset < claimed.base_offset)
                .is_some()
            {}
            self.durable.checked += 1;
            let found = stored.peek().copied();
            if !found.is_some_and(|found| is_same(&claimed, found)) {
                let what = format!(
                    "the batch with base offset {} was reported as durable, and another one is on the disk",
                    claimed.base_offset
                );
                return self.durable.violated(claims.time, || {
                    side.told(what, batch_json(&claimed), json!(found))
                });
            }
        }
    }

    fn unreported(&mut self, side: Side<'_>) {
        let Side { claims, image, .. } = side;
        let start = claims.log.start();
        for stored in image.batches.iter().filter(|it| it.base_offset >= start) {
            self.unreported.checked += 1;
            let claimed = claims.log.at(stored.base_offset);
            let is_known = match claimed {
                Some(batch) => batch.identity.is_none() || is_same(&batch, stored),
                None => false,
            };
            if !is_known {
                let what = format!(
                    "the disk holds a batch with base offset {} of epoch {} that was never reported",
                    stored.base_offset, stored.epoch
                );
                let said = claimed.as_ref().map_or(Value::Null, batch_json);
                return self
                    .unreported
                    .violated(claims.time, || side.told(what, said, json!(stored)));
            }
        }
    }

    fn quorum_state(&mut self, side: Side<'_>) {
        let Side {
            node,
            claims,
            image,
        } = side;
        let Some(said) = &claims.quorum_state else {
            return;
        };
        self.quorum_state.checked += 1;
        let found = image.quorum_state.as_ref();
        let problem = match found {
            None => Some("epoch, leader and vote are not on the disk".to_owned()),
            Some(found) => difference(node, said, found, image.is_settled),
        };
        if let Some(problem) = problem {
            self.quorum_state.violated(claims.time, || {
                side.told(problem, json!(said), json!(found))
            });
        }
    }

    fn snapshot(&mut self, side: Side<'_>) {
        let Side { claims, image, .. } = side;
        let newest = claims.snapshots.last_key_value();
        let Some((end_offset, (last_epoch, digest))) = newest else {
            return;
        };
        self.snapshot.checked += 1;
        let mut stored = image.snapshots.iter();
        let found = stored.find(|it| (it.end_offset, it.last_epoch) == (*end_offset, *last_epoch));
        let has_newer = || image.snapshots.iter().any(|it| it.end_offset > *end_offset);
        let problem = match found {
            None if !image.is_settled && has_newer() => None,
            None => Some("is not on the disk as a whole"),
            Some(found) => {
                let differs = digest.is_some() && found.digest != *digest;
                differs.then_some("holds another state on the disk than was reported")
            }
        };
        if let Some(problem) = problem {
            let what = format!("the snapshot that ends at {end_offset} {problem}");
            let said =
                json!({"end_offset": end_offset, "last_epoch": last_epoch, "digest": digest});
            self.snapshot.violated(claims.time, || {
                side.told(what, said, json!(image.snapshots))
            });
        }
    }

    /// What a snapshot says of itself, and what its node said of it, against what its records hash to.
    fn hash(&mut self, side: Side<'_>) {
        let Side { claims, image, .. } = side;
        for snapshot in &image.snapshots {
            let Some(computed) = &snapshot.computed_digest else {
                continue;
            };
            let reported = claims.snapshots.get(&snapshot.end_offset);
            let reported = reported.filter(|(epoch, _)| *epoch == snapshot.last_epoch);
            let reported = reported.and_then(|(_, digest)| digest.as_ref());
            for (who, said) in [("says", snapshot.digest.as_ref()), ("was said", reported)] {
                let Some(said) = said else { continue };
                self.hash.checked += 1;
                if said != computed {
                    let what = format!(
                        "the snapshot that ends at {} {who} to hold a state with the hash {said}, and its state has \
                         {computed}",
                        snapshot.end_offset
                    );
                    return self.hash.violated(claims.time, || {
                        side.told(what, json!({ "digest": said }), json!(snapshot))
                    });
                }
            }
        }
    }

    fn log_start(&mut self, side: Side<'_>) {
        let Side { claims, image, .. } = side;
        let (said, found) = (claims.log.start(), image.log_start);
        if said == 0 && found == 0 {
            return;
        }
        self.log_start.checked += 1;
        let is_as_said = found == said || (!image.is_settled && found > said);
        let is_covered = image.snapshots.iter().any(|it| it.end_offset >= found);
        let problem = match (is_as_said, is_covered) {
            (false, _) => format!("the log was reported to start at {said}, and starts at {found}"),
            (true, false) => {
                format!("the log starts at {found}, and no snapshot covers what was before")
            }
            (true, true) => return,
        };
        self.log_start.violated(claims.time, || {
            let found = json!({"log_start": found, "snapshots": image.snapshots});
            side.told(problem, json!({"log_start": said}), found)
        });
    }

    fn same_content(&mut self, side: Side<'_>) {
        for snapshot in &side.image.snapshots {
            let name = (snapshot.end_offset, snapshot.last_epoch);
            let Some((other, crc)) = self.contents.get(&name) else {
                let content = (side.node.to_owned(), snapshot.content_crc);
                self.contents.insert(name, content);
                continue;
            };
            self.same_content.checked += 1;
            if *crc != snapshot.content_crc {
                let what = format!(
                    "its snapshot that ends at {} of epoch {} holds something else than that of {other}",
                    name.0, name.1
                );
                let contradicts = json!({"node": other, "content_crc": crc});
                self.same_content.violated(side.claims.time, || {
                    side.told(what, json!(snapshot), contradicts)
                });
            }
        }
    }
}

impl Side<'_> {
    /// A violation: what is wrong, what was said, what was found.
    fn told(&self, what: String, said: Value, found: Value) -> (String, Value, Value) {
        let mut summary = format!("{}: {what}", self.node);
        if let Some(flaw) = self.image.flaws.first() {
            summary.push_str(&format!(" ({flaw})"));
        }
        let found = json!({"found": found, "flaws": self.image.flaws});
        (summary, json!({"node": self.node, "said": said}), found)
    }
}

fn is_same(claimed: &Batch, stored: &StoredBatch) -> bool {
    let identity = claimed
        .identity
        .map(|identity| (identity.epoch, identity.crc));
    (claimed.base_offset, claimed.last_offset) == (stored.base_offset, stored.last_offset)
        && identity == Some((stored.epoch, stored.crc))
}

/// How a quorum-state file contradicts what was said. A node that ended in the middle of something may have
/// written more than it said, never less.
fn difference(
    node: &str,
    said: &StoredQuorumState,
    found: &StoredQuorumState,
    is_settled: bool,
) -> Option<String> {
    if found.epoch < said.epoch || (is_settled && found.epoch > said.epoch) {
        return Some(format!(
            "epoch {} was reported as durable, and {} is on the disk",
            said.epoch, found.epoch
        ));
    }
    if found.epoch > said.epoch {
        return None;
    }
    let differs = |said: &Option<String>, found: &Option<String>| match said {
        Some(_) => said != found,
        None => is_settled && found.is_some(),
    };
    if differs(&said.leader, &found.leader) {
        return Some(format!(
            "the reported leader of epoch {} is {}, and {} is on the disk",
            said.epoch,
            whom(said.leader.as_deref()),
            whom(found.leader.as_deref())
        ));
    }
    // Whoever leads has voted for itself, whether that is written down or not.
    let leads = found.leader.as_deref() == Some(node);
    let implied = |vote: &Option<String>| match vote {
        None if leads => Some(node.to_owned()),
        vote => vote.clone(),
    };
    differs(&implied(&said.voted_for), &implied(&found.voted_for)).then(|| {
        format!(
            "the reported vote of epoch {} is {}, and {} is on the disk",
            said.epoch,
            whom(said.voted_for.as_deref()),
            whom(found.voted_for.as_deref())
        )
    })
}
