//! Owns the tests of the state machine as a whole, against a model that is too simple to be wrong.
//! Never looks at how the state is laid out.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn key(name: &str) -> String {
    name.to_owned()
}

fn object(kind: Kind, name: &str) -> Object {
    Object {
        kind,
        key: key(name),
    }
}

fn write(name: &str, value: impl Into<Value>) -> Operation {
    Operation::RegisterWrite {
        key: key(name),
        value: value.into(),
    }
}

fn swap(name: &str, expected: impl Into<Value>, new: impl Into<Value>) -> Operation {
    Operation::RegisterCompareAndSet {
        key: key(name),
        expected: expected.into(),
        new: new.into(),
    }
}

fn append(name: &str, value: impl Into<Value>) -> Operation {
    Operation::ListAppend {
        key: key(name),
        value: value.into(),
    }
}

fn add(name: &str, value: impl Into<Value>) -> Operation {
    Operation::SetAdd {
        key: key(name),
        value: value.into(),
    }
}

fn count(name: &str, delta: i64) -> Operation {
    Operation::CounterAdd {
        key: key(name),
        delta,
    }
}

fn read(kind: Kind, name: &str) -> Operation {
    let key = key(name);
    match kind {
        Kind::Register => Operation::RegisterRead { key },
        Kind::List => Operation::ListRead { key },
        Kind::Set => Operation::SetRead { key },
        Kind::Counter => Operation::CounterRead { key },
    }
}

/// A machine with the offset of the next command.
#[derive(Debug, Clone, Default)]
struct Bench {
    machine: Machine,
    next: i64,
}

impl Bench {
    fn run(&mut self, command: Command) -> Applied {
        let offset = Offset(self.next);
        self.next += 1;
        // Through the log and back, as in a cluster.
        let stored = Command::decode(&command.encode().unwrap()).unwrap();
        let applied = self.machine.apply(offset, stored);
        assert_eq!(
            self.machine.objects.recomputed_digest(),
            self.machine.objects.digest()
        );
        applied
    }

    fn all(&mut self, operations: Vec<Operation>) -> Outcome {
        let stamp = None;
        self.run(Command { stamp, operations }).outcome
    }

    fn one(&mut self, operation: Operation) -> Outcome {
        self.all(vec![operation])
    }

    fn as_client(&mut self, client: &str, request: u64, operation: Operation) -> Applied {
        let client = client.to_owned();
        self.run(Command {
            stamp: Some(Stamp { client, request }),
            operations: vec![operation],
        })
    }

    fn content(&self, kind: Kind, name: &str) -> Value {
        self.machine.read(&object(kind, name))
    }
}

fn done(values: Vec<Option<Value>>) -> Outcome {
    let results = values.into_iter().map(|value| OperationResult { value });
    Outcome::Done {
        results: results.collect(),
    }
}

fn mismatch(operation: usize, current: impl Into<Value>) -> Outcome {
    let current = current.into();
    Outcome::Failed {
        operation,
        failure: Failure::CompareMismatch { current },
    }
}

const KINDS: [Kind; 4] = [Kind::Register, Kind::List, Kind::Set, Kind::Counter];

#[test]
fn objects_of_one_name_and_different_kinds_are_different() {
    let mut bench = Bench::default();
    for (kind, fresh) in KINDS
        .into_iter()
        .zip([json!(null), json!([]), json!([]), json!(0)])
    {
        assert_eq!(bench.content(kind, "a"), fresh);
    }
    for operation in [
        write("a", "x"),
        append("a", 1),
        append("a", 1),
        add("a", 2),
        add("a", 2),
    ] {
        assert_eq!(bench.one(operation), done(vec![None]));
    }
    assert_eq!(bench.one(count("a", -5)), done(vec![None]));
    let held = KINDS.map(|kind| bench.content(kind, "a"));
    assert_eq!(held, [json!("x"), json!([1, 1]), json!([2]), json!(-5)]);
    assert_eq!(bench.content(Kind::List, "b"), json!([]));
}

