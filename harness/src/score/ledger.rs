//! Owns what was measured: hunts, shrunk runs and the unmodified node, each with the command that measured it.
//! Never lets a command take away what another has measured and it has not measured again.

use std::collections::BTreeMap;
use std::path::Path;

use node::mutants::{Bug, Priority};
use serde::{Deserialize, Serialize};

use super::{Caught, Hunt, Way};
use crate::exit::Failure;

/// Everything that was measured, with how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Score {
    /// How, as the others refer to it by position; the latest is the last.
    pub measurements: Vec<Measurement>,
    /// The unmodified node under the same faults.
    pub unmodified: Unmodified,
    /// All hunts.
    pub hunts: Vec<Caught>,
    /// Runs that noticed a bug, shrunk.
    pub shrunk: Vec<ShrunkRun>,
    /// Ids of the bugs that were asked for, in their order.
    pub bugs: Vec<String>,
    /// Hunts that were planned and not begun, because time was over or somebody stopped it.
    pub not_begun_count: u64,
}

/// Who measured, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// The commands that made it; several if one went on where another had ended.
    pub commands: Vec<String>,
    /// Version and commit of the harness.
    pub harness: String,
    /// Operating system, architecture and number of processors.
    pub machine: String,
    /// When the first of the commands began, UTC.
    pub date: String,
    /// What runs were made of, for people: measurements with the same words can be compared.
    pub settings: String,
}

/// What the checkers said of the unmodified node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Unmodified {
    /// Seeds that were run.
    pub seed_count: u64,
    /// Seeds called invalid: false alarms.
    pub invalid_count: u64,
    /// Seeds of which nothing could be concluded.
    pub unknown_count: u64,
    /// Seeds of the false alarms, with what was said to be violated.
    pub false_alarms: Vec<(u64, Vec<String>)>,
    /// Wall-clock time, in milliseconds.
    pub elapsed_ms: u64,
    /// Position of the measurement.
    pub measurement: usize,
}

/// A run that noticed a bug, made smaller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShrunkRun {
    /// Id of the bug.
    pub bug: String,
    /// How the run was found.
    pub way: Way,
    /// Its seed.
    pub seed: u64,
    /// What it violates, before and after.
    pub failures: Vec<String>,
    /// Faults before.
    pub fault_count_before: usize,
    /// Faults that are left.
    pub fault_count: usize,
    /// Operations of clients that are left.
    pub operation_count: u64,
    /// Nodes that are left.
    pub node_count: u32,
    /// Length of the workload that is left, in milliseconds.
    pub time_ms: u64,
    /// Runs that it took.
    pub run_count: u32,
    /// Whether time or runs were used up before everything was tried.
    pub is_exhausted: bool,
    /// Position of the measurement.
    pub measurement: usize,
}

impl Score {
    /// What an earlier command has left, if any.
    ///
    /// # Errors
    /// When it cannot be read, with what to do about it.
    pub fn read(path: &Path) -> Result<Option<Self>, Failure> {
        if !path.exists() {
            return Ok(None);
        }
        let read = results::store::read_document(path);
        read.map(Some).map_err(|error| {
            Failure::arguments(format!(
                "what was measured before cannot be kept: {error}; give another --table, or remove {}",
                path.display()
            ))
        })
    }

    /// The score before the first hunt of a command, which hunts these bugs. `resumes` goes on with what
    /// the same harness has measured on the same machine with the same settings, if anything.
    pub fn begin(
        earlier: Option<Self>,
        bugs: &[Bug],
        measurement: Measurement,
        resumes: bool,
    ) -> Self {
        let mut score = earlier.unwrap_or(Self {
            measurements: Vec::new(),
            unmodified: Unmodified::default(),
            hunts: Vec::new(),
            shrunk: Vec::new(),
            bugs: Vec::new(),
            not_begun_count: 0,
        });
        let known = |bug: &Bug| bugs.contains(bug) || score.bugs.iter().any(|id| id == bug.id());
        let all = Bug::ALL.iter().filter(|bug| known(bug));
        score.bugs = all.map(|bug| bug.id().to_owned()).collect();
        score.not_begun_count = 0;
        let alike = |other: &Measurement| {
            (&other.harness, &other.machine, &other.settings)
                == (
                    &measurement.harness,
                    &measurement.machine,
                    &measurement.settings,
                )
        };
        let earlier: Vec<usize> = (0..score.measurements.len())
            .filter(|position| resumes && alike(&score.measurements[*position]))
            .collect();
        let mut going_on = measurement.clone();
        if let Some(first) = earlier.first() {
            going_on.date = score.measurements[*first].date.clone();
            let commands = earlier.iter().map(|it| &score.measurements[*it].commands);
            let mut commands: Vec<String> = commands.flatten().cloned().collect();
            for command in measurement.commands {
                if !commands.contains(&command) {
                    commands.push(command);
                }
            }
            going_on.commands = commands;
        }
        score.measurements.push(going_on);
        for position in earlier {
            score.refer(position, score.measurements.len() - 1);
        }
        score
    }

