//! Owns what a disk is told to do wrong by those who test a node, and how often it did.
//! Never touches a disk; whoever owns one asks before each operation.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::storage::{quorum_state, segment, snapshot_recovery};

/// What goes wrong with the operations of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum DiskProblem {
    /// Each sync takes longer.
    SlowSync {
        /// By how much.
        delay_ms: u64,
    },
    /// Syncs fail with EIO, and make nothing durable.
    SyncError,
    /// Writes fail with ENOSPC.
    NoSpace,
    /// Reads fail with EIO.
    ReadError,
}

/// Which files of a data directory are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Every file, and the directory itself.
    All,
    /// The segments of the log.
    Log,
    /// The file with epoch, vote and leader.
    QuorumState,
    /// Snapshots, complete or not.
    Snapshot,
}

impl FileKind {
    /// Whether a file is of this kind; `None` stands for the directory.
    fn has(self, file: Option<&str>) -> bool {
        match (self, file) {
            (Self::All, _) => true,
            (_, None) => false,
            (Self::Log, Some(file)) => segment::base_offset(file).is_some(),
            (Self::QuorumState, Some(file)) => {
                file == quorum_state::FILE || file == quorum_state::TEMPORARY_FILE
            }
            (Self::Snapshot, Some(file)) => snapshot_recovery::id_of_any(file).is_some(),
        }
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedFault {
    /// What goes wrong.
    #[serde(flatten)]
    pub problem: DiskProblem,
    /// In which files.
    pub files: FileKind,
}

/// A fault with the number that whoever injects it gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedFault {
    /// The number.
    pub fault_id: u64,
    /// The fault.
    #[serde(flatten)]
    pub fault: InjectedFault,
}

/// The faults of one disk, by the number that whoever injects them gave each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InjectedFaults {
    by_id: BTreeMap<u64, Installed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Installed {
    fault: InjectedFault,
    hit_count: u64,
}

impl InjectedFaults {
    /// Lets the disk do something wrong from now on. A fault with the same number is replaced.
    pub fn install(&mut self, id: u64, fault: InjectedFault) {
        let hit_count = 0;
        self.by_id.insert(id, Installed { fault, hit_count });
    }

    /// Ends a fault; returns how many operations it hit, 0 if there was none with this number.
    pub fn remove(&mut self, id: u64) -> u64 {
        self.by_id.remove(&id).map_or(0, |fault| fault.hit_count)
    }

    /// Whether any operation fails at present, however many succeed.
    pub fn fail_operations(&self) -> bool {
        let mut all = self.by_id.values();
        all.any(|installed| !matches!(installed.fault.problem, DiskProblem::SlowSync { .. }))
    }

    /// To be asked before each sync; `None` stands for the directory. Returns how much longer it takes, in
    /// nanoseconds, and whether it then fails.
    ///
    /// # Errors
    /// None itself; the inner one is what the sync has to return after that time.
    pub fn before_sync(&mut self, file: Option<&str>) -> (u64, io::Result<()>) {
        let mut delay_ns: u64 = 0;
        let mut outcome = Ok(());
        for installed in self.matching(file) {
            match installed.fault.problem {
                DiskProblem::SlowSync { delay_ms } => {
                    delay_ns = delay_ns.saturating_add(delay_ms.saturating_mul(1_000_000));
                }
                DiskProblem::SyncError => outcome = Err(input_output_error()),
                DiskProblem::NoSpace | DiskProblem::ReadError => continue,
            }
            installed.hit_count += 1;
        }
        (delay_ns, outcome)
    }

    /// To be asked before each write.
    ///
    /// # Errors
    /// What the write has to return.
    pub fn before_write(&mut self, file: &str) -> io::Result<()> {
        for installed in self.matching(Some(file)) {
            if installed.fault.problem == DiskProblem::NoSpace {
                installed.hit_count += 1;
                return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
            }
        }
        Ok(())
    }

    /// To be asked before each read; `None` stands for the directory.
    ///
    /// # Errors
    /// What the read has to return.
    pub fn before_read(&mut self, file: Option<&str>) -> io::Result<()> {
        for installed in self.matching(file) {
            if installed.fault.problem == DiskProblem::ReadError {
                installed.hit_count += 1;
                return Err(input_output_error());
            }
        }
        Ok(())
    }

    fn matching<'a>(
        &'a mut self,
        file: Option<&'a str>,
    ) -> impl Iterator<Item = &'a mut Installed> + 'a {
        let all = self.by_id.values_mut();
        all.filter(move |installed| installed.fault.files.has(file))
    }
}

fn input_output_error() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: &str = "00000000000000000007.log";

    fn fault(text: &str) -> InjectedFault {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn faults_hit_their_files_only_and_count() {
        let mut faults = InjectedFaults::default();
        faults.install(3, fault(r#"{"what":"sync-error","files":"log"}"#));
        faults.install(4, fault(r#"{"what":"no-space","files":"quorum-state"}"#));
        faults.install(5, fault(r#"{"what":"read-error","files":"snapshot"}"#));
        faults.install(
            6,
            fault(r#"{"what":"slow-sync","files":"all","delay_ms":2}"#),
        );
        assert!(faults.fail_operations());
        let (delay_ns, outcome) = faults.before_sync(Some(SEGMENT));
        assert_eq!(delay_ns, 2_000_000);
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(nix::libc::EIO));
        assert!(faults.before_sync(Some("quorum-state")).1.is_ok());
        assert!(faults.before_sync(None).1.is_ok());
        assert!(faults.before_write(SEGMENT).is_ok());
        let full = faults.before_write("quorum-state.tmp").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(faults.before_read(Some(SEGMENT)).is_ok());
        assert!(faults.before_read(None).is_ok());
        let snapshot = "00000000000000000003-0000000001.checkpoint.part";
        assert!(faults.before_read(Some(snapshot)).is_err());
        let counts = [3, 4, 5, 6, 7].map(|id| faults.remove(id));
        assert_eq!(counts, [1, 1, 1, 3, 0]);
        assert_eq!(faults, InjectedFaults::default());
        assert!(!faults.fail_operations());
    }
}
