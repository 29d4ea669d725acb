//! Owns the tests of snapshots of the state machine: what is written comes back, or is refused.
//! Never writes files.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::batch::{Batch, HEADER_BYTES, MAX_BATCH_BYTES};
use crate::ids::{Epoch, Offset};
use crate::machine::tests::any_command;
use crate::machine::{
    Applied, Command, Kind, MAX_RESULT_BYTES, Machine, Object, Operation, Outcome, Stamp,
};

fn machine_after(commands: &[Command]) -> Machine {
    let mut machine = Machine::default();
    apply_all(&mut machine, 0, commands);
    machine
}

fn apply_all(machine: &mut Machine, start: usize, commands: &[Command]) -> Vec<Applied> {
    let numbered = commands.iter().enumerate();
    numbered
        .map(|(at, command)| machine.apply(Offset((start + at) as i64), command.clone()))
        .collect()
}

fn all_records(mut frozen: FrozenMachine, max_bytes: usize) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some(batch) = frozen.next_records(max_bytes) {
        let bytes: usize = batch.iter().map(|record| record.len() + 4).sum();
        assert!(bytes <= max_bytes || batch.len() == 1);
        assert!(!batch.is_empty());
        records.extend(batch);
    }
    assert_eq!(
        frozen.next_records(max_bytes),
        None,
        "the end stays the end"
    );
    let longest = records.iter().map(Vec::len).max();
    assert!(longest <= Some(MAX_SNAPSHOT_RECORD_BYTES));
    records
}

fn load<R: AsRef<[u8]>>(records: &[R]) -> Result<Machine, SnapshotRecordError> {
    let mut loader = MachineLoader::default();
    for record in records {
        loader.push(record.as_ref())?;
    }
    loader.finish()
}

fn texts(records: &[Vec<u8>]) -> Vec<&str> {
    let text = |record: &'_ Vec<u8>| record[0] == 0;
    assert!(records.iter().all(text), "short entries are one record");
    records
        .iter()
        .map(|record| std::str::from_utf8(&record[1..]).unwrap())
        .collect()
}

fn stamped(client: &str, request: u64, operation: Operation) -> Command {
    let client = client.to_owned();
    Command {
        stamp: Some(Stamp { client, request }),
        operations: vec![operation],
    }
}

fn write(key: &str, value: impl Into<Value>) -> Operation {
    let (key, value) = (key.to_owned(), value.into());
    Operation::RegisterWrite { key, value }
}

fn append(key: &str, value: impl Into<Value>) -> Operation {
    let (key, value) = (key.to_owned(), value.into());
    Operation::ListAppend { key, value }
}

fn add(key: &str, value: impl Into<Value>) -> Operation {
    let (key, value) = (key.to_owned(), value.into());
    Operation::SetAdd { key, value }
}

fn count(key: &str, delta: i64) -> Operation {
    let key = key.to_owned();
    Operation::CounterAdd { key, delta }
}

fn singles(operations: Vec<Operation>) -> Vec<Command> {
    operations.into_iter().map(Command::single).collect()
}

/// Something of every kind.
fn mixed() -> Machine {
    let key = || "a".to_owned();
    let mut commands = singles(vec![
        write("a", json!({"b": [1, 2.5, null, "é"]})),
        write("b", Value::Null),
        append("a", 1),
        append("a", "two"),
        add("a", true),
        add("a", 1),
        count("a", -7),
    ]);
    commands.extend([
        stamped("c", 1, Operation::RegisterRead { key: "new".into() }),
        stamped("d", 9, append("b", 1)),
        stamped(
            "e",
            5,
            Operation::RegisterCompareAndSet {
                key: key(),
                expected: json!(3),
                new: json!(4),
            },
        ),
        stamped("c", 0, write("c", 1)),
    ]);
    machine_after(&commands)
}

