//! Owns turning a simulated run into a run folder like any other.
//! Never changes what was recorded.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use results::history::Operation;
use results::json_lines::Writer;
use results::store::{RunFolder, Store};

use super::session::Simulated;
use crate::exit::Failure;

/// How a run is called, and where it comes from.
#[derive(Debug, Clone, Default)]
pub struct Label {
    /// Beginning of its name.
    pub beginning: String,
    /// The run that it repeats, if any.
    pub replay_of: Option<String>,
    /// The command line.
    pub command: Vec<String>,
}

/// Stores a run: everything but the report. `with_data` keeps the disks of the nodes, too. Returns its
/// folder; its name is in the manifest.
///
/// # Errors
/// When the folder cannot be written.
pub fn store_run(
    store: &Store,
    simulated: &Simulated,
    label: &Label,
    with_data: bool,
) -> Result<RunFolder, Failure> {
    let mut manifest = simulated.recording.manifest.clone();
    manifest.name = format!(
        "{}-{}-{}",
        label.beginning,
        manifest.started.format("%Y%m%dT%H%M%S%3fZ"),
        manifest.seed
    );
    manifest.replay_of.clone_from(&label.replay_of);
    manifest.environment.command.clone_from(&label.command);
    let folder = store.create_run(&manifest.name)?;
    folder.write_manifest(&manifest)?;
    folder.write_schedule(&simulated.recording.schedule)?;
    write_history(&folder, &simulated.recording.history)?;
    for (node, files) in &simulated.disks {
        let path = folder.node_path(node);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        write_log(&path.join("node.log"), simulated.last_words.get(node))?;
        let mut trace = Writer::create(&folder.trace_path(node))?;
        let events = simulated.recording.trace.iter();
        for event in events.filter(|event| event.node == *node) {
            trace.append(event)?;
        }
        if let Some(image) = simulated.recording.disks.get(node) {
            folder.write_disk(node, image)?;
        }
        if with_data {
            write_data(&path.join("data"), files)?;
        }
    }
    folder.seal()?;
    folder.write_verdict(&simulated.verdict)?;
    Ok(folder)
}

fn write_history(folder: &RunFolder, history: &[Operation]) -> Result<(), Failure> {
    let mut lines = Writer::create(&folder.history_path())?;
    for operation in history {
        lines.append(operation)?;
    }
    Ok(())
}

fn write_log(path: &Path, words: Option<&Vec<String>>) -> Result<(), Failure> {
    let written = std::fs::File::create(path).and_then(|mut file| {
        let mut words = words.into_iter().flatten();
        words.try_for_each(|line| writeln!(file, "{line}"))
    });
    Ok(written.with_context(|| format!("cannot write {}", path.display()))?)
}

fn write_data(path: &Path, files: &[(String, Vec<u8>)]) -> Result<(), Failure> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    for (name, content) in files {
        let path = path.join(name);
        std::fs::write(&path, content)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
