//! Owns the files of a simulated disk: their visible content, their durable content, and recent undoing.
//! Never decides what survives a power cut.

use std::collections::{BTreeMap, BTreeSet};

use crate::damage::Edit;

/// From this size on a file is one that goes on growing.
const LONG_BYTES: usize = 512 << 10;
/// How much room it has then.
const ROOM_BYTES: usize = 16 << 20;

/// Names and contents.
#[derive(Debug, Default)]
pub(super) struct Platter {
    pub(super) files: BTreeMap<u64, File>,
    pub(super) names: BTreeMap<String, u64>,
    pub(super) durable_names: BTreeMap<String, u64>,
    /// Changes of names that are not durable yet, in order: what `names` has and `durable_names` has not.
    pub(super) changes: Vec<Change>,
    next_file: u64,
    /// How to take back what the node did in its present piece of work, with the time it happened at.
    journal: Vec<(u64, Undo)>,
}

/// Content of one file. Its durable content is the first `durable_bytes` of the visible one, then
/// `durable_rest`, which is empty unless durable bytes were cut off or overwritten.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) visible: Vec<u8>,
    pub(super) durable_bytes: usize,
    pub(super) durable_rest: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Create { name: String, file: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
}

#[derive(Debug)]
enum Undo {
    Append {
        file: u64,
        length_bytes: usize,
    },
    Cut {
        file: u64,
        tail: Vec<u8>,
        durable_bytes: usize,
    },
    Sync {
        file: u64,
        durable_bytes: usize,
        durable_rest: Vec<u8>,
    },
    /// The last of the changes that are not durable.
    Names {
        before: Touched,
    },
    /// All changes became durable.
    DurableNames {
        before: Vec<Touched>,
        changes: Vec<Change>,
    },
}

/// The names that a change concerned, with the files that they had before. There may be hundreds of others.
type Touched = Vec<(String, Option<u64>)>;

impl File {
    pub(super) fn is_durable(&self) -> bool {
        self.durable_bytes == self.visible.len() && self.durable_rest.is_empty()
    }

    /// Makes room for as much as a long log will take at once: room that is not used takes no memory, but moving
    /// what is there, again and again, leaves holes where it was.
    fn make_room(&mut self, more_bytes: usize) {
        let needed_bytes = self.visible.len() + more_bytes;
        if needed_bytes > self.visible.capacity() && needed_bytes > LONG_BYTES {
            self.visible.reserve(ROOM_BYTES.max(self.visible.len()));
        }
    }

    fn into_durable(mut self) -> Vec<u8> {
        self.visible.truncate(self.durable_bytes);
        self.visible.extend_from_slice(&self.durable_rest);
        self.visible
    }

    #[cfg(test)]
    pub(super) fn durable(&self) -> Vec<u8> {
        let mut content = self.visible[..self.durable_bytes].to_vec();
        content.extend_from_slice(&self.durable_rest);
        content
    }

    /// A file all of which is durable.
    pub(super) fn settled(visible: Vec<u8>) -> Self {
        Self {
            durable_bytes: visible.len(),
            durable_rest: Vec::new(),
            visible,
        }
    }
}

/// Carries out a change of names. Returns what [`take_back`] needs.
pub(super) fn apply(names: &mut BTreeMap<String, u64>, change: &Change) -> Touched {
    match change {
        Change::Create { name, file } => {
            vec![(name.clone(), names.insert(name.clone(), *file))]
        }
        Change::Rename { from, to } => match names.remove(from) {
            Some(file) => {
                let replaced = names.insert(to.clone(), file);
                vec![(from.clone(), Some(file)), (to.clone(), replaced)]
            }
            None => Vec::new(),
        },
        Change::Remove { name } => vec![(name.clone(), names.remove(name))],
    }
}

/// Takes back the change that concerned these names last.
fn take_back(names: &mut BTreeMap<String, u64>, before: Touched) {
    for (name, file) in before {
        match file {
            Some(file) => names.insert(name, file),
            None => names.remove(&name),
        };
    }
}

impl Platter {
    /// What happened so far cannot be taken back any more.
    pub(super) fn settle(&mut self) {
        self.journal.clear();
        if self.changes.is_empty() && self.files.len() > 2 * self.names.len() + 8 {
            let (names, durable_names) = (&self.names, &self.durable_names);
            let named: BTreeSet<u64> = names
                .values()
                .chain(durable_names.values())
                .copied()
                .collect();
            self.files.retain(|file, _| named.contains(file));
        }
    }