    /// Position of the measurement that goes on.
    pub fn current(&self) -> usize {
        self.measurements.len().saturating_sub(1)
    }

    /// Whether this hunt is over, in the measurement that goes on.
    pub fn has(&self, hunt: &Hunt) -> bool {
        let is_it = |caught: &Caught| caught.is_complete && self.is_of(caught, hunt);
        self.hunts.iter().any(is_it)
    }

    /// Whether this hunt was begun, in the measurement that goes on.
    pub fn has_begun(&self, hunt: &Hunt) -> bool {
        self.hunts.iter().any(|caught| self.is_of(caught, hunt))
    }

    fn is_of(&self, caught: &Caught, hunt: &Hunt) -> bool {
        caught.measurement == self.current()
            && caught.bug == hunt.bug.id()
            && (&caught.way, caught.repetition) == (&hunt.way, hunt.repetition)
            && (caught.first_seed, caught.seed_count) == (hunt.first_seed, hunt.seed_count)
    }

    /// Takes what came of a hunt. What other measurements know of the bug in this way goes.
    pub fn add(&mut self, mut caught: Caught) {
        let current = self.current();
        caught.measurement = current;
        self.hunts.retain(|other| {
            let is_same = (&other.bug, &other.way) == (&caught.bug, &caught.way);
            let is_again = other.measurement != current || other.repetition == caught.repetition;
            !(is_same && is_again)
        });
        self.hunts.push(caught);
    }

    /// Takes a shrunk run instead of any other of the bug.
    pub fn add_shrunk(&mut self, mut shrunk: ShrunkRun) {
        shrunk.measurement = self.current();
        self.shrunk.retain(|other| other.bug != shrunk.bug);
        self.shrunk.push(shrunk);
    }

    /// Takes what was said of the unmodified node.
    pub fn add_unmodified(&mut self, unmodified: Unmodified) {
        self.unmodified = Unmodified {
            measurement: self.current(),
            ..unmodified
        };
    }

    /// Forgets measurements that nothing refers to, apart from the current one, and brings all into order.
    pub fn tidy(&mut self) {
        let current = self.current();
        let mut kept = BTreeMap::new();
        let used = |position: &usize| *position == current || self.refers_to(*position);
        for position in (0..self.measurements.len()).filter(used) {
            kept.insert(position, kept.len());
        }
        let measurements = std::mem::take(&mut self.measurements).into_iter();
        let measurements = measurements.enumerate();
        let measurements = measurements.filter(|(position, _)| kept.contains_key(position));
        self.measurements = measurements.map(|(_, it)| it).collect();
        for (old, new) in kept {
            self.refer(old, new);
        }
        let order: BTreeMap<&str, usize> = Bug::ALL
            .iter()
            .enumerate()
            .map(|(position, bug)| (bug.id(), position))
            .collect();
        let place = |bug: &str| order.get(bug).copied();
        self.hunts.sort_by(|one, other| {
            let key = |it: &Caught| (place(&it.bug), it.way.clone(), it.repetition);
            key(one).cmp(&key(other))
        });
        self.shrunk.sort_by_key(|shrunk| place(&shrunk.bug));
    }

    fn refers_to(&self, position: usize) -> bool {
        self.hunts.iter().any(|it| it.measurement == position)
            || self.shrunk.iter().any(|it| it.measurement == position)
            || (self.unmodified.seed_count > 0 && self.unmodified.measurement == position)
    }

    fn refer(&mut self, old: usize, new: usize) {
        let hunts = self.hunts.iter_mut().map(|it| &mut it.measurement);
        let shrunk = self.shrunk.iter_mut().map(|it| &mut it.measurement);
        let unmodified = std::iter::once(&mut self.unmodified.measurement);
        for measurement in hunts.chain(shrunk).chain(unmodified) {
            if *measurement == old {
                *measurement = new;
            }
        }
    }