/// Golden: snapshots are read by later versions.
#[test]
fn the_records_of_a_known_state_are_known() {
    let machine = mixed();
    let records = all_records(machine.freeze(), 1000);
    let expected = [
        r#"{"summary":{"version":1,"register_count":2,"list_count":2,"set_count":1,"counter_count":1,"session_count":3,"digest":DIGEST}}"#,
        r#"{"register":{"key":"a","value":{"b":[1,2.5,null,"é"]}}}"#,
        r#"{"register":{"key":"b","value":null}}"#,
        r#"{"list":{"key":"a","values":[1,"two"]}}"#,
        r#"{"list":{"key":"b","values":[1]}}"#,
        r#"{"set":{"key":"a","values":[1,true]}}"#,
        r#"{"counter":{"key":"a","value":-7}}"#,
        r#"{"session":{"client":"c","last_request":1,"fingerprint":7374332455254295572,"offset":7,"used":10,"outcome":{"done":{"results":[{"value":null}]}}}}"#,
        r#"{"session":{"client":"d","last_request":9,"fingerprint":6009512195608111563,"offset":8,"used":8,"outcome":{"done":{"results":[{}]}}}}"#,
        r#"{"session":{"client":"e","last_request":5,"fingerprint":2312258491285600341,"offset":9,"used":9,"outcome":{"failed":{"operation":0,"failure":{"compare-mismatch":{"current":{"b":[1,2.5,null,"é"]}}}}}}}"#,
    ];
    let digest = machine.digest().to_string();
    let expected = expected.map(|text| text.replace("DIGEST", &digest));
    assert_eq!(texts(&records), expected);
    assert_eq!(load(&records).unwrap(), machine);
}

#[test]
fn nothing_can_be_written_and_loaded_too() {
    let records = all_records(Machine::default().freeze(), 0);
    assert_eq!(records.len(), 1);
    assert_eq!(load(&records).unwrap(), Machine::default());
}

#[test]
fn what_was_told_before_the_snapshot_is_told_again_after_it() {
    let mut machine = mixed();
    let mut loaded = load(&all_records(machine.freeze(), 1000)).unwrap();
    let retried = stamped("d", 9, append("b", 1));
    let told = loaded.apply(Offset(20), retried.clone());
    assert_eq!(told.offset, Offset(8));
    assert_eq!(told, machine.apply(Offset(20), retried));
    let list = Object {
        kind: Kind::List,
        key: "b".into(),
    };
    assert_eq!(loaded.read(&list), json!([1]), "applied once");
    let fresh = stamped("c", 1, Operation::RegisterRead { key: "new".into() });
    let told = loaded.apply(Offset(21), fresh).outcome;
    let Outcome::Done { results } = told else {
        panic!("{told:?}");
    };
    assert_eq!(results[0].value, Some(Value::Null), "a read, not a write");
}

#[test]
fn objects_and_outcomes_of_any_length_fit_into_records_and_batches() {
    let long = |at: usize, length: usize| format!("{at:05}{}", "x".repeat(length));
    let mut commands = Vec::new();
    // A list and a set that are longer than a batch can be.
    for at in 0..MAX_BATCH_BYTES / 60_000 + 2 {
        commands.push(Command::single(append("list", long(at, 60_000))));
        commands.push(Command::single(add("set", long(at, 60_000))));
    }
    for at in 0..3000 {
        commands.push(Command::single(append("of short ones", at)));
        commands.push(Command::single(add("of short ones", at)));
    }
    commands.push(Command::single(write("a", "\u{1}".repeat(10_900))));
    for at in 0..MAX_RESULT_BYTES / 50_100 {
        commands.push(Command::single(append("read", long(at, 50_000))));
    }
    let key = "read".to_owned();
    commands.push(stamped("reader", 1, Operation::ListRead { key }));
    for command in &commands {
        assert!(command.encode().is_ok());
    }
    let machine = machine_after(&commands);

    let max_bytes = MAX_BATCH_BYTES - HEADER_BYTES;
    let (mut frozen, mut loader) = (machine.freeze(), MachineLoader::default());
    let (mut batch_count, mut cut_count) = (0, 0);
    while let Some(records) = frozen.next_records(max_bytes) {
        let batch = Batch::build(Offset(0), Epoch(1), 0, false, &records);
        assert!(batch.bytes().len() <= MAX_BATCH_BYTES);
        batch_count += 1;
        cut_count += records.iter().filter(|record| record[0] != 0).count();
        for record in &records {
            assert!(record.len() <= MAX_SNAPSHOT_RECORD_BYTES);
            loader.push(record).unwrap();
        }
    }
    assert_eq!(batch_count, 3);
    assert!(cut_count >= 10, "an outcome of a megabyte: {cut_count}");
    assert_eq!(loader.finish().unwrap(), machine);
}