    /// These files are all that there is, and durable.
    pub(super) fn become_durable(
        &mut self,
        names: BTreeMap<String, u64>,
        files: BTreeMap<u64, File>,
    ) {
        self.files = files;
        self.names.clone_from(&names);
        self.durable_names = names;
        self.changes.clear();
        self.settle();
    }

    /// Takes back everything that happened after `now_ns`, latest first.
    pub(super) fn take_back_after(&mut self, now_ns: u64) {
        while self
            .journal
            .last()
            .is_some_and(|(time_ns, _)| *time_ns > now_ns)
        {
            if let Some((_, undo)) = self.journal.pop() {
                self.undo(undo);
            }
        }
    }

    /// How much of the present piece of work can be taken back.
    pub(super) fn journal_length(&self) -> usize {
        self.journal.len()
    }

    /// Takes back everything that came after a place in the journal, latest first.
    pub(super) fn take_back_to(&mut self, length: usize) {
        while self.journal.len() > length {
            if let Some((_, undo)) = self.journal.pop() {
                self.undo(undo);
            }
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Append { file, length_bytes } => {
                if let Some(file) = self.files.get_mut(&file) {
                    file.visible.truncate(length_bytes);
                }
            }
            Undo::Cut {
                file,
                tail,
                durable_bytes,
            } => {
                if let Some(file) = self.files.get_mut(&file) {
                    let moved_bytes = durable_bytes - file.durable_bytes;
                    file.durable_rest.drain(..moved_bytes);
                    file.durable_bytes = durable_bytes;
                    file.visible.extend_from_slice(&tail);
                }
            }
            Undo::Sync {
                file,
                durable_bytes,
                durable_rest,
            } => {
                if let Some(file) = self.files.get_mut(&file) {
                    file.durable_bytes = durable_bytes;
                    file.durable_rest = durable_rest;
                }
            }
            Undo::Names { before } => {
                take_back(&mut self.names, before);
                self.changes.pop();
            }
            Undo::DurableNames { before, changes } => {
                for before in before.into_iter().rev() {
                    take_back(&mut self.durable_names, before);
                }
                self.changes = changes;
            }
        }
    }

    fn change(&mut self, time_ns: u64, change: Change) {
        let before = apply(&mut self.names, &change);
        self.journal.push((time_ns, Undo::Names { before }));
        self.changes.push(change);
    }

