//! Owns what exactly is destroyed in the data directory of a node that is down, from draws.
//! Never touches a disk, and never destroys what no start could notice.
//!
//! A disk that loses the last thing it has synced looks like one that a crash kept from syncing it. Raft,
//! and so KRaft, promises nothing for such disks. Where a start must notice what was done, the node can
//! refuse, and that is what a run may demand: see [`node::storage::witness`].

use std::collections::BTreeMap;
use std::ops::Range;

use nemesis::fault::{DiskFault, DiskProblem, Files, Word as _};
use node::storage::quorum_state;
use node::storage::witness::{Witnessed, of_log, of_snapshots};
use results::keyed_random::Stream;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// By name: the contents of the files of a data directory.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// These bytes are there instead of as many others.
    Overwrite {
        /// Which file.
        file: String,
        /// From where.
        position_bytes: u64,
        /// What is there.
        bytes: Vec<u8>,
    },
    /// The file has lost its end.
    Cut {
        /// Which file.
        file: String,
        /// How much is left.
        length_bytes: u64,
    },
    /// The file is gone.
    Remove {
        /// Which file.
        file: String,
    },
}

impl Edit {
    /// Name of the file.
    pub fn file(&self) -> &str {
        match self {
            Self::Overwrite { file, .. } | Self::Cut { file, .. } | Self::Remove { file } => file,
        }
    }

    /// Carries it out on the content of its file; whoever has the file itself removes it where it is to be gone.
    pub fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Overwrite {
                position_bytes,
                bytes,
                ..
            } => {
                let start = *position_bytes as usize;
                content[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Self::Cut { length_bytes, .. } => content.truncate(*length_bytes as usize),
            Self::Remove { .. } => content.clear(),
        }
    }

    /// How many bytes of a file with this content are lost or other ones.
    fn damaged_bytes(&self, content: &[u8]) -> u64 {
        match self {
            Self::Overwrite {
                position_bytes,
                bytes,
                ..
            } => {
                let before = &content[*position_bytes as usize..];
                let differing = before.iter().zip(bytes).filter(|(old, new)| old != new);
                differing.count() as u64
            }
            Self::Cut { length_bytes, .. } => content.len() as u64 - length_bytes,
            Self::Remove { .. } => content.len() as u64,
        }
    }
}

/// What is done to one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The changes, in order.
    pub edits: Vec<Edit>,
    /// How many bytes are lost or other ones. Never 0.
    pub damaged_bytes: u64,
}

/// The draws of one fault on one node.
#[derive(Debug, Clone)]
pub struct DamageDraws {
    stream: Stream,
    fault: u64,
    node: u64,
}

impl DamageDraws {
    /// The draws of fault number `fault` on the node at position `node`, in a run with this seed.
    pub fn new(seed: u64, fault: u64, node: usize) -> Self {
        Self {
            stream: Stream::new(seed, "damage"),
            fault,
            node: node as u64,
        }
    }

    /// A draw from `range`, which is not empty.
    fn from(&self, counter: u64, range: &Range<u64>) -> u64 {
        let counter = self.node << 8 | counter;
        range.start
            + self
                .stream
                .below(self.fault, counter, range.end - range.start)
    }

    fn choose<'a, T>(&self, counter: u64, items: &'a [T]) -> Option<&'a T> {
        self.stream
            .choose(self.fault, self.node << 8 | counter, items)
    }
}

/// Counters of the draws.
const FILE: u64 = 0;
const PLACE: u64 = 1;
const DETAIL: u64 = 2;
const SECTORS: u64 = 16;

/// Decides what a fault destroys in a data directory.
///
/// # Errors
/// For people: why nothing can be destroyed that a start would notice.
pub fn draw(
    what: DiskProblem,
    files: Files,
    contents: &Contents,
    draws: &DamageDraws,
) -> Result<Damage, String> {
    let edits = match files {
        Files::Log | Files::All => in_log(what, &of_log(contents), contents, draws)?,
        Files::QuorumState => {
            let content = contents.get(quorum_state::FILE);
            let content = content.filter(|content| !content.is_empty());
            let content = content.ok_or("it has no quorum-state file yet")?;
            let shows_an_epoch = |segment: &Witnessed| !segment.batches.is_empty();
            if what == DiskProblem::LostFile && !of_log(contents).iter().any(shows_an_epoch) {
                return Err("there is nothing in its log yet that shows that it had one".into());
            }
            in_file(what, quorum_state::FILE, content, draws)
        }
        Files::Snapshot => {
            let names = of_snapshots(contents);
            let name = draws.choose(FILE, &names).ok_or("it has no snapshot yet")?;
            in_file(what, name, &contents[name], draws)
        }
    };
    let mut contents = contents.clone();
    let mut damaged_bytes = 0;
    for edit in &edits {
        let Some(content) = contents.get_mut(edit.file()) else {
            continue;
        };
        damaged_bytes += edit.damaged_bytes(content);
        edit.apply(content);
    }
    if damaged_bytes == 0 {
        return Err("what the fault would have written was there already".into());
    }
    Ok(Damage {
        edits,
        damaged_bytes,
    })
}

