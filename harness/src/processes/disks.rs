//! Owns the faults of disks of a cluster of processes: operations that fail, and data destroyed at rest.
//! Never touches the data directory of a node that runs, except to read it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nemesis::fault::DiskFault;
use nemesis::membership::Member;
use node::ids::DirectoryId;
use results::keyed_random::Stream;
use results::schedule::{damaged_bytes_of, new_directory_id_of};
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::faults::{Active, HELD_LIMIT, effect_map, report};
use super::insistence::{Next, Patience};
use super::membership::Membership;
use crate::damage::{Contents, Damage, DamageDraws, Edit, count_caused, draw};
use crate::world::FaultReport;

impl Cluster {
    /// Lets a disk do something wrong, also after the node was started again. Returns how often the node
    /// had crashed by then.
    ///
    /// # Errors
    /// For people: the node runs and cannot be told.
    async fn fail_disk(&self, id: u64, node: &str, fault: DiskFault) -> Result<usize, String> {
        let (runs, crash_count) = {
            let mut slot = self.slot(node)?.lock().await;
            slot.disk_faults.insert(id, fault);
            (slot.process.is_some(), slot.last_words.len())
        };
        if !runs {
            return Ok(crash_count);
        }
        self.await_reachable(node, HELD_LIMIT).await;
        let mut patience = Patience::new();
        loop {
            let control = self.control(node).await;
            let problem = match &control {
                Ok(control) => match control.fail_disk(id, fault).await {
                    Ok(()) => return Ok(crash_count),
                    Err(error) => format!("the disk of {node} cannot be failed: {error}"),
                },
                Err(problem) => problem.clone(),
            };
            match self.next_try(node, &mut patience, problem).await {
                Ok(Next::Again) if control.is_ok() => {}
                // It has ended meanwhile, and hears of it at its next start.
                Ok(Next::HasEnded) => return Ok(crash_count),
                given_up => {
                    self.slot(node)?.lock().await.disk_faults.remove(&id);
                    if let Ok(control) = control {
                        // It may yet come to what it was asked; then this is what it hears last.
                        let _ = control.heal_disk(id).await;
                    }
                    return Err(match given_up {
                        Err(problem) => problem,
                        Ok(_) => format!("{node} is stopped"),
                    });
                }
            }
        }
    }

    /// Lets a disk work again, as far as this fault goes; returns how many operations it hit, and how often the
    /// node has crashed of it, of the crashes after the first `crash_count`. A process counts what is hit and
    /// takes the count with it, so of one that crashed the operation counts that it crashed of: it ends at the
    /// first that it cannot do without. A node that is stopped goes on some time, and is told then.
    ///
    /// # Errors
    /// For people: the node runs and cannot be told.
    async fn mend_disk(
        &self,
        id: u64,
        node: &str,
        crash_count: usize,
    ) -> Result<(u64, usize), String> {
        let fault = self.slot(node)?.lock().await.disk_faults.remove(&id);
        let mut patience = Patience::new();
        let (live_hit_count, earlier_count) = loop {
            // Who crashes after the answer has counted in it what it crashes of.
            let earlier_count = self.slot(node)?.lock().await.last_words.len();
            let told = match self.control(node).await {
                Ok(control) => {
                    let told = control.heal_disk(id).await;
                    told.map_err(|error| format!("the disk of {node} cannot be mended: {error}"))
                }
                Err(problem) => Err(problem),
            };
            match told {
                Ok(hit_count) => break (hit_count, Some(earlier_count)),
                Err(problem) => match self.next_try(node, &mut patience, problem).await? {
                    Next::Again => {}
                    Next::HasEnded => break (0, None),
                },
            }
        };
        let slot = self.slot(node)?.lock().await;
        let crashes_until = |end: usize| {
            let words = slot.last_words.get(crash_count..end).unwrap_or_default();
            fault.map_or(0, |fault| count_caused(fault, words))
        };
        let all_count = slot.last_words.len();
        let dead_hit_count = crashes_until(earlier_count.unwrap_or(all_count)) as u64;
        Ok((live_hit_count + dead_hit_count, crashes_until(all_count)))
    }

    /// Lets a disk work again, whatever faults it has.
    ///
    /// # Errors
    /// For people: the node runs and cannot be told.
    pub(super) async fn mend_everything(&self, node: &str) -> Result<(), String> {
        let slot = self.slot(node)?.lock().await;
        let ids: Vec<u64> = slot.disk_faults.keys().copied().collect();
        drop(slot);
        for id in ids {
            self.mend_disk(id, node, 0).await?;
        }
        Ok(())
    }

