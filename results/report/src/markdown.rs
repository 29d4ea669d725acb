//! Owns summaries in Markdown, as CI systems show them on the page of a job (GitHub's flavour, CommonMark).
//! Never lets text out of a recording become markup.

use std::fmt::Write as _;

use results::campaign::{Campaign, FailureGroup};
use results::manifest::Manifest;
use results::verdict::{Validity, Verdict};

use crate::text::{self, printable};

/// More groups of failures than this are in the campaign's own page.
const GROUP_COUNT_MAX: usize = 20;
/// Seeds of a group that are named.
const SEEDS_NAMED: usize = 12;
/// Longest reason of one checker, in characters.
const REASON_MAX_COUNT: usize = 400;

/// One run, as its summary tells it.
#[derive(Debug, Clone, Copy)]
pub struct RunSummary<'a> {
    /// What was asked for. It may have no name if it was not stored.
    pub manifest: &'a Manifest,
    /// What came out.
    pub verdict: &'a Verdict,
    /// Where the report is, if there is one.
    pub report: Option<&'a str>,
    /// What went on at the time of its violation, a line each.
    pub then: &'a [String],
    /// What else is to be said, for people.
    pub note: Option<&'a str>,
    /// Commands with what they do.
    pub commands: &'a [(&'a str, String)],
}

/// The summary of a run.
pub fn run_markdown(run: &RunSummary<'_>) -> String {
    let RunSummary {
        manifest, verdict, ..
    } = run;
    let name = match manifest.name.as_str() {
        "" => "a simulated run",
        name => name,
    };
    let mut text = heading(verdict.valid, name);
    let why = verdict.valid.reason_in(&verdict.summary);
    let _ = writeln!(text, "{}\n", escaped(why));
    if let Some(note) = run.note {
        let _ = writeln!(text, "{}\n", escaped(note));
    }
    if let Some(reason) = manifest.stop_reason() {
        let _ = writeln!(text, "This run {}.\n", escaped(reason.told()));
    }
    text.push_str(&at_that_time(run.then));
    text.push_str("| Checker | Verdict | Why |\n| --- | --- | --- |\n");
    for (name, result) in &verdict.checkers {
        let reason = text::shortened(&result.summary, REASON_MAX_COUNT);
        let _ = writeln!(
            text,
            "| {} | {} {} | {} |",
            escaped(name),
            sign(result.valid),
            result.valid.word(),
            escaped(&reason)
        );
    }
    let options = &manifest.options;
    let nemesis = match options.nemesis.as_slice() {
        [] => "none".to_owned(),
        families => families.join(", "),
    };
    let length = manifest.length_ms().map(text::duration_ms);
    let facts = [
        ("Workload", options.workload.clone()),
        ("Nemesis", nemesis),
        ("Seeded bug", options.bug.clone().unwrap_or_default()),
        ("Seed", manifest.seed.to_string()),
        ("Nodes", options.nodes.to_string()),
        ("World", manifest.world.clone()),
        ("Length", length.unwrap_or_default()),
        ("Report", run.report.unwrap_or_default().to_owned()),
    ];
    text.push('\n');
    text.push_str(&list(&facts));
    text.push_str(&commands(run.commands));
    text
}

fn at_that_time(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines
        .iter()
        .map(|line| format!("- {}\n", escaped(line)))
        .collect();
    format!("At that time:\n\n{lines}\n")
}

