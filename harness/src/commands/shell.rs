//! Owns what shells and manuals need to know of the command line: completions and the manual page.
//! Never describes a flag itself; both come from the definition of the command line.

use anyhow::Context;
use clap_complete::Shell;

use super::announce;
use crate::cli;
use crate::exit::Failure;

/// Executes `harness completions`.
///
/// # Errors
/// When standard output is closed.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "harness", &mut script);
    print(script)
}

/// Executes `harness man`: one page for the program and all of its commands, for `man -l -`.
///
/// # Errors
/// When standard output is closed.
pub fn man() -> Result<u8, Failure> {
    let mut page = Vec::new();
    let mut program = cli::definition();
    program.build();
    let rendered = clap_mangen::Man::new(program.clone()).render(&mut page);
    rendered.context("cannot make the manual page")?;
    let commands = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    for command in commands.filter(|command| command.get_name() != "help") {
        let name = format!("harness {}", command.get_name());
        page.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
        let manual = clap_mangen::Man::new(command.clone().display_name(name));
        let parts = manual
            .render_description_section(&mut page)
            .and_then(|()| manual.render_options_section(&mut page));
        parts.context("cannot make the manual page")?;
    }
    print(page)
}

fn print(bytes: Vec<u8>) -> Result<u8, Failure> {
    let text = String::from_utf8(bytes).context("the text is not UTF-8")?;
    announce::print(text.trim_end())?;
    Ok(0)
}
