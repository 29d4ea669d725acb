//! Owns the command lines by which a reader repeats a run.
//! Never runs them.

use results::manifest::Manifest;

/// A command line with what it does.
#[derive(Debug)]
pub(crate) struct ReproduceCommand {
    /// What it does, for people.
    pub(crate) purpose: &'static str,
    /// Ready for a shell.
    pub(crate) command: String,
}

/// The ways to repeat the run called `name`, the most exact one first.
pub(crate) fn reproduce(
    name: &str,
    manifest: Option<&Manifest>,
    fault_count: usize,
) -> Vec<ReproduceCommand> {
    let mut commands = vec![ReproduceCommand {
        purpose: "Repeat the recorded faults against real processes",
        command: line(&["harness", "replay", name]),
    }];
    if let Some(manifest) = manifest {
        commands.push(ReproduceCommand {
            purpose: if manifest.replay_of.is_some() {
                "Start over from the seed (this run was itself a replay)"
            } else {
                "Start over from the seed"
            },
            command: run_line(name, manifest, fault_count),
        });
    }
    commands.push(ReproduceCommand {
        purpose: "Judge this recording again",
        command: line(&["harness", "analyze", name]),
    });
    commands
}

fn run_line(name: &str, manifest: &Manifest, fault_count: usize) -> String {
    let options = &manifest.options;
    let nemesis = if options.nemesis.is_empty() {
        "none".to_owned()
    } else {
        options.nemesis.join(",")
    };
    let mut words: Vec<String> = ["harness", "run"].map(str::to_owned).into();
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    flag("--workload", options.workload.clone());
    flag("--nemesis", nemesis);
    flag("--nodes", options.nodes.to_string());
    flag("--concurrency", options.concurrency.to_string());
    flag("--rate", options.rate_per_second.to_string());
    flag("--time", seconds(options.time_ms));
    flag("--interval", seconds(options.interval_ms));
    flag("--seed", manifest.seed.to_string());
    if let Some(bug) = &options.bug {
        flag("--bug", bug.clone());
    }
    let given = &manifest.environment.command;
    let from_file = given.iter().any(|word| word.starts_with("--schedule"));
    if from_file || (options.nemesis.is_empty() && fault_count > 0) {
        flag("--schedule", format!("runs/{name}/schedule.json"));
    }
    line(&words)
}

/// Seconds as a flag takes them, without a fraction where there is none.
fn seconds(time_ms: u64) -> String {
    if time_ms.is_multiple_of(1000) {
        (time_ms / 1000).to_string()
    } else {
        let text = format!("{}.{:03}", time_ms / 1000, time_ms % 1000);
        text.trim_end_matches('0').to_owned()
    }
}

/// Joins words so that a POSIX shell takes them apart again in the same way.
pub(crate) fn line<T: AsRef<str>>(words: &[T]) -> String {
    let quoted = words.iter().map(|word| {
        let word = word.as_ref();
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&byte);
        if !word.is_empty() && word.bytes().all(safe) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
        assert_eq!(
            line(&["harness", "replay", "it's $HOME; rm"]),
            r"harness replay 'it'\''s $HOME; rm'"
        );
        assert_eq!(line(&["a", ""]), "a ''");
    }

    #[test]
    fn seconds_have_a_fraction_only_where_needed() {
        assert_eq!(seconds(30_000), "30");
        assert_eq!(seconds(7_500), "7.5");
        assert_eq!(seconds(1), "0.001");
    }
}