#[test]
fn equal_states_that_came_about_differently_have_equal_records() {
    let values: Vec<_> = (0..500).map(|at| at * 7919 % 500).collect();
    let mut one = vec![];
    for &value in &values {
        one.push(add("s", value));
        one.push(write(&format!("r{value}"), value));
        one.push(count("c", value));
    }
    one.extend((0..100).map(|value| append("l", value)));
    let mut other = vec![write("r3", "something else"), count("c", -1)];
    other.extend((0..100).map(|value| append("l", value)));
    for &value in values.iter().rev() {
        other.push(add("s", value));
        other.push(count("c", value));
        other.push(write(&format!("r{value}"), value));
        other.push(add("s", value));
    }
    other.push(count("c", 1));
    let mut other = singles(other);
    // Fails in the end: is taken back, across the border of a chunk of the list too.
    let mut taken_back: Vec<_> = (0..60).map(|value| append("l", value)).collect();
    taken_back.extend([add("s", 501), add("t", 1), write("r9", 0), count("c", 5)]);
    taken_back.push(count("c", i64::MAX));
    let taken_back = Command {
        stamp: None,
        operations: taken_back,
    };
    other.push(taken_back);
    let (one, other) = (machine_after(&singles(one)), machine_after(&other));
    assert_eq!(one, other);
    assert_eq!(
        all_records(one.freeze(), 5000),
        all_records(other.freeze(), 70)
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a snapshot may be written on another thread"
)]
fn a_frozen_machine_can_be_written_on_another_thread() {
    let machine = mixed();
    let frozen = machine.freeze();
    let written = std::thread::spawn(move || all_records(frozen, 100));
    assert_eq!(load(&written.join().unwrap()).unwrap(), machine);
}

fn record(text: &str) -> Vec<u8> {
    [&[0], text.as_bytes()].concat()
}

fn fault_of(records: &[Vec<u8>]) -> SnapshotFault {
    load(records).unwrap_err().fault
}

