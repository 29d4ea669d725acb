//! Owns a disk in memory that knows which states a power cut can leave behind.
//! Never fails other than by crashing, at the operation it is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use super::Image;
use crate::storage::disk::{Disk, cut_past_the_end, not_found};

const SECTOR_BYTES: usize = 512;
/// Up to this many unsynced sectors all subsets are tried.
const ALL_SUBSETS_SECTORS: usize = 6;
/// How many prefixes of what is not synced are tried: of the only such file, or of each of several,
/// whose states multiply.
const PREFIXES_OF_ONE: usize = 40;
const PREFIXES_OF_SEVERAL: usize = 8;
/// How much of the room that was reserved for a file a crash leaves; more would be more of the same.
const LEFT_ROOM_BYTES: usize = 40;

/// Clones share the disk, so that a test keeps access to the disk of a storage that is gone.
#[derive(Debug, Clone, Default)]
pub(super) struct CrashDisk(Rc<RefCell<Machine>>);

#[derive(Debug, Default)]
struct Machine {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changes: Vec<Change>,
    /// Changing operations until the crash.
    operations_left: Option<usize>,
    journal: Vec<String>,
}

#[derive(Debug, Default, Clone)]
struct Content {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// There is room behind the end.
    has_room: bool,
    /// The same, as far as it may be durable.
    may_keep_room: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Set(String, usize),
    Rename(String, String),
    Remove(String),
}

impl CrashDisk {
    /// A disk with durable files.
    pub(super) fn from_image(image: &Image) -> Self {
        let mut machine = Machine::default();
        for (name, bytes) in image {
            let id = machine.files.len();
            machine.files.push(Content {
                visible: bytes.clone(),
                durable: bytes.clone(),
                ..Content::default()
            });
            machine.names.insert(name.clone(), id);
        }
        machine.durable_names = machine.names.clone();
        Self(Rc::new(RefCell::new(machine)))
    }

    /// Crashes before the operation after the next `count`.
    pub(super) fn crash_after(&self, count: usize) {
        self.0.borrow_mut().operations_left = Some(count);
    }

    /// Changing operations so far.
    pub(super) fn journal(&self) -> Vec<String> {
        self.0.borrow().journal.clone()
    }

    /// What the process sees.
    pub(super) fn visible_image(&self) -> Image {
        let machine = self.0.borrow();
        let content = |id: &usize| machine.files[*id].visible.clone();
        let names = machine.names.iter();
        names
            .map(|(name, id)| (name.clone(), content(id)))
            .collect()
    }

    /// What a power cut leaves if nothing unsynced reaches the disk.
    pub(super) fn durable_image(&self) -> Image {
        let machine = self.0.borrow();
        let content = |id: &usize| machine.files[*id].durable.clone();
        let names = machine.durable_names.iter();
        names
            .map(|(name, id)| (name.clone(), content(id)))
            .collect()
    }

    /// Everything a power cut can leave: any number of the directory changes, in order; of each
    /// file nothing, all, a prefix or any set of sectors of what is not synced.
    pub(super) fn crash_images(&self) -> BTreeSet<Image> {
        let machine = self.0.borrow();
        let mut images = BTreeSet::new();
        let mut names = machine.durable_names.clone();
        for applied in 0..=machine.changes.len() {
            if applied > 0 {
                apply(&mut names, &machine.changes[applied - 1]);
            }
            let dirty_count = names
                .values()
                .filter(|id| machine.files[**id].is_dirty())
                .count();
            let prefix_count = if dirty_count > 1 {
                PREFIXES_OF_SEVERAL
            } else {
                PREFIXES_OF_ONE
            };
            let mut partial = vec![Image::new()];
            for (name, id) in &names {
                let variants = machine.files[*id].crash_variants(prefix_count);
                partial = partial
                    .iter()
                    .flat_map(|image| {
                        variants.iter().map(move |bytes| {
                            let mut image = image.clone();
                            image.insert(name.clone(), bytes.clone());
                            image
                        })
                    })
                    .collect();
            }
            images.extend(partial);
        }
        images
    }

    fn operate<T>(
        &self,
        entry: String,
        action: impl FnOnce(&mut Machine) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.0.borrow_mut();
        if let Some(left) = &mut machine.operations_left {
            let Some(fewer) = left.checked_sub(1) else {
                return Err(io::Error::other("crashed"));
            };
            *left = fewer;
        }
        machine.journal.push(entry);
        action(&mut machine)
    }
}

impl Content {
    fn is_dirty(&self) -> bool {
        self.visible != self.durable
    }

