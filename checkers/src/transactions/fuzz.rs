//! Owns the comparison with an oracle that tries every order of a few transactions.
//! Never shares anything with what it checks but the reading of a history.

use std::collections::BTreeMap;

use results::history::OperationType;
use results::verdict::Validity;

use super::table::{NONE, Step, Table};
use super::{Kind, find};
use crate::histories::{Value, read};

/// A small generator of numbers (xorshift64*), so that a failure names its seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

type Lists = BTreeMap<u64, Vec<u64>>;

/// A transaction under way, in a world that is serializable but for the mistakes that are made on purpose.
struct Open {
    process: u64,
    /// Key, and what is appended; a read without.
    steps: Vec<(u64, Option<u64>)>,
    /// What reads returned, once it has taken place.
    result: Option<Vec<Option<Vec<u64>>>>,
}

/// What one line of a history says about a transaction.
fn line(open: &Open, kind: &str) -> String {
    let results = open.result.as_ref().filter(|_| kind == "ok");
    let steps = open.steps.iter().enumerate().map(|(at, (key, append))| {
        let returned = results.and_then(|results| results[at].clone());
        match append {
            Some(element) => format!(r#"["append","{key}",{element}]"#),
            None => match returned {
                Some(list) => format!(r#"["r","{key}",{list:?}]"#),
                None => format!(r#"["r","{key}",null]"#),
            },
        }
    });
    let steps: Vec<String> = steps.collect();
    let process = open.process;
    let value = steps.join(",");
    format!(r#"{{"process":{process},"type":"{kind}","f":"txn","value":[{value}]}}"#)
}

/// Carries a transaction out on a state that may be an old one, or in part.
fn perform(open: &mut Open, states: &mut Vec<Lists>, mistakes: u64, draws: &mut Draws) {
    let old = draws.below(100) < mistakes;
    let from = match old {
        true => draws.below(states.len() as u64) as usize,
        false => states.len() - 1,
    };
    let mut seen = states[from].clone();
    let mut state = states[states.len() - 1].clone();
    let mut results = Vec::new();
    for (key, append) in &open.steps {
        let Some(element) = append else {
            results.push(Some(seen.get(key).cloned().unwrap_or_default()));
            continue;
        };
        results.push(None);
        seen.entry(*key).or_default().push(*element);
        match draws.below(100) {
            // Lost, twice, or before what was there.
            draw if draw < mistakes / 4 => {}
            draw if draw < mistakes / 3 => {
                state.entry(*key).or_default().extend([*element, *element]);
            }
            draw if draw < mistakes / 2 => state.entry(*key).or_default().insert(0, *element),
            _ => state.entry(*key).or_default().push(*element),
        }
    }
    states.push(state);
    open.result = Some(results);
}

/// A history of a few transactions; `mistakes` in percent, and `repeats`: how many of a hundred appends are of what was
/// appended before.
fn history(seed: u64, mistakes: u64, repeats: u64) -> String {
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut states = vec![Lists::new()];
    let mut open: Vec<Open> = Vec::new();
    let mut lines = Vec::new();
    let (mut begun, mut next_element, count) = (0, 1, 2 + draws.below(5));
    while begun < count || !open.is_empty() {
        if begun < count && (open.is_empty() || draws.below(3) == 0) {
            let steps = (0..1 + draws.below(3)).map(|_| {
                let key = draws.below(2);
                let append = (draws.below(2) == 0).then(|| {
                    if repeats > 0 && draws.below(100) < repeats {
                        return 2 + draws.below(next_element);
                    }
                    next_element += 1;
                    next_element
                });
                (key, append)
            });
            let one = Open {
                process: begun,
                steps: steps.collect(),
                result: None,
            };
            lines.push(line(&one, "invoke"));
            open.push(one);
            begun += 1;
            continue;
        }
        let at = draws.below(open.len() as u64) as usize;
        if open[at].result.is_none() && draws.below(8) > 0 {
            perform(&mut open[at], &mut states, mistakes, &mut draws);
            continue;
        }
        let one = open.swap_remove(at);
        let is_known = one.result.is_some() && draws.below(8) > 0;
        let fails = draws.below(3) == 0;
        match (is_known, one.result.is_some()) {
            (true, _) => lines.push(line(&one, "ok")),
            (false, false) if fails => lines.push(line(&one, "fail")),
            (false, _) => lines.push(line(&one, "info")),
        }
    }
    lines.join("\n")
}

/// Whether some order of the transactions, that of real time, explains every read. Tries all orders of those
/// that took place, with any of those that may have.
fn oracle(table: &Table) -> bool {
    let mut order = Vec::new();
    extend(table, &mut order, &mut BTreeMap::new())
}

fn extend(table: &Table, order: &mut Vec<u32>, state: &mut BTreeMap<u32, Vec<Value>>) -> bool {
    let all = 0..table.transactions.len() as u32;
    let left = |number: &u32| {
        table.transactions[*number as usize].outcome != OperationType::Fail
            && !order.contains(number)
    };
    let left: Vec<u32> = all.filter(left).collect();
    if left.iter().all(|number| !table.is_ok(*number)) {
        return true;
    }
    for next in &left {
        let invoked = table.transactions[*next as usize].invoke;
        let overtakes = left.iter().any(|other| {
            other != next
                && table.is_ok(*other)
                && table.transactions[*other as usize].completion < invoked
        });
        let Some(after) = (!overtakes).then(|| applied(table, *next, state)).flatten() else {
            continue;
        };
        let before = std::mem::replace(state, after);
        order.push(*next);
        if extend(table, order, state) {
            return true;
        }
        order.pop();
        *state = before;
    }
    false
}

/// The state after a transaction; `None` if it could not have read what it read.
fn applied(
    table: &Table,
    transaction: u32,
    state: &BTreeMap<u32, Vec<Value>>,
) -> Option<BTreeMap<u32, Vec<Value>>> {
    let mut state = state.clone();
    for step in table.steps(transaction) {
        match *step {
            Step::Append { key, element } => state.entry(key).or_default().push(element),
            Step::Read { list: NONE, .. } => {}
            Step::Read { key, list } => {
                let there = state.get(&key).map_or(&[][..], Vec::as_slice);
                if there != table.elements(list) {
                    return None;
                }
            }
        }
    }
    Some(state)
}

#[test]
fn the_oracle_and_the_graph_say_the_same() {
    let (mut good, mut bad) = (0, 0);
    let mut kinds: BTreeMap<Kind, u64> = BTreeMap::new();
    for seed in 1..=FUZZ_COUNT {
        let text = history(seed, [0, 20, 50, 90][seed as usize % 4], 0);
        let parse = || read(text.as_bytes(), None, false).expect("it is well-formed");
        let findings = find(parse()).expect("it is well-formed");
        let explained = oracle(&Table::new(parse()).expect("it is well-formed"));
        let invalid = findings.valid() == Validity::Invalid;
        assert_eq!(
            invalid,
            !explained,
            "seed {seed}: {}\n{text}",
            findings.summary()
        );
        if seed % 4 == 0 {
            assert!(explained, "seed {seed} makes no mistakes\n{text}");
        }
        good += u64::from(explained);
        bad += u64::from(!explained);
        for kind in Kind::ALL {
            *kinds.entry(kind).or_default() += u64::from(findings.count(kind) > 0);
        }
    }
    assert!(
        good > FUZZ_COUNT / 4 && bad > FUZZ_COUNT / 8,
        "{good} {bad}"
    );
    for kind in [
        Kind::Duplicate,
        Kind::IncompatibleOrder,
        Kind::LostUpdate,
        Kind::G1a,
        Kind::GSingle,
        Kind::G2,
        Kind::G0RealTime,
        Kind::GSingleRealTime,
    ] {
        // Nothing carries out what fails.
        if kind != Kind::G1a {
            assert!(kinds[&kind] > 0, "{kind:?} never came up: {kinds:?}");
        }
    }
}

/// Histories in every run of the tests.
const FUZZ_COUNT: u64 = 6_000;

/// Histories in which transactions append the same.
const REPEATED_FUZZ_COUNT: u64 = 3_000;

#[test]
fn the_oracle_and_the_graph_say_the_same_of_elements_that_are_appended_repeatedly() {
    let (mut good, mut bad) = (0, 0);
    for seed in 1..=REPEATED_FUZZ_COUNT {
        let text = history(seed, [0, 20, 50][seed as usize % 3], 60);
        let parse = || read(text.as_bytes(), None, false).expect("it is well-formed");
        let table = Table::new(parse()).expect("it is well-formed");
        if table.repeated.is_empty() {
            continue;
        }
        let findings = find(parse()).expect("it is well-formed");
        let explained = oracle(&table);
        let invalid = findings.valid() == Validity::Invalid;
        let said = findings.summary();
        assert_eq!(invalid, !explained, "seed {seed}: {said}\n{text}");
        assert!(!findings.is_undecided, "seed {seed}: {said}\n{text}");
        good += u64::from(explained);
        bad += u64::from(!explained);
    }
    assert!(good > 500 && bad > 200, "{good} {bad}");
}
