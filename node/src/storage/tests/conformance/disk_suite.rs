//! Owns one suite of operations for every disk: that of a directory, of a process that may be killed, of a simulation.
//! Never names a disk; whoever includes this file has `Disk` in scope, since those of other crates are tested, too.

use std::collections::BTreeMap;
use std::io;

use proptest::prelude::*;

use super::Disk;

/// What is done to a disk.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Append(&'static str, Vec<u8>),
    Write(&'static str, Vec<u8>),
    Truncate(&'static str, u64),
    Reserve(&'static str, u64),
    Sync(&'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    SyncDirectory,
    Read(&'static str, u64, usize),
}

/// One operation; few names and few different bytes, so that they meet often.
pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let name = || prop::sample::select(&["a", "b", "c"][..]);
    let bytes = || prop::collection::vec(0..2_u8, 0..12);
    prop_oneof![
        4 => (name(), bytes()).prop_map(|(file, bytes)| Operation::Append(file, bytes)),
        2 => (name(), bytes()).prop_map(|(file, bytes)| Operation::Write(file, bytes)),
        2 => (name(), 0..16_u64).prop_map(|(file, length)| Operation::Truncate(file, length)),
        1 => (name(), 0..32_u64).prop_map(|(file, length)| Operation::Reserve(file, length)),
        4 => name().prop_map(Operation::Sync),
        2 => (name(), name()).prop_map(|(from, to)| Operation::Rename(from, to)),
        1 => name().prop_map(Operation::Remove),
        3 => Just(Operation::SyncDirectory),
        2 => (name(), 0..16_u64, 0..16_usize)
            .prop_map(|(file, position, length)| Operation::Read(file, position, length)),
    ]
}

/// The answer to an operation and everything that is visible after it.
pub(super) type Answer = (Result<Vec<u8>, io::ErrorKind>, BTreeMap<String, Vec<u8>>);

/// Does it, and tells what came of it.
pub(super) fn carry_out<D: Disk>(disk: &mut D, operation: &Operation) -> Answer {
    let nothing = |outcome: io::Result<()>| outcome.map(|()| Vec::new());
    let outcome = match operation {
        Operation::Append(file, bytes) => nothing(disk.append(file, bytes)),
        Operation::Write(file, bytes) => nothing(disk.write(file, bytes)),
        Operation::Truncate(file, length) => nothing(disk.truncate(file, *length)),
        Operation::Reserve(file, length) => {
            disk.reserve(file, *length);
            Ok(Vec::new())
        }
        Operation::Sync(file) => nothing(disk.sync(file)),
        Operation::Rename(from, to) => nothing(disk.rename(from, to)),
        Operation::Remove(file) => nothing(disk.remove(file)),
        Operation::SyncDirectory => nothing(disk.sync_directory()),
        Operation::Read(file, position, length) => disk.read(file, *position, *length),
    };
    (outcome.map_err(|error| error.kind()), image_of(disk))
}

/// File names with their contents, as a process sees them.
pub(super) fn image_of<D: Disk>(disk: &D) -> BTreeMap<String, Vec<u8>> {
    let mut image = BTreeMap::new();
    for name in disk.list().unwrap() {
        let length = disk.length(&name).unwrap().unwrap();
        // More is asked for than there is: a short answer means the end of the file.
        let bytes = disk.read(&name, 0, length as usize + 5).unwrap();
        assert_eq!(bytes.len() as u64, length);
        image.insert(name, bytes);
    }
    assert_eq!(disk.length("missing").unwrap(), None);
    image
}