    /// The bugs of this priority that were asked for.
    pub fn of_priority(&self, priority: Priority) -> impl Iterator<Item = Bug> {
        let bugs = self.bugs.iter().filter_map(|id| id.parse::<Bug>().ok());
        bugs.filter(move |bug| bug.priority() == priority)
    }

    /// The hunts for a bug in a way.
    pub fn hunts_of(&self, bug: Bug, way: &Way) -> Vec<&Caught> {
        let hunts = self.hunts.iter();
        let of_it = hunts.filter(|it| it.bug == bug.id() && it.way == *way);
        of_it.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(harness: &str, command: &str) -> Measurement {
        Measurement {
            commands: vec![command.into()],
            harness: harness.into(),
            machine: "m".into(),
            date: "d".into(),
            settings: "s".into(),
        }
    }

    fn hunt(bug: Bug, way: Way, repetition: u32) -> Hunt {
        Hunt {
            bug,
            way,
            repetition,
            first_seed: 1,
            seed_count: 10,
        }
    }

    fn over(hunt: &Hunt, is_complete: bool) -> Caught {
        Caught {
            tried_count: 10,
            is_complete,
            ..Caught::begin(hunt)
        }
    }

    const TWO: [Bug; 2] = [Bug::StaleRead, Bug::AckOnAppend];

    #[test]
    fn what_is_not_measured_again_stays_with_the_command_that_measured_it() {
        let mut first = Score::begin(None, &TWO, measurement("h1", "first"), false);
        let stock = hunt(Bug::AckOnAppend, Way::Stock, 1);
        first.add(over(&stock, true));
        first.add(over(&hunt(Bug::AckOnAppend, Way::Processes, 1), true));
        first.add(over(&hunt(Bug::StaleRead, Way::Stock, 1), true));
        first.add_unmodified(Unmodified {
            seed_count: 3,
            ..Unmodified::default()
        });
        first.tidy();
        let asked = [Bug::AckOnAppend];
        let mut second = Score::begin(Some(first), &asked, measurement("h2", "second"), true);
        assert!(
            !second.has(&stock),
            "another harness measured it, so it is hunted again"
        );
        second.add(over(&stock, true));
        second.tidy();
        assert!(second.has(&stock) && second.hunts.len() == 3);
        assert_eq!(second.bugs, ["B09", "B51"]);
        let by: Vec<(&str, &str)> = second
            .hunts
            .iter()
            .map(|it| (&*it.bug, &*second.measurements[it.measurement].commands[0]))
            .collect();
        assert_eq!(by, [("B09", "second"), ("B09", "first"), ("B51", "first")]);
        assert_eq!(second.unmodified.measurement, 0);
        // Once nothing is left of the first, nobody needs to know how it was made.
        second.add(over(&hunt(Bug::StaleRead, Way::Stock, 1), true));
        second.add(over(&hunt(Bug::AckOnAppend, Way::Processes, 1), true));
        second.add_unmodified(Unmodified {
            seed_count: 1,
            ..Unmodified::default()
        });
        second.tidy();
        assert_eq!(second.measurements.len(), 1);
        assert!(second.hunts.iter().all(|it| it.measurement == 0));
    }

    #[test]
    fn whoever_goes_on_keeps_what_is_complete_and_repeats_the_rest() {
        let (one, two) = (
            hunt(Bug::AckOnAppend, Way::Stock, 1),
            hunt(Bug::AckOnAppend, Way::Stock, 2),
        );
        let mut first = Score::begin(None, &TWO, measurement("h", "first"), false);
        first.add(over(&one, true));
        first.add(over(&two, false));
        let mut again = Score::begin(Some(first.clone()), &TWO, measurement("h", "more"), true);
        assert!(again.has(&one) && !again.has(&two) && again.has_begun(&two));
        let larger = Hunt {
            seed_count: 20,
            ..one.clone()
        };
        assert!(!again.has(&larger), "it has fewer seeds than are asked for");
        again.add(over(&two, true));
        again.tidy();
        assert_eq!(again.hunts.len(), 2);
        assert_eq!(again.measurements.len(), 1);
        assert_eq!(again.measurements[0].commands, ["first", "more"]);
        let anew = Score::begin(Some(first), &TWO, measurement("h", "anew"), false);
        assert!(!anew.has(&one), "nobody asked to go on");
    }
}