#[test]
fn compare_and_set_sees_null_in_a_fresh_register() {
    let mut bench = Bench::default();
    assert_eq!(bench.one(swap("a", Value::Null, 1)), done(vec![None]));
    assert_eq!(bench.one(swap("a", 2, 3)), mismatch(0, 1));
    assert_eq!(bench.content(Kind::Register, "a"), json!(1));
}

#[test]
fn a_counter_refuses_what_would_not_fit() {
    let mut bench = Bench::default();
    bench.one(count("a", i64::MAX));
    for delta in [1, i64::MAX] {
        let failure = Failure::CounterOverflow { current: i64::MAX };
        let operation = 0;
        assert_eq!(
            bench.one(count("a", delta)),
            Outcome::Failed { operation, failure }
        );
    }
    bench.one(count("a", i64::MIN));
    assert_eq!(bench.content(Kind::Counter, "a"), json!(-1));
}

#[test]
fn a_transaction_sees_its_own_effects_and_takes_place_at_once() {
    let mut bench = Bench::default();
    let outcome = bench.all(vec![
        read(Kind::List, "l"),
        append("l", 1),
        append("l", 2),
        read(Kind::List, "l"),
        count("c", 3),
        read(Kind::Counter, "c"),
        swap("r", Value::Null, 7),
        swap("r", 7, 8),
        read(Kind::Register, "r"),
    ]);
    let expected = vec![
        Some(json!([])),
        None,
        None,
        Some(json!([1, 2])),
        None,
        Some(json!(3)),
        None,
        None,
        Some(json!(8)),
    ];
    assert_eq!(outcome, done(expected));
}

#[test]
fn a_transaction_that_fails_changes_nothing_and_says_where() {
    let mut bench = Bench::default();
    let all = |bench: &mut Bench, last: Operation| {
        bench.all(vec![
            write("r", 2),
            write("new", 2),
            append("l", 2),
            append("l", 3),
            append("new", 1),
            add("s", 1),
            add("s", 2),
            add("new", 1),
            count("c", 1),
            count("new", 0),
            last,
        ])
    };
    for prepared in [false, true] {
        if prepared {
            bench.all(vec![
                write("r", 1),
                append("l", 1),
                add("s", 1),
                count("c", 5),
            ]);
        }
        let before = bench.machine.clone();
        assert_eq!(all(&mut bench, swap("r", 9, 9)), mismatch(10, 2));
        assert_eq!(bench.machine, before, "prepared: {prepared}");
        let outcome = all(&mut bench, count("new", i64::MAX));
        assert_eq!(outcome, done(vec![None; 11]), "it can take effect");
        bench.machine = before;
    }
}

#[test]
fn results_are_bounded() {
    let mut bench = Bench::default();
    let text = "x".repeat(60_000);
    while serde_json::to_vec(&bench.content(Kind::List, "l"))
        .unwrap()
        .len()
        <= MAX_RESULT_BYTES / 2
    {
        bench.one(append("l", text.clone()));
    }
    let list = || read(Kind::List, "l");
    assert!(matches!(bench.one(list()), Outcome::Done { .. }));
    let before = bench.machine.clone();
    let failure = Failure::ResultTooLarge;
    let expected = Outcome::Failed {
        operation: 2,
        failure,
    };
    assert_eq!(bench.all(vec![append("l", 1), list(), list()]), expected);
    assert_eq!(bench.machine, before);
}

#[test]
fn a_repeated_request_is_applied_once_whatever_came_of_it() {
    let mut bench = Bench::default();
    let first = bench.as_client("a", 1, append("l", 1));
    assert_eq!(first.offset, Offset(0));
    assert_eq!(bench.as_client("a", 1, append("l", 1)), first);
    let failed = bench.as_client("a", 2, swap("r", 1, 2));
    assert_eq!(failed.outcome, mismatch(0, Value::Null));
    bench.one(write("r", 1));
    assert_eq!(bench.as_client("a", 2, swap("r", 1, 2)), failed);
    let reused = bench.as_client("a", 2, swap("r", 1, 3));
    assert_eq!(reused.outcome, Outcome::Reused);
    let stale = bench.as_client("a", 1, append("l", 1));
    assert_eq!(stale.outcome, Outcome::Stale { last_request: 2 });
    assert_eq!(bench.as_client("b", 1, append("l", 2)).offset, Offset(7));
    assert_eq!(bench.content(Kind::List, "l"), json!([1, 2]));
    assert_eq!(bench.content(Kind::Register, "r"), json!(1));
}