    /// Kills a node and starts it, so that it reads what is on its disk.
    ///
    /// # Errors
    /// For people: it does not run, or does not start although its disk works.
    async fn start_again(&self, node: &str) -> Result<(), String> {
        self.kill(node).await?;
        self.revive(node).await
    }

    /// Starts a node that has ended because of its disk, if nothing keeps it from working now.
    async fn start_if_owed(&self, node: &str) -> Result<(), String> {
        let slot = self.slot(node)?.lock().await;
        let is_due = slot.is_owed && !slot.is_damaged && !slot.has_failing_disk();
        drop(slot);
        if is_due {
            // Another fault may let its disk fail by now.
            self.revive(node).await?;
        }
        Ok(())
    }

    /// Kills a node and destroys something in its data directory.
    ///
    /// # Errors
    /// For people: why not. The node runs, as far as it did before.
    async fn destroy(
        &self,
        node: &str,
        fault: DiskFault,
        draws: &DamageDraws,
    ) -> Result<Damage, String> {
        let unreadable = |error: io::Error| format!("cannot read the data of {node}: {error}");
        // What cannot be damaged is not killed for nothing.
        let told = |why: String| format!("{node}: {why}");
        // Held until the damage is done, so that nobody starts the node meanwhile.
        let mut slot = self.slot(node)?.lock().await;
        let data = slot.settings.folder.join("data");
        let before = contents(&data).map_err(unreadable)?;
        draw(fault.what, fault.files, &before, draws).map_err(told)?;
        self.kill_in(node, &mut slot).await?;
        let destroyed = contents(&data).map_err(unreadable).and_then(|contents| {
            let damage = draw(fault.what, fault.files, &contents, draws).map_err(told)?;
            let applied = damage.edits.iter().try_for_each(|edit| apply(&data, edit));
            applied.map_err(|error| format!("cannot damage the data of {node}: {error}"))?;
            Ok(damage)
        });
        slot.is_damaged |= destroyed.is_ok();
        drop(slot);
        if destroyed.is_err() {
            self.revive(node).await?;
        }
        destroyed
    }

    /// Kills a node and removes its data directory, in whose place the next start makes one with this id.
    /// Returns the id of the one that was removed.
    ///
    /// # Errors
    /// For people: why not.
    async fn wipe(&self, node: &str, new_directory_id: String) -> Result<String, String> {
        // Held until the disk is gone, so that nobody starts the node meanwhile.
        let mut slot = self.slot(node)?.lock().await;
        // A node that is down because of what was destroyed on its disk comes back that way.
        let is_broken = slot.is_damaged && slot.process.is_none();
        if !is_broken {
            self.kill_in(node, &mut slot).await?;
        }
        let data = slot.settings.folder.join("data");
        let formatting = slot.settings.formatting.as_mut();
        let formatting = formatting.ok_or_else(|| format!("{node} has no directory id"))?;
        std::fs::remove_dir_all(&data)
            .map_err(|error| format!("cannot remove the data of {node}: {error}"))?;
        // Who votes stands in the log that it lost: it begins as an observer.
        formatting.first_voters = None;
        let old_directory_id = std::mem::replace(&mut formatting.directory_id, new_directory_id);
        slot.is_damaged = false;
        slot.failed_start = None;
        Ok(old_directory_id)
    }
}

/// Kills nodes and empties their data directories; the next start formats them anew.
pub(super) async fn wipe(
    cluster: &Cluster,
    membership: &Membership,
    id: u64,
    nodes: Vec<String>,
    seed: u64,
) -> (Option<Active>, FaultReport) {
    let mut hit = Vec::new();
    let mut problems = Vec::new();
    let mut effect = Map::new();
    for node in nodes {
        let position = cluster.names().position(|name| *name == node).unwrap_or(0);
        let draws = Stream::new(seed, "new-directory");
        let half = |counter| u128::from(draws.draw(id, 2 * position as u64 + counter));
        let new = DirectoryId(half(0) << 64 | half(1)).to_string();
        match cluster.wipe(&node, new.clone()).await {
            Ok(old) => {
                effect.insert(format!("{node}_old_directory_id"), json!(old));
                effect.insert(new_directory_id_of(&node), json!(new));
                membership.book().is_lost(Member {
                    node: node.clone(),
                    directory_id: old,
                });
                hit.push(node);
            }
            Err(problem) => problems.push(problem),
        }
    }
    effect.insert("wiped_count".into(), hit.len().into());
    let report = report(hit.len(), problems, effect);
    let active = (!hit.is_empty()).then_some(Active::Wipe { nodes: hit });
    (active, report)
}

