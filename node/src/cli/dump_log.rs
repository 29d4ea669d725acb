//! Owns `kraft-node dump-log`: what is in the log of a data directory, as lines of text.
//! Never writes to the directory, not even a lock.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::output::cannot_print;
use super::{EXIT_ENVIRONMENT, EXIT_STOPPED, fail};
use crate::batch::Batch;
use crate::ids::Offset;
use crate::storage::dump::{
    Dump, Item, LOG_START_FILE, decode_log_start, judge_log, segment_base_offset,
};
use crate::storage::{OpenError, ReadOnlyDisk};

/// How often a log that changes while it is read is judged at most.
const MAX_JUDGED_COUNT: usize = 4;

#[derive(Debug, Args)]
pub(super) struct DumpLogArguments {
    /// The data directory of the node.
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
    /// Print the records of each batch, too.
    #[arg(long)]
    records: bool,
}

/// Why the log could not be shown.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has no log: there is no file NUMBER.log with 20 digits in it", .0.display())]
    NoLog(PathBuf),
    #[error("cannot tell from {} where the log starts: {reason}", path.display())]
    LogStart { path: PathBuf, reason: String },
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

pub(super) fn run(arguments: &DumpLogArguments) -> ExitCode {
    let mut output = BufWriter::new(io::stdout().lock());
    let damage_count = dump(&arguments.data, arguments.records, &mut output)
        .and_then(|count| output.flush().map(|()| count).map_err(DumpError::Output));
    match damage_count {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_STOPPED),
        Err(DumpError::Output(error)) => cannot_print(&error),
        Err(error) => fail(EXIT_ENVIRONMENT, &error.to_string()),
    }
}

/// Returns how many damaged places there are.
fn dump(data: &Path, with_records: bool, output: &mut impl Write) -> Result<usize, DumpError> {
    let segments = segments(data)?;
    if segments.is_empty() {
        return Err(DumpError::NoLog(data.into()));
    }
    let log_start = log_start(data)?;
    if log_start > Offset(0) {
        writeln!(
            output,
            "log start: {log_start}; what is before is only in the snapshot that ends there"
        )?;
    }
    let mut dump = Dump::of_log_starting_at(log_start);
    let mut damage_count = 0;
    for (at, (base_offset, path, _)) in segments.iter().enumerate() {
        let bytes = fs::read(path).map_err(unreadable(path))?;
        let is_last = segments[at + 1..]
            .iter()
            .all(|(_, _, length_bytes)| *length_bytes == 0);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(output, "{name}: {} bytes", bytes.len())?;
        let mut outcome = Ok(());
        dump.segment(*base_offset, &bytes, is_last, &mut |item| {
            damage_count += usize::from(item.is_damage());
            if outcome.is_ok() {
                outcome = show(&item, with_records, output);
            }
        });
        outcome?;
    }
    if damage_count == 0
        && let Some(refusal) = refusal(data)?
    {
        writeln!(output, "DAMAGE {}", in_short(&refusal))?;
        damage_count += 1;
    }
    if damage_count > 0 {
        writeln!(output, "damaged places: {damage_count}")?;
    }
    Ok(damage_count)
}

/// Why a start would not take the log, which shows in no segment by itself: its end is lost, or what tells of that.
fn refusal(data: &Path) -> Result<Option<OpenError>, DumpError> {
    let disk = ReadOnlyDisk::new(data);
    let mut before = String::new();
    for _ in 0..MAX_JUDGED_COUNT {
        let refusal = match judge_log(&disk) {
            Ok(()) => return Ok(None),
            Err(OpenError::Disk { file, source, .. }) if source.kind() != ErrorKind::NotFound => {
                return Err(unreadable(&data.join(file))(source));
            }
            Err(refusal) => refusal,
        };
        // A node that runs may have cut or rolled its log meanwhile; what is lost is lost every time.
        let words = refusal.to_string();
        if words == before {
            return Ok(Some(refusal));
        }
        before = words;
    }
    Ok(None)
}

/// A refusal without the advice that a start gives.
fn in_short(refusal: &OpenError) -> String {
    match refusal {
        OpenError::Missing { file, reason } => {
            format!("of the whole: {file} is missing: {reason}; a start refuses that")
        }
        OpenError::Damaged {
            file,
            position_bytes,
            expected,
            found,
        } => format!(
            "in {file} at byte {position_bytes}: expected {expected}, found {found}; a start refuses that"
        ),
        other => format!("of the whole: {other}"),
    }
}

