//! Owns who works on a run: a locked file in its folder, which the system unlocks when its owner dies.
//! Never removes what an owner left who died: somebody has yet to finish the run.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::PathBuf;

use crate::store::RunFolder;
use crate::{Error, Result};

/// Name of the file. It holds the process id of the owner, for people.
const FILE: &str = ".owner";

/// The right to write to a run folder, held from its making until it is judged.
///
/// What is dropped without [`Self::release`] looks as if the process had died.
#[derive(Debug)]
pub struct Ownership {
    path: PathBuf,
    /// Open as long as the lock is held.
    _file: File,
}

/// What is known of the owner of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The run was finished, or is from a version without owners.
    None,
    /// Works on it.
    Alive,
    /// Is gone without having finished it.
    Dead,
}

impl RunFolder {
    /// Takes a run, so that others see that somebody works on it.
    ///
    /// # Errors
    /// When the file cannot be written, or the file system knows no locks.
    pub fn claim(&self) -> Result<Ownership> {
        let path = self.path().join(FILE);
        let fresh = self
            .path()
            .join(format!("{FILE}-{}.tmp", std::process::id()));
        let claimed = || -> std::io::Result<File> {
            let mut file = File::create(&fresh)?;
            // Locked before it has its name: nobody may find it unlocked and take the run for abandoned.
            file.lock()?;
            writeln!(file, "{}", std::process::id())?;
            std::fs::rename(&fresh, &path)?;
            Ok(file)
        };
        match claimed() {
            Ok(file) => Ok(Ownership { path, _file: file }),
            Err(source) => {
                let _ = std::fs::remove_file(&fresh);
                Err(Error::io("lock", path, source))
            }
        }
    }

    /// Who works on the run.
    pub fn owner(&self) -> Owner {
        let Ok(file) = File::open(self.path().join(FILE)) else {
            return Owner::None;
        };
        match file.try_lock_shared() {
            Ok(()) => Owner::Dead,
            Err(TryLockError::WouldBlock) => Owner::Alive,
            // Whoever wrote it could lock it, so this is not known.
            Err(TryLockError::Error(_)) => Owner::None,
        }
    }
}

impl Ownership {
    /// Nobody has to work on the run any more.
    pub fn release(self) {
        // If it stays, the run looks abandoned, and judging it once more is all that it takes.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn an_owner_is_alive_until_the_run_is_finished_or_dead_if_it_never_is() {
        let root = tempfile::tempdir().unwrap();
        let folder = Store::new(root.path()).create_run("one").unwrap();
        assert_eq!(folder.owner(), Owner::None);
        let ownership = folder.claim().unwrap();
        assert_eq!([folder.owner(), folder.owner()], [Owner::Alive; 2]);
        ownership.release();
        assert_eq!(folder.owner(), Owner::None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(folder.claim().unwrap());
        assert_eq!(folder.owner(), Owner::Dead);
        folder.claim().unwrap().release();
        assert_eq!(folder.owner(), Owner::None);
    }
}
