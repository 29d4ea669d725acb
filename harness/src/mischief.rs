//! Owns which mischief the nodes of a simulated run are up to: drawn by seed, and recorded by name.
//! Never draws whether it happens at some moment; each node does, from what it is started with.

use node::mischief::{MischiefOptions, MischiefPoint};
use results::keyed_random::Stream;

/// How likely each point is to be on in a run, in percent. Few at a time: one hides what another shows.
const ON_PERCENT: u64 = 25;

/// The points that are on in the run of a seed, by id.
pub fn draw(seed: u64) -> Vec<String> {
    let is_on = |point: &MischiefPoint| {
        let stream = Stream::new(seed, &format!("mischief/{}", point.id()));
        stream.below(0, 0, 100) < ON_PERCENT
    };
    let points = MischiefPoint::ALL.into_iter().filter(is_on);
    points.map(|point| point.id().to_owned()).collect()
}

/// The points that were recorded by these ids.
///
/// # Errors
/// When there is no such point; the message names those that exist.
pub fn parse(ids: &[String]) -> Result<Vec<MischiefPoint>, String> {
    ids.iter().map(|id| id.parse()).collect()
}

/// What node number `id` does in its life number `incarnation`, in a run with these points.
pub fn options(seed: u64, points: &[MischiefPoint], id: u64, incarnation: u32) -> MischiefOptions {
    let seed = Stream::new(seed, "mischief").draw(id, u64::from(incarnation));
    MischiefOptions::new(seed, points.iter().copied())
}

/// All points, with what a node does there on a line of its own.
pub fn described() -> String {
    let line = |point: MischiefPoint| format!("  {}\n    {}", point.id(), point.does());
    MischiefPoint::ALL.map(line).join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn golden_values_never_change() {
        let drawn: Vec<Vec<String>> = (1..=6).map(draw).collect();
        assert_eq!(drawn, GOLDEN);
    }

    const GOLDEN: [&[&str]; 6] = [
        &["fetch-answered-early", "snapshot-taken"],
        &["fetch-answered-early"],
        &["arrivals-apart"],
        &[],
        &["arrivals-reversed"],
        &["arrivals-reversed"],
    ];

    #[test]
    fn every_point_comes_in_about_a_quarter_of_the_runs() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for id in (0..2_000_u64).flat_map(draw) {
            *counts.entry(id).or_default() += 1;
        }
        assert_eq!(counts.len(), MischiefPoint::ALL.len());
        assert!(
            counts.values().all(|count| (400..600).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn what_is_recorded_is_read_and_what_is_unknown_refused() {
        let ids = MischiefPoint::ALL.map(|point| point.id().to_owned());
        let all = parse(&ids).unwrap_or_default();
        assert_eq!(all, MischiefPoint::ALL);
        let first = options(1, &all, 1, 1);
        assert!(first.is_on() && !options(1, &[], 1, 1).is_on());
        assert_ne!(
            first,
            options(1, &all, 1, 2),
            "each life has draws of its own"
        );
        assert_ne!(first, options(1, &all, 2, 1));
        let told = parse(&["rain".into()]).expect_err("there is no such point");
        assert!(told.contains("known: arrivals-reversed"), "{told}");
    }
}