/// The files of a data directory. What disappears meanwhile is not there.
fn contents(data: &Path) -> io::Result<Contents> {
    let mut contents = Contents::new();
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || !entry.file_type()?.is_file() {
            continue;
        }
        match std::fs::read(entry.path()) {
            Ok(bytes) => drop(contents.insert(name, bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(contents)
}

fn apply(data: &Path, edit: &Edit) -> io::Result<()> {
    let path = data.join(edit.file());
    if matches!(edit, Edit::Remove { .. }) {
        std::fs::remove_file(&path)?;
        return File::open(data)?.sync_all();
    }
    let file: File = OpenOptions::new().write(true).open(path)?;
    match edit {
        Edit::Overwrite {
            position_bytes,
            bytes,
            ..
        } => file.write_all_at(bytes, *position_bytes)?,
        Edit::Cut { length_bytes, .. } => file.set_len(*length_bytes)?,
        Edit::Remove { .. } => {}
    }
    file.sync_all()
}

/// Lets disks fail while their nodes run, or destroys what is on them.
pub(super) async fn fail(
    cluster: &Cluster,
    id: u64,
    nodes: Vec<String>,
    disk: DiskFault,
    seed: u64,
) -> (Option<Active>, FaultReport) {
    if disk.what.destroys_data() {
        return destroy(cluster, id, nodes, disk, seed).await;
    }
    let mut failing = Vec::new();
    let mut problems = Vec::new();
    let mut restarted = Vec::new();
    for node in nodes {
        match cluster.fail_disk(id, &node, disk).await {
            Ok(crash_count) => failing.push((node.clone(), crash_count)),
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        }
        if disk.restart {
            match cluster.start_again(&node).await {
                Ok(()) => restarted.push(node),
                Err(problem) => problems.push(problem),
            }
        }
    }
    // What it does shows only once the node uses its disk: see healing.
    let mut effect = Map::new();
    if disk.restart {
        effect.insert("restarted".into(), json!(restarted));
    }
    let report = report(failing.len(), problems, effect);
    let active = (!failing.is_empty()).then_some(Active::Disk { nodes: failing });
    (active, report)
}

async fn destroy(
    cluster: &Cluster,
    id: u64,
    nodes: Vec<String>,
    disk: DiskFault,
    seed: u64,
) -> (Option<Active>, FaultReport) {
    let mut hit = Vec::new();
    let mut problems = Vec::new();
    let mut effect = Map::new();
    for node in nodes {
        let position = cluster.names().position(|name| *name == node).unwrap_or(0);
        let draws = DamageDraws::new(seed, id, position);
        match cluster.destroy(&node, disk, &draws).await {
            Ok(damage) => {
                effect.insert(damaged_bytes_of(&node), damage.damaged_bytes.into());
                hit.push(node);
            }
            Err(problem) => problems.push(problem),
        }
    }
    let report = report(hit.len(), problems, effect);
    (Active::killed(hit), report)
}

/// Lets disks work again and starts the nodes that have ended because they did not.
pub(super) async fn mend(
    cluster: &Cluster,
    id: u64,
    nodes: Vec<(String, usize)>,
) -> (Vec<String>, Map<String, Value>) {
    let mut problems = Vec::new();
    let (mut hit_count, mut crashed_count) = (0, 0);
    for (node, crash_count) in &nodes {
        match cluster.mend_disk(id, node, *crash_count).await {
            Ok((hits, crashes)) => {
                hit_count += hits;
                crashed_count += crashes;
            }
            Err(problem) => problems.push(problem),
        }
    }
    for (node, _) in &nodes {
        problems.extend(cluster.start_if_owed(node).await.err());
    }
    let effect = json!({ "hit_count": hit_count, "crashed_count": crashed_count });
    (problems, effect_map(effect))
}

/// Of these nodes those that do not start with the data that was destroyed, with their reasons.
pub(super) async fn refusals(cluster: &Cluster, nodes: &[String]) -> Map<String, Value> {
    let mut refused = Map::new();
    for node in nodes {
        let Ok(slot) = cluster.slot(node) else {
            continue;
        };
        let slot = slot.lock().await;
        if slot.is_damaged
            && let Some(reason) = &slot.failed_start
        {
            refused.insert(format!("{node}_refuses"), json!(reason));
        }
    }
    if !refused.is_empty() {
        refused.insert("refused_count".into(), json!(refused.len()));
    }
    refused
}
