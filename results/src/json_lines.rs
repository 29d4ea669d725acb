//! Owns reading and writing of files with one JSON object per line.
//! Never drops a line silently: a damaged line is an error that names file, line and field.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result, packed};

/// Reads all lines of `path`, packed or not.
///
/// A last line without its newline is what a killed writer leaves behind; it is left out if it does
/// not parse. Any other line that does not parse is an error.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    parse(path, &packed::read(path)?)
}

/// Takes apart what was read of `path`, as [`read`] does.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<Vec<T>> {
    let mut items = Vec::new();
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(item) => items.push(item),
            Err(_) if !line.ends_with(b"\n") => break,
            Err(error) => return Err(Error::malformed(path, number + 1, &error)),
        }
    }
    Ok(items)
}

/// Appends lines to a file; every line reaches the operating system before `append` returns.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
}

impl Writer {
    /// Creates the file, which must not exist yet.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create_new(path).map_err(|source| Error::io("create", path, source))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            line: Vec::new(),
        })
    }

    /// Writes one line.
    pub fn append<T: Serialize>(&mut self, item: &T) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, item)
            .map_err(|error| Error::io("write", &self.path, error.into()))?;
        self.line.push(b'\n');
        self.file
            .write_all(&self.line)
            .map_err(|source| Error::io("write", &self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let (_folder, path) = file_with("{\"a\":1}\n{\"a\":2}\n{\"a\":");
        assert_eq!(
            read::<Value>(&path).unwrap(),
            [json!({"a":1}), json!({"a":2})]
        );
    }

    #[test]
    fn a_damaged_line_in_the_middle_names_itself() {
        let (_folder, path) = file_with("{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
        let message = read::<Value>(&path).unwrap_err().to_string();
        assert!(message.contains("lines.jsonl line 2"), "{message}");
    }

    #[test]
    fn a_missing_field_is_named() {
        let (_folder, path) = file_with("{\"index\":0}\n");
        let message = read::<crate::history::Operation>(&path)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("line 1") && message.contains("`time`"),
            "{message}"
        );
        assert_eq!(message.matches("line").count(), 2, "{message}");
    }

    #[test]
    fn written_lines_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.jsonl");
        let mut writer = Writer::create(&path).unwrap();
        writer.append(&json!({"a":1})).unwrap();
        writer.append(&json!("two")).unwrap();
        assert_eq!(
            read::<Value>(&path).unwrap(),
            [json!({"a":1}), json!("two")]
        );
        assert!(
            Writer::create(&path).is_err(),
            "an existing recording is never overwritten"
        );
    }
}