    fn crash_variants(&self, prefix_count: usize) -> BTreeSet<Vec<u8>> {
        let mut variants = self.torn_variants(prefix_count);
        if self.may_keep_room {
            let with_room = |bytes: &Vec<u8>| [bytes.as_slice(), &[0; LEFT_ROOM_BYTES]].concat();
            let with_room: Vec<_> = variants.iter().map(with_room).collect();
            variants.extend(with_room);
        }
        variants
    }

    fn torn_variants(&self, prefix_count: usize) -> BTreeSet<Vec<u8>> {
        let (durable, visible) = (&self.durable, &self.visible);
        let mut variants = BTreeSet::from([durable.clone(), visible.clone()]);
        let same_bytes = durable
            .iter()
            .zip(visible)
            .take_while(|(left, right)| left == right)
            .count();
        let step = ((visible.len() - same_bytes) / prefix_count).max(1);
        for end in (same_bytes..visible.len()).step_by(step) {
            variants.insert(visible[..end].to_vec());
        }
        if same_bytes == visible.len() {
            return variants;
        }
        let first_sector = same_bytes / SECTOR_BYTES;
        let sector_count = visible.len().div_ceil(SECTOR_BYTES) - first_sector;
        let all = sector_count <= ALL_SUBSETS_SECTORS;
        let subset_count = 1_u64
            << if all {
                sector_count
            } else {
                ALL_SUBSETS_SECTORS
            };
        for subset in 0..subset_count {
            // Spreads the bits over more sectors than there are subsets of.
            let kept = if all {
                subset
            } else {
                subset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
            };
            for filler in [0, 0xa5] {
                let mut torn = visible.clone();
                for (at, byte) in torn.iter_mut().enumerate().skip(same_bytes) {
                    let sector = at / SECTOR_BYTES - first_sector;
                    if kept >> (sector % 64) & 1 == 0 {
                        *byte = filler;
                    }
                }
                variants.insert(torn);
            }
        }
        variants
    }
}

impl Machine {
    fn id(&self, file: &str) -> io::Result<usize> {
        self.names.get(file).copied().ok_or_else(|| not_found(file))
    }

    fn content_or_new(&mut self, file: &str) -> &mut Content {
        let id = self.names.get(file).copied().unwrap_or_else(|| {
            self.files.push(Content::default());
            let change = Change::Set(file.to_owned(), self.files.len() - 1);
            self.change(change);
            self.files.len() - 1
        });
        &mut self.files[id]
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: &Change) {
    match change {
        Change::Set(name, id) => {
            names.insert(name.clone(), *id);
        }
        Change::Rename(from, to) => {
            let id = names.remove(from).expect("renamed files exist");
            names.insert(to.clone(), id);
        }
        Change::Remove(name) => {
            names.remove(name).expect("removed files exist");
        }
    }
}

impl Disk for CrashDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.operate(format!("append {file} {}", bytes.len()), |machine| {
            machine
                .content_or_new(file)
                .visible
                .extend_from_slice(bytes);
            Ok(())
        })
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.operate(format!("write {file} {}", bytes.len()), |machine| {
            let content = machine.content_or_new(file);
            content.visible = bytes.to_vec();
            content.has_room = false;
            Ok(())
        })
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        self.operate(format!("truncate {file} {length_bytes}"), |machine| {
            let id = machine.id(file)?;
            machine.files[id].has_room = false;
            let visible = &mut machine.files[id].visible;
            if (visible.len() as u64) < length_bytes {
                return Err(cut_past_the_end(file, length_bytes));
            }
            visible.truncate(length_bytes as usize);
            Ok(())
        })
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.operate(format!("sync {file}"), |machine| {
            let id = machine.id(file)?;
            let content = &mut machine.files[id];
            content.durable = content.visible.clone();
            content.may_keep_room = content.has_room;
            Ok(())
        })
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.operate(format!("rename {from} {to}"), |machine| {
            machine.id(from)?;
            machine.change(Change::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.operate(format!("remove {file}"), |machine| {
            machine.id(file)?;
            machine.change(Change::Remove(file.to_owned()));
            Ok(())
        })
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.operate("sync_directory".to_owned(), |machine| {
            machine.durable_names = machine.names.clone();
            machine.changes.clear();
            Ok(())
        })
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let machine = self.0.borrow();
        let visible = &machine.files[machine.id(file)?].visible;
        let rest = visible.get(position_bytes as usize..).unwrap_or_default();
        Ok(rest[..length_bytes.min(rest.len())].to_vec())
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        let machine = self.0.borrow();
        let id = machine.names.get(file);
        Ok(id.map(|id| machine.files[*id].visible.len() as u64))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn reserve(&mut self, file: &str, _length_bytes: u64) {
        let mut machine = self.0.borrow_mut();
        if let Ok(id) = machine.id(file) {
            machine.files[id].has_room = true;
            machine.files[id].may_keep_room = true;
        }
    }
}