/// Where the log starts; 0 for one that is whole.
fn log_start(data: &Path) -> Result<Offset, DumpError> {
    let path = data.join(LOG_START_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Offset(0)),
        Err(error) => return Err(unreadable(&path)(error)),
    };
    let snapshot = decode_log_start(&bytes).map_err(|error| DumpError::LogStart {
        path,
        reason: error.to_string(),
    })?;
    Ok(snapshot.end_offset)
}

/// The segments by base offset, with their lengths in bytes.
fn segments(data: &Path) -> Result<Vec<(Offset, PathBuf, u64)>, DumpError> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(data).map_err(unreadable(data))? {
        let entry = entry.map_err(unreadable(data))?;
        if let Some(base_offset) = entry.file_name().to_str().and_then(segment_base_offset) {
            let path = entry.path();
            let length_bytes = entry.metadata().map_err(unreadable(&path))?.len();
            segments.push((base_offset, path, length_bytes));
        }
    }
    segments.sort();
    Ok(segments)
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> DumpError {
    let path = path.to_owned();
    |source| DumpError::Unreadable { path, source }
}

/// Prints one finding; the words of a batch are those of Kafka's own tool.
fn show(item: &Item, with_records: bool, output: &mut impl Write) -> io::Result<()> {
    match item {
        Item::Batch {
            position_bytes,
            batch,
        } => {
            show_batch(*position_bytes, batch, output)?;
            if with_records {
                show_records(batch, output)?;
            }
            Ok(())
        }
        Item::Seal { position_bytes } => writeln!(output, "seal position: {position_bytes}"),
        Item::Close { position_bytes } => writeln!(output, "close position: {position_bytes}"),
        Item::Misfit {
            position_bytes,
            found,
        } => writeln!(output, "DAMAGE at byte {position_bytes}: {found}"),
        Item::Damage {
            position_bytes,
            end_bytes,
            found,
            claimed,
        } => {
            let skipped = end_bytes - position_bytes;
            write!(
                output,
                "DAMAGE at byte {position_bytes}: {found}; {skipped} bytes are skipped"
            )?;
            if let Some(claimed) = claimed {
                write!(
                    output,
                    "; the header, true or not, says baseOffset: {} count: {} leaderEpoch: {}",
                    claimed.base_offset, claimed.record_count, claimed.epoch
                )?;
            }
            writeln!(output)
        }
        Item::Torn {
            position_bytes,
            end_bytes,
            found,
        } => writeln!(
            output,
            "torn tail at byte {position_bytes}: {found}; a crash in the middle of a write explains \
             it, and a start cuts off these {} bytes",
            end_bytes - position_bytes
        ),
    }
}

fn show_batch(position_bytes: u64, batch: &Batch, output: &mut impl Write) -> io::Result<()> {
    writeln!(
        output,
        "baseOffset: {} lastOffset: {} count: {} leaderEpoch: {} isControl: {} position: {} \
         CreateTime: {} size: {} crc: {:08x} isvalid: true",
        batch.base_offset(),
        batch.last_offset(),
        batch.records().count(),
        batch.epoch(),
        batch.is_control(),
        position_bytes,
        batch.timestamp_ms(),
        batch.bytes().len(),
        batch.crc()
    )
}