/// How many of these last words of nodes say that operations of a disk failed as this fault lets them.
pub fn count_caused(fault: DiskFault, last_words: &[String]) -> usize {
    let text = checkers::disk_faults::error_text(fault.what.word());
    let caused = |words: &&String| text.is_some_and(|text| words.contains(text));
    last_words.iter().filter(caused).count()
}

/// Damage to a file all of which is checked at a start.
fn in_file(what: DiskProblem, file: &str, content: &[u8], draws: &DamageDraws) -> Vec<Edit> {
    let whole = 0..content.len() as u64;
    match what {
        DiskProblem::BitFlip => vec![flip(file, content, &whole, draws)],
        DiskProblem::Truncate => vec![Edit::Cut {
            file: file.to_owned(),
            length_bytes: draws.from(PLACE, &whole),
        }],
        DiskProblem::LostFile => vec![Edit::Remove {
            file: file.to_owned(),
        }],
        _ => tear(file, &whole, draws),
    }
}

fn in_log(
    what: DiskProblem,
    log: &[Witnessed],
    contents: &Contents,
    draws: &DamageDraws,
) -> Result<Vec<Edit>, String> {
    let with_some: Vec<&Witnessed> = log.iter().filter(|segment| segment.bytes > 0).collect();
    let with_batches: Vec<(&Witnessed, &Range<u64>)> = with_some
        .iter()
        .flat_map(|segment| segment.batches.iter().map(|batch| (*segment, batch)))
        .collect();
    let too_new = "there is nothing in its log yet that a start must find";
    match what {
        DiskProblem::BitFlip => {
            let segment = draws.choose(FILE, &with_some).ok_or(too_new)?;
            let content = &contents[&segment.file];
            Ok(vec![flip(
                &segment.file,
                content,
                &(0..segment.bytes),
                draws,
            )])
        }
        DiskProblem::Truncate => {
            let whole: Vec<&&Witnessed> = with_some.iter().filter(|it| it.whole).collect();
            let segment = draws.choose(FILE, &whole).ok_or(
                "its log has one segment only, and one that lost its end looks like one that a crash \
                 kept from growing",
            )?;
            Ok(vec![Edit::Cut {
                file: segment.file.clone(),
                length_bytes: draws.from(PLACE, &(0..segment.bytes)),
            }])
        }
        DiskProblem::MisdirectedWrite => {
            let (from, write) = draws.choose(FILE, &with_batches).ok_or(too_new)?;
            let to = draws.choose(DETAIL, &with_some).ok_or(too_new)?;
            Ok(misdirect(from, write, to, contents, draws))
        }
        _ => {
            let (segment, write) = draws.choose(FILE, &with_batches).ok_or(too_new)?;
            Ok(tear(&segment.file, write, draws))
        }
    }
}

fn flip(file: &str, content: &[u8], place: &Range<u64>, draws: &DamageDraws) -> Edit {
    let position_bytes = draws.from(PLACE, place);
    let bit = draws.from(DETAIL, &(0..8));
    Edit::Overwrite {
        file: file.to_owned(),
        position_bytes,
        bytes: vec![content[position_bytes as usize] ^ (1 << bit)],
    }
}

/// Of this write only some sectors got to the disk; the others read as zeros.
fn tear(file: &str, write: &Range<u64>, draws: &DamageDraws) -> Vec<Edit> {
    let sectors = write.start / SECTOR_BYTES..(write.end - 1) / SECTOR_BYTES + 1;
    let certain = draws.from(PLACE, &sectors);
    let is_lost = |sector: &u64| {
        *sector == certain || draws.from(SECTORS + (sector - sectors.start) % 200, &(0..2)) == 0
    };
    let lost = sectors.clone().filter(is_lost);
    lost.map(|sector| {
        let start = write.start.max(sector * SECTOR_BYTES);
        let end = write.end.min((sector + 1) * SECTOR_BYTES);
        Edit::Overwrite {
            file: file.to_owned(),
            position_bytes: start,
            bytes: vec![0; (end - start) as usize],
        }
    })
    .collect()
}

