//! Owns `--summary FILE`: what a CI system shows on the page of a job, added to the end of a file.
//! Never costs a run its verdict: what cannot be written is noted.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use results::campaign::Campaign;
use results::manifest::Manifest;
use results::store::RunFolder;
use results::verdict::{Validity, Verdict};
use results_report::{RunSummary, campaign_markdown, run_markdown};

use super::announce;
use crate::cli::SummaryArgs;
use crate::exit::Failure;
use crate::progress::Progress;

/// The file, opened before anything is run.
#[derive(Debug)]
pub(super) struct Summary {
    file: Option<File>,
}

impl Summary {
    /// Opens the file that was asked for, if any.
    ///
    /// # Errors
    /// When nothing can be added to it.
    pub(super) fn open(args: &SummaryArgs) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| {
                Failure::arguments(format!("--summary {}: {error}", path.display()))
            })
        };
        let file = args.summary.as_deref().map(open).transpose()?;
        Ok(Self { file })
    }

    /// Adds a run. `note` is what else is to be said; `folder` is where it is, if it was stored.
    pub(super) fn run(
        &mut self,
        (manifest, verdict): (&Manifest, &Verdict),
        folder: Option<&RunFolder>,
        note: Option<&str>,
        store: &str,
        progress: &Progress,
    ) {
        if self.file.is_none() {
            return;
        }
        let report = folder.map(|folder| folder.report_path().display().to_string());
        let then = folder.map(|folder| at_that_time(folder, verdict));
        let commands = match manifest.name.as_str() {
            "" => Vec::new(),
            name => commands(name, store, verdict.valid),
        };
        let run = RunSummary {
            manifest,
            verdict,
            report: report.as_deref(),
            then: &then.unwrap_or_default(),
            note,
            commands: &commands,
        };
        self.add(&run_markdown(&run), progress);
    }

    /// Adds a campaign.
    pub(super) fn campaign(
        &mut self,
        campaign: &Campaign,
        page: Option<&str>,
        store: &str,
        progress: &Progress,
    ) {
        let commands_of = |run: &str| commands(run, store, campaign.valid());
        self.add(&campaign_markdown(campaign, page, &commands_of), progress);
    }

    fn add(&mut self, text: &str, progress: &Progress) {
        let Some(file) = &mut self.file else {
            return;
        };
        // In one piece, and apart from what is there: others may add to the same file.
        let written = file.write_all(format!("{text}\n").as_bytes());
        if let Err(error) = written {
            progress.note(&format!("the summary could not be written: {error}"));
        }
    }
}

/// What went on at the time of a violation; nothing where that cannot be read, which the report tells.
fn at_that_time(folder: &RunFolder, verdict: &Verdict) -> Vec<String> {
    let schedule = folder.schedule();
    let told =
        schedule.map(|schedule| results_report::at_that_time(folder, verdict, &schedule.faults));
    told.unwrap_or_default()
}

/// What to do with a stored run.
fn commands(name: &str, store: &str, valid: Validity) -> Vec<(&'static str, String)> {
    let mut commands = vec![("Replay it", announce::command("replay", name, store))];
    if valid == Validity::Invalid {
        commands.push(("Shrink it", announce::command("shrink", name, store)));
    }
    commands
}