    fn find_or_create(&mut self, time_ns: u64, name: &str) -> u64 {
        if let Some(file) = self.names.get(name) {
            return *file;
        }
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, File::default());
        let name = name.to_owned();
        self.change(time_ns, Change::Create { name, file });
        file
    }

    pub(super) fn append(&mut self, time_ns: u64, name: &str, bytes: &[u8]) {
        let id = self.find_or_create(time_ns, name);
        let file = self.files.entry(id).or_default();
        let length_bytes = file.visible.len();
        file.make_room(bytes.len());
        file.visible.extend_from_slice(bytes);
        let undo = Undo::Append {
            file: id,
            length_bytes,
        };
        self.journal.push((time_ns, undo));
    }

    /// Shortens a file, which is created if it is not there.
    pub(super) fn cut(&mut self, time_ns: u64, name: &str, length_bytes: usize) {
        let id = self.find_or_create(time_ns, name);
        let file = self.files.entry(id).or_default();
        if length_bytes >= file.visible.len() {
            // Whoever gives back the room behind the end of a file is through with it.
            file.visible.shrink_to_fit();
            return;
        }
        let tail = file.visible.split_off(length_bytes);
        let durable_bytes = file.durable_bytes;
        if length_bytes < durable_bytes {
            let moved = tail[..durable_bytes - length_bytes].iter().copied();
            file.durable_rest.splice(..0, moved);
            file.durable_bytes = length_bytes;
        }
        let undo = Undo::Cut {
            file: id,
            tail,
            durable_bytes,
        };
        self.journal.push((time_ns, undo));
    }

    pub(super) fn sync(&mut self, time_ns: u64, name: &str) {
        let Some(id) = self.names.get(name).copied() else {
            return;
        };
        let file = self.files.entry(id).or_default();
        let undo = Undo::Sync {
            file: id,
            durable_bytes: file.durable_bytes,
            durable_rest: std::mem::take(&mut file.durable_rest),
        };
        file.durable_bytes = file.visible.len();
        self.journal.push((time_ns, undo));
    }

    pub(super) fn rename(&mut self, time_ns: u64, from: &str, to: &str) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.change(time_ns, Change::Rename { from, to });
    }

    pub(super) fn remove(&mut self, time_ns: u64, name: &str) {
        let name = name.to_owned();
        self.change(time_ns, Change::Remove { name });
    }

    pub(super) fn sync_directory(&mut self, time_ns: u64) {
        let changes = std::mem::take(&mut self.changes);
        let durable_names = &mut self.durable_names;
        let before = changes.iter().map(|change| apply(durable_names, change));
        let before = before.collect();
        self.journal
            .push((time_ns, Undo::DurableNames { before, changes }));
    }

    pub(super) fn content(&self, name: &str) -> Option<&[u8]> {
        let file = self.names.get(name)?;
        Some(&self.files.get(file)?.visible)
    }

    pub(super) fn length(&self, name: &str) -> Option<u64> {
        Some(self.content(name)?.len() as u64)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn visible_files(&self) -> Vec<(String, Vec<u8>)> {
        let content = |name: &String| Some((name.clone(), self.content(name)?.to_vec()));
        self.names.keys().filter_map(content).collect()
    }

    pub(super) fn into_durable_files(mut self) -> BTreeMap<String, Vec<u8>> {
        let content = |(name, id)| Some((name, self.files.remove(&id)?.into_durable()));
        self.durable_names.into_iter().filter_map(content).collect()
    }

    #[cfg(test)]
    pub(super) fn durable_files(&self) -> BTreeMap<String, Vec<u8>> {
        let content =
            |(name, id): (&String, &u64)| Some((name.clone(), self.files.get(id)?.durable()));
        self.durable_names.iter().filter_map(content).collect()
    }

    /// Changes what is durable, behind the back of whoever wrote it.
    pub(super) fn damage(&mut self, edit: &Edit) {
        if let Edit::Remove { file } = edit {
            self.remove(0, file);
            self.sync_directory(0);
            return self.settle();
        }
        let id = self.names.get(edit.file());
        if let Some(file) = id.and_then(|id| self.files.get_mut(id)) {
            edit.apply(&mut file.visible);
            *file = File::settled(std::mem::take(&mut file.visible));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_and_syncs_are_taken_back_one_by_one() {
        let mut platter = Platter::default();
        platter.append(1, "log", b"durable");
        platter.sync(2, "log");
        platter.append(3, "log", b"-not");
        platter.settle();
        let steps: [fn(&mut Platter, u64); 7] = [
            |platter, now| platter.cut(now, "log", 9),
            |platter, now| platter.cut(now, "log", 4),
            |platter, now| platter.append(now, "log", b"!"),
            |platter, now| platter.cut(now, "log", 1),
            |platter, now| platter.sync(now, "log"),
            |platter, now| platter.append(now, "log", b"new"),
            |platter, now| platter.cut(now, "log", 0),
        ];
        let state = |platter: &Platter| {
            let file = &platter.files[&platter.names["log"]];
            (
                file.visible.clone(),
                file.durable_bytes,
                file.durable_rest.clone(),
            )
        };
        let mut before = Vec::new();
        for (now, step) in (10..).zip(steps) {
            before.push((now, state(&platter)));
            step(&mut platter, now);
        }
        assert_eq!(state(&platter), (Vec::new(), 0, b"d".to_vec()));
        for (now, expected) in before.into_iter().rev() {
            platter.take_back_after(now - 1);
            assert_eq!(state(&platter), expected, "before the step at {now}");
        }
    }

    #[test]
    fn changes_of_names_are_taken_back_one_by_one() {
        let mut platter = Platter::default();
        platter.append(1, "log", b"1");
        platter.append(2, "state", b"2");
        platter.sync_directory(3);
        platter.settle();
        let steps: [fn(&mut Platter, u64); 7] = [
            |platter, now| platter.cut(now, "new", 0),
            |platter, now| platter.rename(now, "new", "state"),
            |platter, now| platter.remove(now, "log"),
            |platter, now| platter.sync_directory(now),
            |platter, now| platter.rename(now, "nothing", "state"),
            |platter, now| platter.rename(now, "state", "log"),
            |platter, now| platter.sync_directory(now),
        ];
        let state = |platter: &Platter| {
            let changes = format!("{:?}", platter.changes);
            (
                platter.names.clone(),
                platter.durable_names.clone(),
                changes,
            )
        };
        let mut before = Vec::new();
        for (now, step) in (10..).zip(steps) {
            before.push((now, state(&platter)));
            step(&mut platter, now);
        }
        assert_eq!(platter.names(), ["log"]);
        assert_eq!(platter.durable_names, platter.names);
        for (now, expected) in before.into_iter().rev() {
            platter.take_back_after(now - 1);
            assert_eq!(state(&platter), expected, "before the step at {now}");
        }
    }
}