/// This write went somewhere else: half of the time to where another begins, so that it fits there.
fn misdirect(
    from: &Witnessed,
    write: &Range<u64>,
    to: &Witnessed,
    contents: &Contents,
    draws: &DamageDraws,
) -> Vec<Edit> {
    let starts: Vec<u64> = to.batches.iter().map(|batch| batch.start).collect();
    let fitting = draws
        .choose(PLACE, &starts)
        .filter(|_| draws.from(SECTORS, &(0..2)) == 0);
    let position_bytes = match fitting {
        Some(position_bytes) => *position_bytes,
        None => {
            let sectors = 0..to.bytes.div_ceil(SECTOR_BYTES);
            draws.from(SECTORS + 1, &sectors) * SECTOR_BYTES
        }
    };
    let written = &contents[&from.file][write.start as usize..write.end as usize];
    // Where it belongs it would do no harm; so it went where nobody looks.
    if (&to.file, position_bytes) == (&from.file, write.start) {
        return vec![Edit::Overwrite {
            file: from.file.clone(),
            position_bytes: write.start,
            bytes: vec![0; written.len()],
        }];
    }
    let fits_bytes = (to.bytes - position_bytes).min(written.len() as u64);
    vec![
        Edit::Overwrite {
            file: from.file.clone(),
            position_bytes: write.start,
            bytes: vec![0; written.len()],
        },
        Edit::Overwrite {
            file: to.file.clone(),
            position_bytes,
            bytes: written[..fits_bytes as usize].to_vec(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes() -> Contents {
        let content: Vec<u8> = (1..=90).collect();
        Contents::from([(quorum_state::FILE.to_owned(), content)])
    }

    fn damaged(what: DiskProblem, fault: u64, node: usize) -> (Damage, Vec<u8>) {
        let draws = DamageDraws::new(1, fault, node);
        let damage = draw(what, Files::QuorumState, &votes(), &draws).unwrap();
        let mut content = votes()[quorum_state::FILE].clone();
        for edit in &damage.edits {
            edit.apply(&mut content);
        }
        (damage, content)
    }

    #[test]
    fn damage_is_what_its_name_says_and_counts_the_bytes() {
        let before = votes()[quorum_state::FILE].clone();
        for fault in 0..50 {
            let (damage, flipped) = damaged(DiskProblem::BitFlip, fault, 0);
            let bits = before.iter().zip(&flipped);
            let bits: u32 = bits.map(|(old, new)| (old ^ new).count_ones()).sum();
            assert_eq!((bits, damage.damaged_bytes), (1, 1));
            let (damage, cut) = damaged(DiskProblem::Truncate, fault, 0);
            assert!(before.starts_with(&cut) && cut.len() < before.len());
            assert_eq!(damage.damaged_bytes, (before.len() - cut.len()) as u64);
            let (damage, torn) = damaged(DiskProblem::TornWrite, fault, 0);
            assert_eq!(torn, vec![0; before.len()], "it is in one sector");
            assert_eq!(damage.damaged_bytes, before.len() as u64);
        }
    }

    #[test]
    fn votes_are_not_lost_where_a_start_could_not_tell() {
        let draws = DamageDraws::new(1, 1, 0);
        let refused = draw(DiskProblem::LostFile, Files::QuorumState, &votes(), &draws);
        assert!(refused.unwrap_err().contains("nothing in its log yet"));
    }

    #[test]
    fn only_what_a_fault_lets_fail_is_its_doing() {
        let words = ["cannot sync x: Input/output error (os error 5)", "a panic"];
        let words = words.map(String::from);
        let caused = |what| {
            let files = Files::All;
            let delay_ms = None;
            count_caused(
                DiskFault {
                    what,
                    files,
                    delay_ms,
                    restart: false,
                },
                &words,
            )
        };
        assert_eq!(caused(DiskProblem::SyncError), 1);
        assert_eq!(caused(DiskProblem::NoSpace), 0);
        assert_eq!(caused(DiskProblem::SlowSync), 0);
    }

    #[test]
    fn seed_fault_and_node_decide_what_is_hit() {
        let flip = |fault, node| damaged(DiskProblem::BitFlip, fault, node).1;
        assert_eq!(flip(1, 0), flip(1, 0));
        let different: std::collections::BTreeSet<_> =
            (0..20).map(|number| flip(number, 1)).collect();
        assert!(different.len() > 10);
        assert_ne!(flip(1, 0), flip(1, 1));
    }

    #[test]
    fn only_some_sectors_of_a_torn_write_are_lost() {
        let write = 100..5_000;
        let draws = DamageDraws::new(3, 4, 0);
        let edits = tear("x", &write, &draws);
        let mut content = vec![7; 6_000];
        for edit in &edits {
            edit.apply(&mut content);
        }
        let lost_count = content.iter().filter(|byte| **byte == 0).count();
        assert!(lost_count > 0 && lost_count < 4_900, "{lost_count}");
        assert!(
            content[..100]
                .iter()
                .chain(&content[5_000..])
                .all(|byte| *byte == 7)
        );
    }

    #[test]
    fn a_misdirected_write_never_arrives_where_it_belongs() {
        let contents = Contents::from([("log".to_owned(), (0..700).map(|at| at as u8).collect())]);
        let only = Witnessed {
            file: "log".to_owned(),
            bytes: 700,
            batches: Vec::from_iter([0..350, 350..697]),
            whole: false,
        };
        for fault in 0..50 {
            let draws = DamageDraws::new(1, fault, 0);
            let mut content = contents["log"].clone();
            for edit in misdirect(&only, &only.batches[0], &only, &contents, &draws) {
                edit.apply(&mut content);
            }
            assert_ne!(content, contents["log"]);
        }
    }

    #[test]
    fn where_nothing_can_be_noticed_nothing_is_damaged() {
        let draws = DamageDraws::new(1, 1, 1);
        for (files, word) in [
            (Files::Log, "log"),
            (Files::Snapshot, "snapshot"),
            (Files::QuorumState, "quorum-state"),
        ] {
            let why = draw(DiskProblem::BitFlip, files, &Contents::new(), &draws).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
