//! Owns the command lines by which a reader repeats a run.
//! Never runs them.

use results::manifest::{Manifest, Network, Voters};
use results::verdict::Validity;

use crate::reading::Run;
use crate::text::printable;

/// A command line with what it does.
#[derive(Debug)]
pub(crate) struct ReproduceCommand {
    /// What it does, for people.
    pub(crate) purpose: &'static str,
    /// Ready for a shell.
    pub(crate) command: String,
}

impl ReproduceCommand {
    /// The command cut before each flag; joined with spaces it is the command again.
    pub(crate) fn parts(&self) -> Vec<&str> {
        let mut parts = Vec::new();
        let mut rest = self.command.as_str();
        while let Some(cut) = rest.find(" --") {
            parts.push(&rest[..cut]);
            rest = &rest[cut + 1..];
        }
        parts.push(rest);
        parts
    }
}

/// The ways to repeat a run, the most exact one first; only those that its recording allows.
pub(crate) fn reproduce(run: &Run) -> Vec<ReproduceCommand> {
    let name = printable(&run.name);
    let store = run.manifest.as_ref().and_then(store_of);
    let network = run.manifest.as_ref().and_then(network_of);
    let on = |run: &str, verb: &str| {
        let run = printable(run);
        let mut words = vec!["harness", verb, &run];
        if verb != "analyze" {
            words.extend(network.iter().flat_map(|network| ["--network", *network]));
        }
        words.extend(store.iter().flat_map(|store| ["--out", store.as_str()]));
        line(&words)
    };
    let on_run = |verb: &str| on(&name, verb);
    let simulated = run.manifest.as_ref().is_some_and(Manifest::is_simulated);
    let invalid = run
        .verdict
        .as_ref()
        .is_some_and(|verdict| verdict.valid == Validity::Invalid);
    let mut commands = Vec::new();
    if run.schedule_is_readable() {
        commands.push(ReproduceCommand {
            purpose: if simulated {
                "Replay it: the same simulation, event by event"
            } else {
                "Replay it: the recorded faults against real processes"
            },
            command: on_run("replay"),
        });
        if invalid && run.manifest.is_some() {
            commands.push(ReproduceCommand {
                purpose: "Shrink it: look for fewer faults and clients that still fail",
                command: on_run("shrink"),
            });
        }
    }
    if let Some(manifest) = &run.manifest {
        // What a swarm drew cannot be written as flags; the replay above has it.
        if is_shrunk(manifest) {
            if let Some(origin) = &manifest.replay_of {
                commands.push(ReproduceCommand {
                    purpose: "Replay the run that this one was shrunk from",
                    command: on(origin, "replay"),
                });
            }
        } else if manifest.options.cluster.swarm.is_none() {
            commands.push(ReproduceCommand {
                purpose: if manifest.replay_of.is_some() {
                    "Start over from the seed (this run was itself a replay)"
                } else {
                    "Start over from the seed"
                },
                command: run_line(&name, manifest, run.faults.len()),
            });
        }
        commands.push(ReproduceCommand {
            purpose: "Judge this recording again",
            command: on_run("analyze"),
        });
    }
    commands
}

/// Whether the run came out of shrinking: no flags say what was left out of it.
fn is_shrunk(manifest: &Manifest) -> bool {
    let verb = manifest.environment.command.get(1);
    verb.is_some_and(|verb| verb == "shrink") || !manifest.options.left_out_operations.is_empty()
}

/// The folder of runs that the run was told to use, unless it is the usual one.
fn store_of(manifest: &Manifest) -> Option<String> {
    let mut words = manifest.environment.command.iter();
    while let Some(word) = words.next() {
        let store = match word.strip_prefix("--out") {
            Some("") => words.next().cloned(),
            Some(given) => given.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        if store.is_some() {
            return store.map(|store| printable(&store));
        }
    }
    None
}

/// What carried bytes between real processes, unless it was the usual.
fn network_of(manifest: &Manifest) -> Option<&'static str> {
    match manifest.options.cluster.network {
        Network::Namespace if !manifest.is_simulated() => Some("namespace"),
        _ => None,
    }
}

/// Whether a majority must recover alone, where that is not what happens by itself.
fn liveness_phase(manifest: &Manifest, from_file: bool) -> Option<&'static str> {
    let options = &manifest.options;
    let is_usual = !from_file && !options.nemesis.is_empty();
    (options.liveness_phase != is_usual).then_some(if options.liveness_phase {
        "on"
    } else {
        "off"
    })
}

fn run_line(name: &str, manifest: &Manifest, fault_count: usize) -> String {
    let options = &manifest.options;
    let nemesis = if options.nemesis.is_empty() {
        "none".to_owned()
    } else {
        options.nemesis.join(",")
    };
    let verb = if manifest.is_simulated() {
        "sim"
    } else {
        "run"
    };
    let mut words: Vec<String> = ["harness", verb].map(str::to_owned).into();
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    flag("--workload", options.workload.clone());
    let given = &manifest.environment.command;
    let from_file = given.iter().any(|word| word.starts_with("--schedule"))
        || options.nemesis == ["schedule"]
        || (options.nemesis.is_empty() && fault_count > 0);
    // The two exclude each other on the command line.
    if from_file {
        let store = store_of(manifest).unwrap_or_else(|| "runs".to_owned());
        flag("--schedule", format!("{store}/{name}/schedule.json"));
    } else {
        flag("--nemesis", nemesis);
    }
    flag("--nodes", options.nodes.to_string());
    let cluster = &options.cluster;
    if cluster.observers > 0 {
        flag("--observers", cluster.observers.to_string());
    }
    if cluster.voters == Voters::Log {
        flag("--voters", "log".into());
    }
    for (name, bytes) in [
        ("--snapshot-every", cluster.snapshot_bytes),
        ("--retention", cluster.retention_bytes),
    ] {
        if let Some(bytes) = bytes {
            flag(name, bytes.to_string());
        }
    }
    flag("--concurrency", options.concurrency.to_string());
    flag("--rate", options.rate_per_second.to_string());
    flag("--time", duration(options.time_ms));
    flag("--interval", duration(options.interval_ms));
    if options.healthy_ms > 0 && !from_file {
        flag("--healthy", duration(options.healthy_ms));
    }
    flag(
        "--operation-timeout",
        duration(options.operation_timeout_ms),
    );
    flag("--recovery-timeout", duration(options.recovery_timeout_ms));
    flag("--seed", manifest.seed.to_string());
    if let Some(bug) = &options.bug {
        flag("--bug", bug.clone());
    }
    if let Some(network) = network_of(manifest) {
        flag("--network", network.into());
    }
    if let Some(switch) = liveness_phase(manifest, from_file) {
        flag("--liveness-phase", switch.into());
    }
    if !cluster.mischief.is_empty() {
        flag("--mischief", "on".into());
    }
    if cluster.client_links {
        words.push("--client-links".into());
    }
    if cluster.trace_messages {
        words.push("--trace-messages".into());
    }
    line(&words)
}

/// A duration as a flag takes it: in seconds, or in milliseconds where there is a fraction.
fn duration(time_ms: u64) -> String {
    if time_ms.is_multiple_of(1000) {
        (time_ms / 1000).to_string()
    } else {
        format!("{time_ms}ms")
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
    fn durations_are_whole_numbers() {
        assert_eq!(duration(30_000), "30");
        assert_eq!(duration(7_500), "7500ms");
        assert_eq!(duration(1), "1ms");
    }
}
