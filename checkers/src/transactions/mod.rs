//! Owns the check of transactions of appends and reads of lists: is there an order of them, that of real time,
//! in which each sees exactly what those before it did?
//! Never takes a search for an answer: without a contradiction the graph is such an order.
//!
//! As lists keep the order of their appends, reads tell in which order elements came. From that follows which
//! transaction must come before which (Adya, Liskov & O'Neil 2000; Kingsbury & Alvaro, Elle, VLDB 2020). If
//! that has no cycle, any order that respects it explains all reads; if it has one, no order does. What was
//! appended for certain and read by nobody must come after every read of the list.

mod anomaly;
mod components;
mod cycles;
mod flaws;
mod graph;
mod guesses;
mod table;
mod versions;
mod words;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use results::history::Operation;
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Value as Json, json};

pub use anomaly::{Anomaly, Kind};

use crate::histories::{self, Damage, History};
use crate::{conclusion, counted, not_understood};
use anomaly::Anomalies;
use graph::Graph;
use guesses::Guessed;
use table::Table;
use versions::{Guess, Versions};

const SOURCE: &str = "Adya 1999 (isolation by cycles); Kingsbury & Alvaro 2020 (Elle)";

/// Cycles that are searched for and told; the components of the others are counted.
const CYCLES_MAX_COUNT: usize = 20;

/// What was found in a history.
#[derive(Debug)]
pub struct Findings {
    /// How much there was to check.
    pub counts: Counts,
    anomalies: Anomalies,
    /// By place among the anomalies that are told: the transactions, for programs.
    evidence: Vec<Json>,
    /// What was passed over when the history was read.
    pub notes: Vec<String>,
    /// What is to be said of elements that were appended repeatedly, where it matters.
    repeated: Option<String>,
    /// Whether it could not be decided who appended them.
    is_undecided: bool,
}

/// What one look at a history found.
struct Search {
    versions: Versions,
    graph: Graph,
    anomalies: Anomalies,
}

/// How much there was to check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that certainly took place.
    pub ok_count: u64,
    /// Transactions of unknown outcome of which something was read.
    pub seen_unknown_count: u64,
    /// Reads of lists.
    pub read_count: u64,
    /// Elements that these reads returned.
    pub seen_element_count: u64,
    /// Transactions that read a list and then appended to it.
    pub update_count: u64,
    /// Lists.
    pub key_count: u64,
    /// Edges of the graph, those of real time included.
    pub edge_count: u64,
}

/// Whether a history is one of transactions.
pub fn has_transactions(history: &History) -> bool {
    let mut functions = history.functions.iter();
    functions.any(|name| table::FUNCTIONS.contains(&name.as_str()))
}

/// Looks for everything that no order of the transactions allows, given who appended what was appended
/// repeatedly, as far as that is known.
fn look(table: &Table, guess: &Guess) -> Search {
    let mut anomalies = Anomalies::default();
    let versions = Versions::find(table, guess, &mut anomalies);
    let graph = Graph::new(table, &versions);
    let found = components::components(&graph);
    for (number, component) in found.iter().enumerate() {
        let basic = match number < CYCLES_MAX_COUNT {
            true => cycles::most_basic(&graph, table, component),
            false => None,
        };
        match basic {
            Some((kind, cycle)) => {
                let told = words::cycle(table, &versions, &graph, kind, &cycle);
                let involved = told.transactions.clone();
                anomalies.note(kind, involved, || told.text);
            }
            None => anomalies.note(Kind::G2RealTime, [], || {
                "further cycles were not looked at more closely".to_owned()
            }),
        }
    }
    Search {
        versions,
        graph,
        anomalies,
    }
}

/// Looks for everything that no order of the transactions allows.
///
/// An element that several transactions appended to one list tells who came before whom only where it is clear
/// which of them is meant: where the others failed, or read their own append. Otherwise every answer is tried.
///
/// # Errors
/// When an operation is no transaction; with its line.
pub fn find(history: History) -> Result<Findings, Damage> {
    let table = Table::new(history)?;
    let mut search = look(&table, &Guess::default());
    let mut repeated = None;
    let mut is_undecided = false;
    if search.anomalies.is_empty() && !search.versions.ambiguous.is_empty() {
        let example = &search.versions.ambiguous[0];
        let speaker = words::Speaker { table: &table };
        let example = format!(
            "{} of key {}",
            speaker.value(example.element),
            speaker.key(example.key)
        );
        match guesses::try_all(&table, &search.versions.ambiguous) {
            Guessed::Fits(found) => search = *found,
            Guessed::Contradicted(found, count) => {
                repeated = Some(format!(
                    "several transactions appended {example}; all {count} answers to who appended what contradict \
                     something, this is the first"
                ));
                search = *found;
            }
            Guessed::Undecided => {
                repeated = Some(format!(
                    "several transactions appended the same, such as {example}, and there are too many answers to \
                     who appended what"
                ));
                is_undecided = true;
            }
        }
    }
    let Search {
        versions,
        graph,
        anomalies,
    } = search;
    let speaker = words::Speaker { table: &table };
    let evidence = anomalies.told().map(|anomaly| {
        let involved = anomaly.transactions.iter().take(20);
        involved.map(|number| speaker.evidence(*number)).collect()
    });
    let is_ok: Vec<u32> = table.ok().collect();
    let committed = versions.is_committed.iter().filter(|one| **one).count();
    Ok(Findings {
        counts: Counts {
            ok_count: is_ok.len() as u64,
            seen_unknown_count: (committed - is_ok.len()) as u64,
            read_count: versions.read_count,
            seen_element_count: versions.seen_element_count,
            update_count: versions.update_count,
            key_count: table.keys.len() as u64,
            edge_count: graph.edge_count() as u64,
        },
        evidence: evidence.collect(),
        anomalies,
        notes: table.history.notes,
        repeated,
        is_undecided,
    })
}

