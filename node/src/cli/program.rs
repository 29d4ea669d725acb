//! Owns how this program is called by those who use it: by itself, or as part of another one.
//! Never knows which programs those are.

use std::borrow::Cow;
use std::sync::OnceLock;

use clap::Command;

/// How it is called where it stands for itself.
pub(super) const OWN_NAME: &str = "kraft-node";

/// Set once, before any command line is read: a process has one command line.
static NAME: OnceLock<String> = OnceLock::new();

/// Notes how this program is called; the first call counts.
pub(super) fn call(name: &str) {
    let _ = NAME.set(name.to_owned());
}

/// How it is called.
pub(super) fn name() -> &'static str {
    NAME.get().map_or(OWN_NAME, String::as_str)
}

/// A text about its own commands, as somebody would have to type them.
pub(super) fn as_typed(text: &str) -> Cow<'_, str> {
    in_words_of(name(), text)
}

fn in_words_of<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    match name {
        OWN_NAME => Cow::Borrowed(text),
        _ => Cow::Owned(text.replace(OWN_NAME, name)),
    }
}

/// A command line whose help and usage name the program as `name`.
pub(super) fn named(command: Command, name: &str) -> Command {
    with_help_of(command, name).bin_name(name)
}

fn with_help_of(command: Command, name: &str) -> Command {
    let help = command.get_after_help().map(ToString::to_string);
    let command = match help {
        Some(help) => command.after_help(in_words_of(name, &help).into_owned()),
        None => command,
    };
    command.mut_subcommands(|subcommand| with_help_of(subcommand, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_usage_name_the_program_that_was_typed() {
        let mut command = named(super::super::definition(), "harness node");
        let whole = command.render_long_help().to_string();
        assert!(whole.contains("Usage: harness node <COMMAND>"), "{whole}");
        assert!(whole.contains("harness node start --id 1"), "{whole}");
        let error = command
            .try_get_matches_from_mut(["node", "format", "--help"])
            .unwrap_err();
        let format = error.to_string();
        assert!(format.contains("Usage: harness node format"), "{format}");
        assert!(format.contains("harness node format --id 1"), "{format}");
        for help in [whole, format] {
            assert!(!help.contains(OWN_NAME), "{help}");
        }
    }
}
