//! Owns how measurements are shown: medians, extremes, and the ratio to the first system.
//! Never hides a turn: the extremes are over all of them.

use std::fmt::Write;

use crate::load::{Measured, Turn};

/// One line per scenario and system.
pub(crate) fn render(measured: &[Measured]) -> String {
    let mut text = format!(
        "{:<9}{:>8}  {:<11}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}  {:>24}  {:<}\n",
        "what",
        "clients",
        "system",
        "median/s",
        "min/s",
        "max/s",
        "p50 ms",
        "p99 ms",
        "foreign",
        "cpu us (leader+rest,cli)",
        "first is faster by"
    );
    for line in measured {
        let first = measured
            .iter()
            .find(|other| other.scenario == line.scenario)
            .unwrap_or(line);
        let rates = sorted(line, |turn| turn.per_second);
        let _ = writeln!(
            text,
            "{:<9}{:>8}  {:<11}{:>10.0}{:>10.0}{:>10.0}{:>9.3}{:>9.3}{:>8.0}%  {:>24}  {}",
            if line.scenario.writes {
                "write"
            } else {
                "read"
            },
            line.scenario.client_count,
            line.system.name(),
            median(&rates),
            rates[0],
            rates[rates.len() - 1],
            median(&sorted(line, |turn| turn.median_us as f64)) / 1e3,
            median(&sorted(line, |turn| turn.p99_us as f64)) / 1e3,
            median(&sorted(line, |turn| turn.foreign)) * 100.0,
            format!(
                "{:.0}+{:.0},{:.0}",
                median(&sorted(line, |turn| turn.leader_us)),
                median(&sorted(line, |turn| turn.others_us)),
                median(&sorted(line, |turn| turn.client_us)),
            ),
            ratio(first, line),
        );
    }
    text
}

/// How much faster the first is: the ratio of the medians, and the extremes within a round.
fn ratio(first: &Measured, line: &Measured) -> String {
    if std::ptr::eq(first, line) {
        return String::new();
    }
    let of_medians = median(&sorted(first, |turn| turn.per_second))
        / median(&sorted(line, |turn| turn.per_second));
    let pairs = first.turns.iter().zip(&line.turns);
    let mut ratios: Vec<f64> = pairs
        .map(|(first, other)| first.per_second / other.per_second)
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    format!(
        "{of_medians:.2} ({:.2} to {:.2})",
        ratios[0],
        ratios[ratios.len() - 1]
    )
}

fn sorted(measured: &Measured, of: impl Fn(&Turn) -> f64) -> Vec<f64> {
    let mut numbers: Vec<f64> = measured.turns.iter().map(of).collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