/// The summary of a campaign. `page` is where its page is, if there is one; `commands_of` are the commands for the
/// run of that name.
pub fn campaign_markdown(
    campaign: &Campaign,
    page: Option<&str>,
    commands_of: &dyn Fn(&str) -> Vec<(&'static str, String)>,
) -> String {
    let mut text = heading(campaign.valid(), &campaign.name);
    let _ = writeln!(text, "{}\n", escaped(&campaign.headline()));
    if let Some(reason) = campaign.stopped_by {
        let _ = writeln!(text, "This campaign {}.\n", escaped(reason.told()));
    }
    let facts = [
        (
            "Seeds",
            format!("{} to {}", campaign.first_seed, campaign.last_seed),
        ),
        ("Workload", campaign.workload.clone()),
        ("Nemesis", crate::campaign_page::nemesis(campaign)),
        ("Seeded bug", campaign.bug.clone().unwrap_or_default()),
        (
            "Took",
            format!(
                "{}, {:.1} seeds per second, {:.0} times as fast as real time",
                text::duration_ms(campaign.elapsed_ms),
                campaign.rate_per_second(),
                campaign.speed()
            ),
        ),
        (
            "Required, but never hit",
            campaign.required_but_missing.join(", "),
        ),
        ("Page", page.unwrap_or_default().to_owned()),
    ];
    text.push_str(&list(&facts));
    if campaign.groups.is_empty() {
        return text;
    }
    text.push_str("\n| Verdict | What | Seeds | Why (first seed) |\n| --- | --- | --- | --- |\n");
    for group in campaign.groups.iter().take(GROUP_COUNT_MAX) {
        text.push_str(&group_row(group));
    }
    match campaign.groups.len().saturating_sub(GROUP_COUNT_MAX) {
        0 => {}
        left => drop(writeln!(
            text,
            "\n{left} more groups are in the page of the campaign."
        )),
    }
    let stored = campaign.groups.iter().flat_map(|group| &group.outcomes);
    if let Some(run) = stored.filter_map(|outcome| outcome.run.as_deref()).next() {
        text.push_str(&commands(&commands_of(run)));
    }
    text
}

fn group_row(group: &FailureGroup) -> String {
    let named = group.outcomes.iter().take(SEEDS_NAMED);
    let named: Vec<_> = named.map(|outcome| outcome.seed.to_string()).collect();
    let more = match group.seed_count.saturating_sub(named.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = group.outcomes.first();
    let why = why.map_or("", |first| group.valid.reason_in(&first.summary));
    format!(
        "| {} {} | {} | {}{more} | {} |\n",
        sign(group.valid),
        group.valid.word(),
        escaped(&group.failures.join(", ")),
        named.join(", "),
        escaped(&text::shortened(why, REASON_MAX_COUNT)),
    )
}

fn heading(valid: Validity, name: &str) -> String {
    format!(
        "### {} {}: {}\n\n",
        sign(valid),
        valid.word().to_uppercase(),
        escaped(name)
    )
}

/// A sign beside the word: nobody needs to tell colours apart.
fn sign(valid: Validity) -> &'static str {
    match valid {
        Validity::Valid => "✅",
        Validity::Invalid => "❌",
        Validity::Unknown => "❔",
    }
}

/// A list of what has a value.
fn list(facts: &[(&str, String)]) -> String {
    let known = facts.iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| format!("- {name}: {}\n", escaped(value)))
        .collect()
}

/// Commands in blocks that need no escapes, and so can be copied as they stand.
fn commands(commands: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (purpose, command) in commands {
        let command = printable(command).replace(['\n', '\t'], " ");
        // A fence is longer than any that the command holds.
        let longest = command.split(|letter| letter != '`').map(str::len).max();
        let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
        let _ = write!(
            text,
            "\n{}:\n\n{fence}sh\n{command}\n{fence}\n",
            escaped(purpose)
        );
    }
    text
}

/// Text in one line of which nothing is markup, also within a table.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    let text = printable(text);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' | '\t' => safe.push(' '),
            // GitHub makes links of these without being asked to.
            '@' => safe.push_str("&#64;"),
            ':' if letters.peek() == Some(&'/') => safe.push_str("&#58;"),
            '.' if before == 'w' || before == 'W' => safe.push_str("&#46;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '+' | '!' | '|'
            | '~' | '$' | '^' | '=' => {
                safe.push('\\');
                safe.push(letter);
            }
            '-' if safe.is_empty() => safe.push_str("\\-"),
            '.' if !safe.is_empty() && safe.bytes().all(|byte| byte.is_ascii_digit()) => {
                safe.push_str("\\.");
            }
            letter => safe.push(letter),
        }
        before = letter;
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_recording_is_markup() {
        let evil = "<img src=x onerror=alert(1)> | a `b` *c* [d](http://e) ![f](g)\n# h\u{202e} @user www.x.y <!-- &amp;";
        let safe = escaped(evil);
        for markup in ["<", "| ", "](", "http:/", "@", "www.", "\n", "\u{202e}"] {
            let unescaped = safe.replace(&format!("\\{markup}"), "");
            assert!(
                !unescaped.contains(markup) || markup == "| ",
                "{markup}: {safe}"
            );
        }
        assert!(safe.contains("\\|") && safe.contains("\\`b\\`") && safe.contains("\\*c\\*"));
        assert_eq!(escaped("- 1"), "\\- 1");
        assert_eq!(escaped("12. x"), "12\\. x");
        assert_eq!(escaped("6 seeds: 1 valid"), "6 seeds: 1 valid");
        assert_eq!(
            escaped("from 17.328 s to 17.365 s"),
            "from 17.328 s to 17.365 s"
        );
    }

    #[test]
    fn a_violation_comes_with_what_went_on_then() {
        let told = at_that_time(&["fault #1: n1 | n2".to_owned(), "n1 led".to_owned()]);
        assert_eq!(
            told,
            "At that time:\n\n- fault \\#1: n1 \\| n2\n- n1 led\n\n"
        );
        assert_eq!(at_that_time(&[]), "");
    }

    #[test]
    fn a_command_stays_as_it_is_inside_its_fence() {
        let told = commands(&[("Replay it", "harness replay '````sh\n`x`'".to_owned())]);
        assert!(
            told.contains("\n`````sh\nharness replay '````sh `x`'\n`````\n"),
            "{told}"
        );
    }
}
