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