fn show_records(batch: &Batch, output: &mut impl Write) -> io::Result<()> {
    for (offset, record) in batch.records() {
        write!(
            output,
            "| offset: {offset} size: {} payload: ",
            record.len()
        )?;
        match std::str::from_utf8(record) {
            Ok(text) => writeln!(
                output,
                "{}",
                text.escape_debug().to_string().replace("\\\"", "\"")
            )?,
            Err(_) => writeln!(output, "0x{}", hexadecimal(record))?,
        }
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, NodeId, SnapshotId};
    use crate::storage::log_end::{self, LogEnd};
    use crate::storage::segment;
    use crate::storage::{DirectoryDisk, Identity, SnapshotHeader, Storage, StorageOptions};

    /// Three segments with two batches each, and a seal at the end.
    fn written(data: &Path) -> Vec<(Offset, PathBuf, u64)> {
        let identity = Identity {
            cluster_id: "test".into(),
            node_id: NodeId(1),
        };
        let options = StorageOptions {
            segment_bytes: 300,
            cache_bytes: 0,
            ..StorageOptions::default()
        };
        let disk = DirectoryDisk::open(data).unwrap();
        let (mut storage, _) = Storage::open(disk, &identity, options).unwrap();
        for number in 0..6_i64 {
            let control = number == 0;
            let records: [&[u8]; 2] = [br#"{"x":"y"}"#, &[0xff, 0x00]];
            let at = Offset(number * 2);
            let batch = Batch::build(at, Epoch(3), 1_700_000_000_000, control, &records);
            storage.append(&batch).unwrap();
            storage.sync().unwrap();
        }
        storage.seal().unwrap();
        drop(storage);
        segments(data).unwrap()
    }

    fn dumped(data: &Path, with_records: bool) -> (usize, String) {
        let mut output = Vec::new();
        let damage_count = dump(data, with_records, &mut output).unwrap();
        (damage_count, String::from_utf8(output).unwrap())
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    #[test]
    fn a_sound_log_is_shown_whole_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let before = written(directory.path());
        assert!(before.len() > 1, "{before:?}");
        let (damage_count, text) = dumped(directory.path(), true);
        assert_eq!(damage_count, 0, "{text}");
        assert_eq!(count(&text, "isvalid: true"), 6, "{text}");
        assert_eq!(count(&text, "close position: "), before.len() - 1, "{text}");
        assert_eq!(count(&text, "seal position: "), 1, "{text}");
        let first = "baseOffset: 0 lastOffset: 1 count: 2 leaderEpoch: 3 isControl: true position: \
                     29 CreateTime: 1700000000000 size: 53 crc: ";
        assert!(text.lines().nth(1).unwrap().starts_with(first), "{text}");
        assert!(
            text.contains("\n| offset: 10 size: 9 payload: {\"x\":\"y\"}\n"),
            "{text}"
        );
        assert!(
            text.contains("\n| offset: 11 size: 2 payload: 0xff00\n"),
            "{text}"
        );
        let (_, plain) = dumped(directory.path(), false);
        assert_eq!(count(&plain, "payload"), 0);
        assert_eq!(segments(directory.path()).unwrap(), before);
    }

    #[test]
    fn a_log_that_lost_its_beginning_to_a_snapshot_is_not_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity {
            cluster_id: "test".into(),
            node_id: NodeId(1),
        };
        let disk = DirectoryDisk::open(directory.path()).unwrap();
        let (mut storage, _) = Storage::open(disk, &identity, StorageOptions::default()).unwrap();
        for at in 0..6 {
            let batch = Batch::build(Offset(at * 2), Epoch(3), 0, false, &["a", "b"]);
            storage.append(&batch).unwrap();
        }
        storage.sync().unwrap();
        let id = SnapshotId {
            end_offset: Offset(8),
            epoch: Epoch(3),
        };
        let header = SnapshotHeader::default();
        let writer = storage.begin_snapshot(id, header).unwrap().unwrap();
        storage.freeze_snapshot(writer).unwrap();
        storage.advance_log_start(id.end_offset).unwrap();
        drop(storage);
        let (damage_count, text) = dumped(directory.path(), false);
        assert_eq!(damage_count, 0, "{text}");
        assert!(text.starts_with("log start: 8;"), "{text}");
        assert!(count(&text, "isvalid: true") >= 2, "{text}");
    }

    /// Whatever byte is damaged, everything else is still shown, and the damage is named.
    #[test]
    fn damage_hides_nothing_but_itself() {
        let directory = tempfile::tempdir().unwrap();
        let segments = written(directory.path());
        let (base, path, length_bytes) = &segments[0];
        assert_eq!(*base, Offset(0));
        let sound = fs::read(path).unwrap();
        for at in 0..*length_bytes as usize {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            fs::write(path, bytes).unwrap();
            let (damage_count, text) = dumped(directory.path(), false);
            assert!(damage_count > 0, "byte {at}: {text}");
            assert!(count(&text, "isvalid: true") >= 5, "byte {at}: {text}");
            assert!(text.contains("DAMAGE at byte "), "byte {at}: {text}");
        }
        fs::write(path, &sound[..sound.len() - 40]).unwrap();
        let (damage_count, text) = dumped(directory.path(), false);
        assert!(
            damage_count > 0 && count(&text, "isvalid: true") == 5,
            "{text}"
        );
        fs::remove_file(path).unwrap();
        let (damage_count, text) = dumped(directory.path(), false);
        assert_eq!(damage_count, 1, "{text}");
        assert!(text.contains("the log so far ends at offset 0"), "{text}");
    }

    #[test]
    fn a_damaged_batch_still_says_what_it_claims_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let segments = written(directory.path());
        let mut bytes = fs::read(&segments[0].1).unwrap();
        bytes[29 + 40] ^= 1;
        fs::write(&segments[0].1, bytes).unwrap();
        let (_, text) = dumped(directory.path(), false);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "DAMAGE at byte 0: a sound frame but a bad batch (the checksum does not match); 82 bytes \
             are skipped; the header, true or not, says baseOffset: 0 count: 2 leaderEpoch: 3"
        );
    }

    #[test]
    fn a_torn_tail_is_not_called_damage() {
        let directory = tempfile::tempdir().unwrap();
        let segments = written(directory.path());
        let (_, path, _) = segments.last().unwrap();
        let sound = fs::read(path).unwrap();
        let mut disk = DirectoryDisk::open(directory.path()).unwrap();
        log_end::write(&mut disk, LogEnd::NONE).unwrap();
        drop(disk);
        // Without the seal, nothing bears witness to the last batch.
        fs::write(path, &sound[..sound.len() - 30]).unwrap();
        let (damage_count, text) = dumped(directory.path(), false);
        assert_eq!(damage_count, 0, "{text}");
        assert_eq!(count(&text, "isvalid: true"), 5, "{text}");
        assert_eq!(count(&text, "torn tail at byte "), 1, "{text}");
    }

    /// Whether a start takes what is on the disk. The control record in it means nothing, which is another matter.
    fn is_taken(data: &Path) -> bool {
        let identity = Identity {
            cluster_id: "test".into(),
            node_id: NodeId(1),
        };
        let options = StorageOptions {
            require_quorum_state: false,
            ..StorageOptions::default()
        };
        let disk = DirectoryDisk::open(data).unwrap();
        let outcome = Storage::open(disk, &identity, options);
        !matches!(
            outcome,
            Err(OpenError::Missing { .. } | OpenError::Damaged { .. })
        )
    }

    #[test]
    fn what_no_segment_shows_is_damage_where_a_start_refuses_it_and_only_there() {
        type Change = fn(&Path, &Path);
        let changes: [(&str, &str, Change); 9] = [
            ("", "nothing", |_, _| {}),
            ("", "an empty stray segment", |data, _| {
                fs::write(data.join(segment::file_name(Offset(99))), []).unwrap();
            }),
            ("of the whole: ", "the last segment", |_, last| {
                fs::remove_file(last).unwrap();
            }),
            ("in ", "the last segment's end", |_, last| {
                let bytes = fs::read(last).unwrap();
                fs::write(last, &bytes[..bytes.len() - 60]).unwrap();
            }),
            ("in ", "all of the last segment", |_, last| {
                fs::write(last, []).unwrap();
            }),
            ("in ", "the last segment's content", |_, last| {
                let bytes = fs::read(last).unwrap();
                fs::write(last, vec![0; bytes.len()]).unwrap();
            }),
            ("of the whole: log-end is", "log-end", |data, _| {
                fs::remove_file(data.join(log_end::FILE)).unwrap();
            }),
            ("in log-end ", "a byte of log-end", |data, _| {
                let mut bytes = fs::read(data.join(log_end::FILE)).unwrap();
                bytes[2] ^= 1;
                fs::write(data.join(log_end::FILE), bytes).unwrap();
            }),
            (
                "in meta.properties ",
                "a byte of the identity",
                |data, _| {
                    let mut bytes = fs::read(data.join("meta.properties")).unwrap();
                    bytes[22] ^= 1;
                    fs::write(data.join("meta.properties"), bytes).unwrap();
                },
            ),
        ];
        for (said, what, change) in changes {
            let directory = tempfile::tempdir().unwrap();
            let segments = written(directory.path());
            change(directory.path(), &segments.last().unwrap().1);
            let (damage_count, text) = dumped(directory.path(), false);
            assert_eq!(
                damage_count,
                usize::from(!said.is_empty()),
                "{what}: {text}"
            );
            let line = format!("\nDAMAGE {said}");
            assert!(said.is_empty() || text.contains(&line), "{what}: {text}");
            assert_eq!(is_taken(directory.path()), damage_count == 0, "{what}");
        }
    }

    #[test]
    fn what_is_not_a_log_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        let error = dump(directory.path(), false, &mut output).unwrap_err();
        assert!(error.to_string().contains("has no log"), "{error}");
        let error = dump(Path::new("/dev/null/x"), false, &mut output).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot read /dev/null/x"),
            "{error}"
        );
    }
}
