//! Owns measurements of the state machine, for people: run them with
//! `cargo test --release -p node --lib machine::measurements -- --ignored --nocapture --test-threads 1`.
//! Never judges: what a computer manages depends on the computer and on who else uses it.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::*;

const COMMAND_COUNT: u64 = 1_000_000;

/// Numbers that look random and are the same every time.
fn scattered(number: u64) -> u64 {
    digest::mix(number + 1)
}

fn write(key: u64, value: u64) -> Command {
    Command::single(Operation::RegisterWrite {
        key: format!("register-{key}"),
        value: Value::from(format!("value-{value}")),
    })
}

/// Time that this thread had on a processor, as others may use the computer too.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// Time to apply commands, without the time to make them.
fn time_of(machine: &mut Machine, start: u64, make: impl Fn(u64) -> Command) -> Duration {
    let mut spent = Duration::ZERO;
    for round in 0..COMMAND_COUNT / 1000 {
        let numbers = round * 1000..(round + 1) * 1000;
        let commands: Vec<_> = numbers.map(|number| (number, make(number))).collect();
        let started = processor_time();
        for (number, command) in commands {
            machine.apply(Offset((start + number) as i64), command);
        }
        spent += processor_time() - started;
    }
    spent
}

fn show(what: &str, spent: Duration) {
    let per_second = COMMAND_COUNT as f64 / spent.as_secs_f64();
    eprintln!("{what:<45} {per_second:>9.0} commands/s");
}

#[test]
#[ignore = "a measurement"]
fn apply_throughput() {
    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| write(number, number));
    show("new registers, 1,000,000 of them", spent);
    let spent = time_of(&mut machine, COMMAND_COUNT, |number| {
        write(scattered(number) % COMMAND_COUNT, number)
    });
    show("writes scattered over 1,000,000 registers", spent);

    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| {
        write(scattered(number) % 30, number)
    });
    show("writes scattered over 30 registers", spent);

    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| Command {
        stamp: Some(Stamp {
            client: format!("client-{}", scattered(number) % 1000),
            request: number,
        }),
        ..write(scattered(number) % 30, number)
    });
    show("the same, stamped, of 1,000 clients", spent);

    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| {
        let key = format!("list-{}", scattered(number) % 100);
        let value = json!(number);
        Command::single(Operation::ListAppend { key, value })
    });
    show("appends to 100 lists", spent);

    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| {
        let key = format!("set-{}", scattered(number) % 100);
        let value = json!(scattered(number) % 100_000);
        Command::single(Operation::SetAdd { key, value })
    });
    show("adds to 100 sets", spent);

    let mut machine = Machine::default();
    let spent = time_of(&mut machine, 0, |number| {
        let key = format!("counter-{}", scattered(number) % 1000);
        Command::single(Operation::CounterAdd { key, delta: 1 })
    });
    show("additions to 1,000 counters", spent);
}

/// Memory of this process that is really there, in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn show_memory(what: &str, start_bytes: usize) {
    let mebibytes = (resident_bytes() - start_bytes) >> 20;
    eprintln!("{what:<60} {mebibytes:>6} MiB");
}

#[test]
#[ignore = "a measurement; of its memory only when it runs alone"]
fn freezing_a_million_registers() {
    let start_bytes = resident_bytes();
    let mut machine = Machine::default();
    time_of(&mut machine, 0, |number| write(number, number));
    show_memory("1,000,000 registers", start_bytes);

    let started = processor_time();
    let mut frozen = machine.freeze();
    eprintln!("freezing took {:?}", processor_time() - started);
    show_memory("frozen", start_bytes);
    let spent = time_of(&mut machine, COMMAND_COUNT, |number| {
        write(scattered(number) % COMMAND_COUNT, number)
    });
    show("writes to 1,000,000 registers, while frozen", spent);
    show_memory(
        "frozen, and since then written to 63 % of them",
        start_bytes,
    );
    time_of(&mut machine, 2 * COMMAND_COUNT, |number| {
        write(number, number)
    });
    show_memory("frozen, and since then written to all of them", start_bytes);

    let (mut spent, mut longest) = (Duration::ZERO, Duration::ZERO);
    let (mut record_count, mut byte_count, mut loading) = (0, 0, Duration::ZERO);
    let mut loader = MachineLoader::default();
    loop {
        let started = processor_time();
        let Some(records) = frozen.next_records(1024 * 1024) else {
            break;
        };
        let took = processor_time() - started;
        (spent, longest) = (spent + took, longest.max(took));
        record_count += records.len();
        byte_count += records.iter().map(Vec::len).sum::<usize>();
        let started = processor_time();
        records
            .iter()
            .for_each(|record| loader.push(record).unwrap());
        loading += processor_time() - started;
    }
    eprintln!(
        "{record_count} records of {byte_count} bytes in {spent:?}, longest piece {longest:?}"
    );
    show_memory("the same, and a loaded machine", start_bytes);
    let digest = frozen.digest();
    let started = processor_time();
    drop(frozen);
    eprintln!(
        "dropping the frozen machine took {:?}",
        processor_time() - started
    );
    assert_eq!(loader.finish().unwrap().digest(), digest);
    eprintln!("loading took {loading:?}");
}