#[test]
fn records_that_no_machine_wrote_are_refused_by_what_is_wrong_with_them() {
    use SnapshotFault as Fault;
    let start = all_records(Machine::default().freeze(), 0).remove(0);
    let after_start = |texts: &[&str]| {
        let records = texts.iter().map(|text| record(text));
        fault_of(&[vec![start.clone()], records.collect()].concat())
    };
    let counter = r#"{"counter":{"key":"a","value":1}}"#;
    assert!(matches!(load::<Vec<u8>>(&[]), Err(error) if matches!(error.fault, Fault::Incomplete)));
    for bad in [vec![], vec![0], vec![1], vec![2, b'{'], vec![b'{', b'}']] {
        assert!(matches!(fault_of(&[bad]), Fault::Marker));
    }
    assert!(matches!(fault_of(&[record("{")]), Fault::Entry(_)));
    assert!(matches!(fault_of(&[record(counter)]), Fault::Summary));
    let twice = [start.clone(), start.clone()];
    assert!(matches!(fault_of(&twice), Fault::Summary));
    let later = String::from_utf8(start[1..].to_vec()).unwrap();
    let later = later.replace(r#""version":1"#, r#""version":2"#);
    let fault = fault_of(&[record(&later)]);
    assert!(matches!(fault, Fault::Version { found: 2 }));
    assert!(matches!(after_start(&[counter]), Fault::Content { .. }));
    for unordered in [
        [counter, counter],
        [counter, r#"{"counter":{"key":"Z","value":1}}"#],
        [counter, r#"{"register":{"key":"b","value":1}}"#],
    ] {
        assert!(matches!(after_start(&unordered), Fault::Order { .. }));
    }
    for values in [
        r#"{"list":{"key":"a","values":[]}}"#,
        r#"{"set":{"key":"a","values":[]}}"#,
        r#"{"set":{"key":"a","values":[1,1]}}"#,
        r#"{"set":{"key":"a","values":[2,1]}}"#,
    ] {
        assert!(matches!(after_start(&[values]), Fault::Values { .. }));
    }
    let set = r#"{"set":{"key":"a","values":[2]}}"#;
    assert!(matches!(after_start(&[set, set]), Fault::Values { .. }));
    let session = |client: &str, offset: i64, used: i64, outcome: &str| {
        format!(
            r#"{{"session":{{"client":"{client}","last_request":1,"fingerprint":1,"offset":{offset},"used":{used},"outcome":{outcome}}}}}"#
        )
    };
    let done = r#"{"done":{"results":[]}}"#;
    for unsound in [
        session("a", -1, 1, done),
        session("a", 2, 1, done),
        session("a", 1, 1, r#""reused""#),
        session("a", 1, 1, r#"{"stale":{"last_request":1}}"#),
    ] {
        assert!(matches!(after_start(&[&unsound]), Fault::Session { .. }));
    }
    let two = [session("a", 1, 7, done), session("b", 2, 7, done)];
    let fault = after_start(&[&two[0], &two[1]]);
    assert!(matches!(fault, Fault::Session { client } if client == "b"));
}

#[test]
fn an_entry_that_never_ends_is_refused_and_so_is_what_comes_after_it() {
    let mut loader = MachineLoader::default();
    let records = all_records(Machine::default().freeze(), 0);
    loader.push(&records[0]).unwrap();
    let endless = [vec![1], vec![b' '; MAX_SNAPSHOT_RECORD_BYTES - 1]].concat();
    let pushed = (0..1000).find_map(|_| loader.push(&endless).err());
    let error = pushed.expect("there is a limit");
    assert!(matches!(error.fault, SnapshotFault::Length));
    assert!(error.record_index > 200);
    let finished = loader.finish().unwrap_err();
    assert!(matches!(finished.fault, SnapshotFault::Incomplete));
}

#[test]
fn a_refused_record_is_not_forgotten() {
    let mut loader = MachineLoader::default();
    let machine = mixed();
    for record in all_records(machine.freeze(), 1000) {
        loader.push(&record).unwrap();
    }
    let error = loader.push(&[0, b'{']).unwrap_err();
    assert!(error.to_string().contains("record 10,"), "{error}");
    assert!(loader.finish().is_err());
}

/// One thing that can happen to records on their way.
#[derive(Debug, Clone)]
enum Damage {
    Flip { bit: u8 },
    Cut,
    Lose,
    Repeat,
    Swap { with: usize },
    End,
    Insert { byte: u8 },
}

fn any_damage() -> impl Strategy<Value = (usize, usize, Damage)> {
    let damage = prop_oneof![
        4 => (0..8_u8).prop_map(|bit| Damage::Flip { bit }),
        1 => Just(Damage::Cut),
        1 => Just(Damage::Lose),
        1 => Just(Damage::Repeat),
        1 => any::<usize>().prop_map(|with| Damage::Swap { with }),
        1 => Just(Damage::End),
        1 => any::<u8>().prop_map(|byte| Damage::Insert { byte }),
    ];
    (any::<usize>(), any::<usize>(), damage)
}

fn damaged(records: &[Vec<u8>], (record, byte, damage): (usize, usize, Damage)) -> Vec<Vec<u8>> {
    let mut records = records.to_vec();
    let record = record % records.len();
    let byte = byte % records[record].len();
    match damage {
        Damage::Flip { bit } => records[record][byte] ^= 1 << bit,
        Damage::Cut => records[record].truncate(byte),
        Damage::Lose => drop(records.remove(record)),
        Damage::Repeat => records.insert(record, records[record].clone()),
        Damage::Swap { with } => {
            let with = with % records.len();
            records.swap(record, with);
        }
        Damage::End => records.truncate(record),
        Damage::Insert { byte: inserted } => records[record].insert(byte, inserted),
    }
    records
}

/// Pieces of records, so that some go far.
fn any_record() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        r#"{"register":{"key":"a","value":"#,
        r#"{"list":{"key":"a","values":["#,
        r#"{"set":{"key":"a","values":["#,
        r#"{"session":{"client":"a","last_request":1,"fingerprint":1,"offset":1,"used":1,"outcome":"#,
        r#"{"failed":{"operation":0,"failure":{"compare-mismatch":{"current":"#,
        r#"{"done":{"results":["#,
        "1",
        "-9223372036854775809",
        "1e999",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "]",
        "}}",
        "]}}",
        "]}}}}",
        ",",
        "\0",
        "\u{1}",
    ];
    let part = prop_oneof![
        6 => proptest::sample::select(parts.to_vec()).prop_map(|part| part.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..10),
    ];
    let marker = prop_oneof![8 => 0..2_u8, 1 => any::<u8>()];
    (marker, proptest::collection::vec(part, 0..6))
        .prop_map(|(marker, parts)| [vec![marker], parts.concat()].concat())
}

proptest! {
    #[test]
    fn what_is_frozen_comes_back_and_nothing_that_is_applied_later_changes_it(
        commands in proptest::collection::vec(any_command(), 0..40),
        more in proptest::collection::vec(any_command(), 1..40),
        max_bytes in 0..2000_usize,
    ) {
        let mut machine = machine_after(&commands);
        let at_that_time = machine_after(&commands);
        let mut frozen = machine.freeze();
        let digest = machine.digest();
        let mut records = frozen.next_records(max_bytes).unwrap();
        let mut answers = Vec::new();
        for (at, command) in more.iter().enumerate() {
            answers.push(machine.apply(Offset((commands.len() + at) as i64), command.clone()));
            records.extend(frozen.next_records(max_bytes).into_iter().flatten());
        }
        prop_assert_eq!(frozen.digest(), digest);
        records.extend(all_records(frozen, max_bytes));
        prop_assert_eq!(&records, &all_records(at_that_time.freeze(), usize::MAX));

        let mut loaded = load(&records).unwrap();
        prop_assert_eq!(loaded.digest(), digest);
        prop_assert_eq!(&loaded, &at_that_time);
        prop_assert_eq!(&all_records(loaded.freeze(), 300), &records);
        // Both go on alike: repeated requests are recognised alike, and forgotten alike.
        prop_assert_eq!(apply_all(&mut loaded, commands.len(), &more), answers);
        prop_assert_eq!(loaded, machine);
    }

    #[test]
    fn damaged_records_are_refused_unless_they_still_say_the_same(
        commands in proptest::collection::vec(any_command(), 1..30),
        damages in proptest::collection::vec(any_damage(), 1..3),
    ) {
        let machine = machine_after(&commands);
        let intact = all_records(machine.freeze(), 1000);
        let mut records = intact.clone();
        for damage in damages {
            if !records.is_empty() {
                records = damaged(&records, damage);
            }
            if records.iter().any(Vec::is_empty) {
                break;
            }
        }
        match load(&records) {
            Ok(loaded) => prop_assert_eq!(loaded, machine),
            Err(error) => {
                prop_assert_ne!(&records, &intact);
                prop_assert!(error.record_index <= records.len() as u64);
            }
        }
    }

    #[test]
    fn no_bytes_make_the_loader_panic(records in proptest::collection::vec(any_record(), 0..12)) {
        let start = all_records(mixed().freeze(), 1000);
        for known_count in [0, 1, start.len()] {
            let mut loader = MachineLoader::default();
            for record in &start[..known_count] {
                loader.push(record).unwrap();
            }
            let pushed = records.iter().all(|record| loader.push(record).is_ok());
            let finished = loader.finish();
            let is_whole = known_count == start.len() && records.is_empty();
            prop_assert_eq!(finished.is_ok(), is_whole, "all taken: {}", pushed);
        }
    }
}