/// Golden: the same state has the same hash on every machine and in every later version.
#[test]
fn the_hash_of_a_known_state_is_known() {
    let mut bench = Bench::default();
    assert_eq!(
        format!("{:016x}", bench.machine.digest()),
        "0000000000000000"
    );
    bench.all(vec![
        write("a", json!({"b": [1, 2.5, null, "é"]})),
        append("a", 1),
        append("a", "two"),
        add("a", true),
        count("a", -7),
    ]);
    assert_eq!(
        format!("{:016x}", bench.machine.digest()),
        "f3b9ba94f6c01cd3"
    );
    bench.as_client("c", 1, swap("a", 1, 2));
    assert_eq!(
        format!("{:016x}", bench.machine.digest()),
        "495e6dbb1fa2f3fd"
    );
}

#[test]
fn different_states_have_different_hashes() {
    let states = [
        vec![],
        vec![write("a", 1)],
        vec![write("a", "1")],
        vec![write("b", 1)],
        vec![write("a", Value::Null)],
        vec![append("a", 1)],
        vec![append("a", 1), append("a", 1)],
        vec![append("a", 1), append("a", 2)],
        vec![append("a", 2), append("a", 1)],
        vec![append("a", json!([1, 2]))],
        vec![add("a", 1)],
        vec![add("a", 1), add("a", 2)],
        vec![add("a", 1), add("b", 1)],
        vec![count("a", 1)],
        vec![count("a", 0)],
    ];
    let mut hashes = BTreeMap::new();
    for operations in states {
        let mut bench = Bench::default();
        for operation in operations.clone() {
            bench.one(operation);
        }
        let other = hashes.insert(bench.machine.digest(), operations);
        assert_eq!(other, None, "the same hash");
    }
}

#[test]
fn the_order_in_which_a_set_was_filled_is_not_part_of_the_state() {
    let filled = |values: [i64; 3]| {
        let mut bench = Bench::default();
        for value in values {
            bench.one(add("a", value));
        }
        bench.machine.digest()
    };
    assert_eq!(filled([1, 2, 3]), filled([3, 1, 2]));
}

/// The model: all content as JSON, copied whole before each command.
#[derive(Debug, Clone, Default)]
struct Model {
    content: BTreeMap<(Kind, String), Value>,
    told: BTreeMap<String, (Command, Applied)>,
}

impl Model {
    fn run(&mut self, offset: Offset, command: &Command) -> Applied {
        if let Some(stamp) = &command.stamp
            && let Some((last, applied)) = self.told.get(&stamp.client)
        {
            let last_request = last.stamp.as_ref().unwrap().request;
            if command == last {
                return applied.clone();
            }
            if stamp.request <= last_request {
                let outcome = if stamp.request == last_request {
                    Outcome::Reused
                } else {
                    Outcome::Stale { last_request }
                };
                return Applied { outcome, offset };
            }
        }
        let before = self.content.clone();
        let mut results = Vec::new();
        let mut outcome = None;
        for (at, operation) in command.operations.iter().enumerate() {
            match self.step(operation) {
                Ok(value) => results.push(OperationResult { value }),
                Err(failure) => {
                    self.content = before;
                    let operation = at;
                    outcome = Some(Outcome::Failed { operation, failure });
                    break;
                }
            }
        }
        let outcome = outcome.unwrap_or(Outcome::Done { results });
        let applied = Applied { outcome, offset };
        if let Some(stamp) = &command.stamp {
            let told = (command.clone(), applied.clone());
            self.told.insert(stamp.client.clone(), told);
        }
        applied
    }

    fn content(&self, kind: Kind, key: &str) -> Value {
        let fresh = match kind {
            Kind::Register => Value::Null,
            Kind::List | Kind::Set => json!([]),
            Kind::Counter => json!(0),
        };
        let held = self.content.get(&(kind, key.to_owned()));
        held.cloned().unwrap_or(fresh)
    }