impl Findings {
    /// Whether there is such an order.
    pub fn valid(&self) -> Validity {
        if !self.anomalies.is_empty() {
            return Validity::Invalid;
        }
        let Counts {
            ok_count,
            seen_element_count,
            ..
        } = self.counts;
        if ok_count == 0 || seen_element_count == 0 || self.is_undecided {
            return Validity::Unknown;
        }
        Validity::Valid
    }

    /// The anomalies that are told, the most basic kinds first.
    pub fn told(&self) -> impl Iterator<Item = &Anomaly> {
        self.anomalies.told()
    }

    /// How many anomalies of a kind there are.
    pub fn count(&self, kind: Kind) -> u64 {
        self.anomalies.count(kind)
    }

    /// In one sentence.
    pub fn summary(&self) -> String {
        let counts = &self.counts;
        let told = format!(
            "{} with {} of {}",
            counted(counts.ok_count, "transaction"),
            counted(counts.read_count, "read"),
            counted(counts.key_count, "list"),
        );
        match (self.told().next(), self.valid()) {
            (Some(first), _) => {
                let kinds = Kind::ALL.iter().filter(|kind| self.count(**kind) > 0);
                let others: Vec<&str> = kinds
                    .filter(|kind| **kind != first.kind)
                    .map(|kind| kind.name())
                    .collect();
                let others = match others.as_slice() {
                    [] => String::new(),
                    names => format!(" (also {})", names.join(", ")),
                };
                let sentence = first.text.lines().next().unwrap_or_default();
                let repeated = match &self.repeated {
                    Some(repeated) => format!(" ({repeated})"),
                    None => String::new(),
                };
                format!("{}: {sentence}{others}{repeated}", first.kind.name())
            }
            (None, Validity::Unknown) if self.is_undecided => {
                let repeated = self.repeated.as_deref().unwrap_or_default();
                format!("{repeated} ({told})")
            }
            (None, Validity::Unknown) => {
                format!("nothing that was appended was ever read, so nothing was checked ({told})")
            }
            (None, _) => format!("{told} were strictly serializable"),
        }
    }

    /// The anomalies in words.
    pub fn explanations(&self) -> Vec<String> {
        let told = self.told();
        told.map(|anomaly| format!("{}: {}", anomaly.kind.name(), anomaly.text))
            .collect()
    }

    /// The anomalies for programs.
    pub fn evidence(&self) -> Json {
        let counts = &self.counts;
        let anomalies = self.told().zip(&self.evidence).map(|(anomaly, involved)| {
            json!({
                "kind": anomaly.kind.name(),
                "explanation": anomaly.text,
                "operations": involved,
            })
        });
        let found = Kind::ALL.iter().filter(|kind| self.count(**kind) > 0);
        let found: BTreeMap<&str, u64> =
            found.map(|kind| (kind.name(), self.count(*kind))).collect();
        let first = self.told().zip(&self.evidence).next();
        json!({
            "transactions": counts.ok_count,
            "unknown_but_seen": counts.seen_unknown_count,
            "reads": counts.read_count,
            "edges": counts.edge_count,
            "anomaly_counts": found,
            "anomalies": anomalies.collect::<Vec<_>>(),
            "explanation": first.map(|(anomaly, _)| &anomaly.text),
            "operations": first.map(|(_, involved)| involved),
        })
    }

    fn properties(&self) -> BTreeMap<String, PropertyResult> {
        let counts = &self.counts;
        let mut properties = BTreeMap::new();
        for kind in Kind::ALL {
            let checked = match kind {
                Kind::Duplicate | Kind::Phantom | Kind::G1a => counts.seen_element_count,
                Kind::Internal | Kind::G1b | Kind::IncompatibleOrder => counts.read_count,
                Kind::LostUpdate => counts.update_count,
                _ => counts.ok_count,
            };
            let first = self.anomalies.first(kind);
            if checked == 0 && first.is_none() {
                continue;
            }
            let result = PropertyResult {
                valid: match first {
                    Some(_) => Validity::Invalid,
                    None => Validity::Valid,
                },
                title: kind.title().into(),
                source: SOURCE.into(),
                checked,
                summary: first.map_or_else(String::new, |one| {
                    one.text.lines().next().unwrap_or_default().to_owned()
                }),
                evidence: Json::Null,
            };
            properties.insert(kind.name().to_owned(), result);
        }
        properties
    }
}

/// Checks the transactions of a run.
pub fn check(history: &[Operation]) -> CheckerResult {
    match find(histories::recorded(history)) {
        Ok(findings) => {
            let mut result = conclusion(findings.valid(), SOURCE, findings.summary());
            result.properties = findings.properties();
            result.evidence = findings.evidence();
            result
        }
        Err(damage) => not_understood(SOURCE, format_args!("history.jsonl {damage}")),
    }
}
