//! Owns recorded files that are kept compressed (gzip, RFC 1952): their names, reading and packing them.
//! Never removes a file before all of it was read back out of its other form.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::{Error, Result, byte_size};

/// What the name of a packed file ends with.
pub const ENDING: &str = ".gz";

/// Smaller files are left as they are, so that anything can look into them.
pub const WORTH_PACKING_BYTES: u64 = 1 << 20;

/// What unpacks to more is refused, as a few bytes can unpack to any number; and what is larger is not packed.
pub const UNPACKED_MAX_BYTES: u64 = 4 << 30;

/// Whether a file of this size is packed.
pub fn is_worth_packing(size_bytes: u64) -> bool {
    (WORTH_PACKING_BYTES..=UNPACKED_MAX_BYTES).contains(&size_bytes)
}

/// The name under which `path` is kept when it is packed.
pub fn packed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ENDING);
    PathBuf::from(name)
}

/// Where the content of `path` is: the file itself, or its packed form if only that is there.
pub fn present(path: &Path) -> PathBuf {
    let packed = packed_path(path);
    if !path.exists() && packed.exists() {
        packed
    } else {
        path.to_path_buf()
    }
}

/// Reads all of a file, packed or not.
///
/// # Errors
/// When it cannot be read, or its packed form is damaged or unpacks to more than [`UNPACKED_MAX_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let place = present(path);
    let content = match place == *path {
        true => plain(path),
        false => unpacked(&place, UNPACKED_MAX_BYTES),
    };
    content.map_err(|source| Error::io("read", &place, source))
}

/// Opens what is a file: from a pipe or a device, reading could wait or go on for ever.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

fn plain(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open_file(path)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut content = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// What the packed file at `place` holds, if that is not more than so many bytes.
fn unpacked(place: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let decoder = GzDecoder::new(io::BufReader::new(open_file(place)?));
    decoder.take(max_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        let limit = byte_size::shown(max_bytes);
        return Err(io::Error::other(format!(
            "it unpacks to more than {limit}, which no recorded file does"
        )));
    }
    Ok(content)
}

/// Replaces a file by its packed form.
///
/// # Errors
/// When the packed form cannot be written, or does not hold what it should. The file is still there then.
pub fn pack(path: &Path) -> Result<()> {
    let packed = packed_path(path);
    let mut temporary = packed.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let replaced = compress(path, &temporary)
        .and_then(|()| is_same(path, &temporary))
        .and_then(|is_same| match is_same {
            true => std::fs::rename(&temporary, &packed),
            false => Err(io::Error::other("what was written does not read back")),
        });
    if let Err(source) = replaced {
        let _ = std::fs::remove_file(&temporary);
        return Err(Error::io("compress", path, source));
    }
    std::fs::remove_file(path).map_err(|source| Error::io("remove", path, source))
}

fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let mut plain = File::open(from)?;
    // The best ratio takes five times as long for a tenth less.
    let mut packer = GzEncoder::new(File::create(to)?, Compression::fast());
    io::copy(&mut plain, &mut packer)?;
    packer.flush()?;
    packer.finish()?.sync_all()
}

/// Whether the packed file holds exactly what the plain one does.
fn is_same(plain: &Path, packed: &Path) -> io::Result<bool> {
    let mut plain = io::BufReader::new(File::open(plain)?);
    let mut unpacked = GzDecoder::new(io::BufReader::new(File::open(packed)?));
    let (mut one, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = unpacked.read(&mut other)?;
        if count == 0 {
            return Ok(plain.read(&mut one)? == 0);
        }
        if plain.read_exact(&mut one[..count]).is_err() || one[..count] != other[..count] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("it is not a file"), "{error}");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it is not a file"), "{error}");
    }

    #[test]
    fn a_packed_file_reads_as_before_and_is_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let text: String = (0..50_000)
            .map(|line| format!("{{\"index\":{line}}}\n"))
            .collect();
        std::fs::write(&path, &text).unwrap();
        pack(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(present(&path), packed_path(&path));
        assert_eq!(read(&path).unwrap(), text.as_bytes());
        let packed_bytes = std::fs::metadata(packed_path(&path)).unwrap().len();
        assert!(packed_bytes * 4 < text.len() as u64, "{packed_bytes}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_an_error_that_names_the_packed_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        std::fs::write(&path, "one\n".repeat(10_000)).unwrap();
        pack(&path).unwrap();
        let whole = std::fs::read(packed_path(&path)).unwrap();
        std::fs::write(packed_path(&path), &whole[..whole.len() / 2]).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("history.jsonl.gz"), "{message}");
        std::fs::remove_file(packed_path(&path)).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("history.jsonl:"), "{message}");
    }

    #[test]
    fn what_unpacks_to_more_than_there_may_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        std::fs::write(&path, vec![b' '; 100_000]).unwrap();
        pack(&path).unwrap();
        let place = packed_path(&path);
        assert_eq!(unpacked(&place, 100_000).unwrap().len(), 100_000);
        let message = unpacked(&place, 99_999).unwrap_err().to_string();
        assert!(message.contains("more than 97.7 KiB"), "{message}");
        assert!(is_worth_packing(WORTH_PACKING_BYTES) && !is_worth_packing(UNPACKED_MAX_BYTES + 1));
    }

    #[test]
    fn a_plain_file_counts_for_more_than_a_packed_one_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        std::fs::write(&path, "old").unwrap();
        pack(&path).unwrap();
        std::fs::write(&path, "new").unwrap();
        assert_eq!(read(&path).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_packed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        std::fs::write(&path, "all of it").unwrap();
        std::fs::create_dir(packed_path(&path)).unwrap();
        std::fs::write(packed_path(&path).join("in the way"), "").unwrap();
        assert!(pack(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it");
    }
}
