//! Owns synthetic histories: clients of one object that takes effect somewhere within every operation.
//! Never depends on anything but its seed.

use checkers::linearizability::{Action, Timeline};

/// A small deterministic generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }
}

/// What the clients of a register do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clients {
    pub(crate) count: usize,
    pub(crate) operations: usize,
    /// Values 0 to this one; without, every written value is new.
    pub(crate) values: Option<usize>,
    pub(crate) crash_per_mille: usize,
    pub(crate) compares: bool,
}

struct Running {
    number: usize,
    action: Action,
    /// What it turned out to be, once it took effect.
    effect: Option<Action>,
}

/// A linearizable history of a register that starts as 0; failed compare-and-sets are left out.
pub(crate) fn register(seed: u64, clients: Clients) -> Timeline<Action> {
    let mut random = Random(seed);
    let mut state = 0;
    let mut last = 0;
    let mut running: Vec<Option<Running>> = Vec::new();
    running.resize_with(clients.count, || None);
    // (operation, is a completion), and by operation what it turned out to be.
    let mut events: Vec<(usize, bool)> = Vec::with_capacity(clients.operations * 2);
    let mut actions: Vec<Option<Action>> = Vec::with_capacity(clients.operations);
    while actions.len() < clients.operations || running.iter().any(Option::is_some) {
        let client = random.below(clients.count);
        let Some(operation) = &mut running[client] else {
            if actions.len() < clients.operations {
                let mut value = || match clients.values {
                    Some(values) => random.below(values) as u32,
                    None => {
                        last += 1;
                        last
                    }
                };
                let new = value();
                let expected = value();
                let action = match random.below(if clients.compares { 3 } else { 2 }) {
                    0 => Action::Read(0),
                    1 => Action::Write(new),
                    _ => Action::CompareAndSet { expected, new },
                };
                events.push((actions.len(), false));
                running[client] = Some(Running {
                    number: actions.len(),
                    action,
                    effect: None,
                });
                actions.push(Some(action));
            }
            continue;
        };
        let number = operation.number;
        match operation.effect {
            None if clients.crash_per_mille > 0
                && !matches!(operation.action, Action::Read(_))
                && random.chance(clients.crash_per_mille) =>
            {
                // Whether it took effect is left to chance.
                if random.chance(500)
                    && let Some(next) = operation.action.step(state)
                {
                    state = next;
                }
                running[client] = None;
            }
            None => {
                operation.effect = Some(match operation.action {
                    Action::Read(_) => Action::Read(state),
                    other => match other.step(state) {
                        Some(next) => {
                            state = next;
                            other
                        }
                        None => Action::Differs(0),
                    },
                });
            }
            Some(effect) => {
                let has_failed = matches!(effect, Action::Differs(_));
                actions[number] = (!has_failed).then_some(effect);
                events.push((number, true));
                running[client] = None;
            }
        }
    }
    let mut timeline = Timeline::new();
    let mut numbers = vec![0; actions.len()];
    for (number, is_completion) in events {
        if let Some(action) = actions[number] {
            if is_completion {
                timeline.complete(numbers[number]);
            } else {
                numbers[number] = timeline.invoke(action);
            }
        }
    }
    timeline
}

/// The same history with some completed reads changed, from a place on.
pub(crate) fn corrupted(
    timeline: &Timeline<Action>,
    seed: u64,
    count: usize,
    from: usize,
    values: usize,
) -> Timeline<Action> {
    let mut random = Random(seed);
    let reads: Vec<usize> = timeline
        .events()
        .iter()
        .filter(|event| event.is_completion() && event.operation() >= from)
        .map(|event| event.operation())
        .filter(|operation| matches!(timeline.action(*operation), Action::Read(_)))
        .collect();
    let mut chosen = std::collections::BTreeMap::new();
    while chosen.len() < count.min(reads.len()) {
        let operation = reads[random.below(reads.len())];
        let Action::Read(seen) = timeline.action(operation) else {
            continue;
        };
        let other = (seen as usize + 1 + random.below(values - 1)) % values;
        chosen.insert(operation, Action::Read(other as u32));
    }
    let mut number = 0;
    timeline.map(|action| {
        number += 1;
        chosen.get(&(number - 1)).copied().unwrap_or(action)
    })
}