    fn step(&mut self, operation: &Operation) -> Result<Option<Value>, Failure> {
        match operation.clone() {
            Operation::RegisterWrite { key, value } => {
                self.content.insert((Kind::Register, key), value);
                Ok(None)
            }
            Operation::RegisterCompareAndSet { key, expected, new } => {
                let current = self.content(Kind::Register, &key);
                if current != expected {
                    return Err(Failure::CompareMismatch { current });
                }
                self.step(&Operation::RegisterWrite { key, value: new })
            }
            Operation::ListAppend { key, value } => {
                let mut values = self.content(Kind::List, &key);
                values.as_array_mut().unwrap().push(value);
                self.content.insert((Kind::List, key), values);
                Ok(None)
            }
            Operation::SetAdd { key, value } => {
                let mut values = self.content(Kind::Set, &key);
                let array = values.as_array_mut().unwrap();
                if !array.contains(&value) {
                    array.push(value);
                    array.sort_by_key(Value::to_string);
                }
                self.content.insert((Kind::Set, key), values);
                Ok(None)
            }
            Operation::CounterAdd { key, delta } => {
                let current = self.content(Kind::Counter, &key).as_i64().unwrap();
                let sum = i128::from(current) + i128::from(delta);
                let sum = i64::try_from(sum).map_err(|_| Failure::CounterOverflow { current })?;
                self.content.insert((Kind::Counter, key), json!(sum));
                Ok(None)
            }
            Operation::RegisterRead { key } => Ok(Some(self.content(Kind::Register, &key))),
            Operation::ListRead { key } => Ok(Some(self.content(Kind::List, &key))),
            Operation::SetRead { key } => Ok(Some(self.content(Kind::Set, &key))),
            Operation::CounterRead { key } => Ok(Some(self.content(Kind::Counter, &key))),
        }
    }
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let name = prop_oneof![Just("a"), Just("b")];
    let value = prop_oneof![
        Just(Value::Null),
        (0..3_i64).prop_map(Value::from),
        Just(json!("1"))
    ];
    let delta = prop_oneof![-2..3_i64, Just(i64::MAX), Just(i64::MIN)];
    (0..9_u8, name, value.clone(), value, delta).prop_map(|(which, name, value, new, delta)| {
        match which {
            0 => write(name, value),
            1 | 2 => swap(name, value, new),
            3 => append(name, value),
            4 => add(name, value),
            5 => count(name, delta),
            6 => read(Kind::Register, name),
            7 => read(Kind::List, name),
            _ => read(if delta > 0 { Kind::Set } else { Kind::Counter }, name),
        }
    })
}

pub(super) fn any_command() -> impl Strategy<Value = Command> {
    let stamp = proptest::option::of((prop_oneof![Just("x"), Just("y")], 0..6_u64));
    let operations = proptest::collection::vec(any_operation(), 1..6);
    (stamp, operations).prop_map(|(stamp, operations)| Command {
        stamp: stamp.map(|(client, request)| Stamp {
            client: client.into(),
            request,
        }),
        operations,
    })
}

proptest! {
    #[test]
    fn every_sequence_of_commands_does_what_the_model_does(
        commands in proptest::collection::vec((any_command(), 1..3_usize), 1..30)
    ) {
        // Some are sent twice in a row.
        let commands: Vec<_> = commands
            .into_iter()
            .flat_map(|(command, copy_count)| vec![command; copy_count])
            .collect();
        let (mut bench, mut model) = (Bench::default(), Model::default());
        let mut hashes = BTreeMap::new();
        for command in &commands {
            let expected = model.run(Offset(bench.next), command);
            prop_assert_eq!(bench.run(command.clone()), expected);
            for kind in KINDS {
                for name in ["a", "b"] {
                    prop_assert_eq!(bench.content(kind, name), model.content(kind, name));
                }
            }
            let machine = bench.machine.clone();
            let same_hash = hashes.entry(machine.digest()).or_insert_with(|| machine.clone());
            prop_assert_eq!(&*same_hash, &machine, "two states with one hash");
        }
        let mut replay = Bench::default();
        for command in commands {
            replay.run(command);
        }
        prop_assert_eq!(replay.machine.digest(), bench.machine.digest());
        prop_assert_eq!(replay.machine, bench.machine);
    }
}