/// The same history with one late read of a value that was overwritten long before.
pub(crate) fn with_stale_read(timeline: &Timeline<Action>) -> Timeline<Action> {
    let reads: Vec<(usize, u32)> = timeline
        .events()
        .iter()
        .filter(|event| event.is_completion())
        .filter_map(|event| match timeline.action(event.operation()) {
            Action::Read(value) if value != 0 => Some((event.operation(), value)),
            _ => None,
        })
        .collect();
    let (_, old) = reads[reads.len() / 3];
    let (late, _) = reads[reads.len() * 9 / 10];
    let mut number = 0;
    timeline.map(|action| {
        number += 1;
        if number - 1 == late {
            Action::Read(old)
        } else {
            action
        }
    })
}

/// A key-value log as text: clients append to and replace texts, and read them.
pub(crate) fn key_value_log(
    seed: u64,
    client_count: usize,
    operations: usize,
    keys: usize,
    lies: usize,
) -> String {
    let mut random = Random(seed);
    let mut texts = vec![String::new(); keys];
    let mut running: Vec<Option<(usize, &str, String, bool)>> = vec![None; client_count];
    let mut log = String::new();
    let mut begun = 0;
    let mut lies_left = lies;
    while begun < operations || running.iter().any(Option::is_some) {
        let client = random.below(client_count);
        let mut say = |kind: &str, function: &str, key: usize, value: &str| {
            log.push_str(&format!(
                "{{:process {client}, :type :{kind}, :f :{function}, :key \"{key}\", :value {value}}}\n"
            ));
        };
        match &mut running[client] {
            None if begun < operations => {
                let key = random.below(keys);
                let function = [
                    "get", "append", "get", "append", "append", "put", "get", "append",
                ][random.below(8)];
                let function = if function == "put" && random.chance(500) {
                    "append"
                } else {
                    function
                };
                let value = match function {
                    "get" => "nil".to_owned(),
                    _ => format!("\"x {client} {begun} y\""),
                };
                say("invoke", function, key, &value);
                running[client] = Some((key, function, value, false));
                begun += 1;
            }
            None => {}
            Some((key, function, value, is_effective @ false)) => {
                *is_effective = true;
                let plain = value.trim_matches('"');
                match *function {
                    "append" => texts[*key].push_str(plain),
                    "put" => plain.clone_into(&mut texts[*key]),
                    _ => {
                        let mut seen = texts[*key].clone();
                        if lies_left > 0 && begun > operations / 2 && seen.len() > 12 {
                            lies_left -= 1;
                            seen.truncate(seen.len() - 10);
                        }
                        *value = format!("{seen:?}");
                    }
                }
            }
            Some((key, function, value, true)) => {
                say("ok", function, *key, value);
                running[client] = None;
            }
        }
    }
    log
}

/// A history of registers as this program writes them.
pub(crate) fn json_lines(seed: u64, operations: usize, keys: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let client_count = 50;
    let mut states = vec![0_u64; keys];
    let mut running: Vec<Option<(usize, u64, bool, u64)>> = vec![None; client_count];
    let mut text = String::with_capacity(operations * 180);
    let (mut index, mut begun) = (0, 0);
    while begun < operations || running.iter().any(Option::is_some) {
        let client = random.below(client_count);
        use std::fmt::Write as _;
        let time = index * 1000;
        match &mut running[client] {
            None if begun < operations => {
                let key = random.below(keys);
                let is_read = random.chance(500);
                begun += 1;
                let value = begun as u64;
                let (f, shown) = match is_read {
                    true => ("read", "null".to_owned()),
                    false => ("write", value.to_string()),
                };
                let _ = writeln!(
                    text,
                    r#"{{"index":{index},"time":{time},"process":{client},"type":"invoke","f":"{f}","key":"{key}","value":{shown}}}"#
                );
                index += 1;
                running[client] = Some((key, if is_read { 0 } else { value }, false, 0));
            }
            None => {}
            Some((key, value, is_effective @ false, seen)) => {
                *is_effective = true;
                if *value > 0 {
                    states[*key] = *value;
                }
                *seen = states[*key];
            }
            Some((key, value, true, seen)) => {
                let f = if *value == 0 { "read" } else { "write" };
                let shown = match (*value, *seen) {
                    (0, 0) => "null".to_owned(),
                    (0, seen) => seen.to_string(),
                    (value, _) => value.to_string(),
                };
                let _ = writeln!(
                    text,
                    r#"{{"index":{index},"time":{time},"process":{client},"type":"ok","f":"{f}","key":"{key}","value":{shown},"node":"n1","epoch":1,"offset":{begun}}}"#
                );
                index += 1;
                running[client] = None;
            }
        }
    }
    text.into_bytes()
}
