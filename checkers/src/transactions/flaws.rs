//! Owns what is wrong with a list that was read, by itself or next to another one, in words.
//! Never looks at who came before whom.

use rustc_hash::FxHashMap;

use super::anomaly::{Anomalies, Kind};
use super::table::{NONE, Step, Table};
use super::versions::Order;
use super::words;
use crate::histories::Value;

/// Notes elements that are in a list more often than they were appended. Returns whether there are any.
pub(super) fn note_duplicates(
    table: &Table,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) -> bool {
    let mut counts: FxHashMap<Value, usize> = FxHashMap::default();
    for element in elements {
        *counts.entry(*element).or_default() += 1;
    }
    let too_many = elements.iter().find(|element| {
        // Once is enough to look at an element.
        let count = counts.remove(*element).unwrap_or(0);
        count > 1 && count > table.appenders(key, **element).len()
    });
    let Some(twice) = too_many else {
        return false;
    };
    let often = match table.appenders(key, *twice).len() {
        0 | 1 => "once".to_owned(),
        count => format!("{count} times with others"),
    };
    let writer = table.writers.get(&(key, *twice)).copied();
    let involved = std::iter::once(reader).chain(writer.filter(|writer| *writer != reader));
    anomalies.note(Kind::Duplicate, involved, || {
        let speaker = words::Speaker { table };
        let by = writer.map_or_else(String::new, |writer| {
            format!(", which {} appended {often}", speaker.name(writer))
        });
        format!(
            "{} read {} of key {} more than once{by}",
            speaker.name(reader),
            speaker.value(*twice),
            speaker.key(key)
        )
    });
    true
}

/// Notes elements that nobody appended, or only transactions that failed.
pub(super) fn note_sources(
    table: &Table,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) {
    use results::history::OperationType::Fail;
    for element in elements {
        let speaker = words::Speaker { table };
        let read = || {
            format!(
                "{} read {} of key {}",
                speaker.name(reader),
                speaker.value(*element),
                speaker.key(key)
            )
        };
        match table.first_appender(key, *element) {
            None => anomalies.note(Kind::Phantom, [reader], || {
                format!("{}, which nobody ever appended", read())
            }),
            Some(writer) if table.transactions[writer as usize].outcome == Fail => {
                anomalies.note(Kind::G1a, [reader, writer], || {
                    format!(
                        "{}, which only {} appended, and that failed for certain",
                        read(),
                        speaker.name(writer)
                    )
                });
            }
            Some(_) => {}
        }
    }
}

/// Notes elements of one transaction that stand next to each other, but not in the order of its steps. What
/// stands apart from each other is a cycle with what is between.
pub(super) fn note_turned(
    table: &Table,
    key: u32,
    (reader, elements): (u32, &[Value]),
    writers: &[u32],
    anomalies: &mut Anomalies,
) {
    // How many steps of the writer are done where its elements go on.
    let mut done = 0;
    for place in 0..writers.len() {
        let writer = writers[place];
        let goes_on = place > 0 && writers[place - 1] == writer;
        if writer == NONE || (!goes_on && writers.get(place + 1) != Some(&writer)) {
            continue;
        }
        let steps = table.steps(writer);
        let element = elements[place];
        let from = |first: usize| {
            let mut later = steps[first..].iter();
            let at = later.position(|step| *step == Step::Append { key, element });
            at.map(|at| first + at + 1)
        };
        let next = if goes_on { from(done) } else { from(0) };
        done = next.or_else(|| from(0)).unwrap_or(0);
        if next.is_some() || !goes_on || elements[place - 1] == element {
            continue;
        }
        let (two, of) = ([elements[place - 1], element], [writer]);
        anomalies.note(Kind::IncompatibleOrder, [reader, of[0]], || {
            let speaker = words::Speaker { table };
            format!(
                "{} read {} before {} of key {}, but {} appended them the other way round",
                speaker.name(reader),
                speaker.value(two[0]),
                speaker.value(two[1]),
                speaker.key(key),
                speaker.name(of[0])
            )
        });
    }
}

/// Notes that two lists cannot both be the beginning of one.
pub(super) fn note_incompatible(
    table: &Table,
    order: &Order,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) {
    let Some((longest, other)) = order.longest else {
        return;
    };
    anomalies.note(Kind::IncompatibleOrder, [other, reader], || {
        let speaker = words::Speaker { table };
        let whole = table.elements(longest);
        let common = whole.iter().zip(elements);
        let common = common.take_while(|(one, other)| one == other).count();
        format!(
            "{} read {} of key {}, but {} read {}: they differ from place {} on",
            speaker.name(other),
            speaker.list(whole),
            speaker.key(key),
            speaker.name(reader),
            speaker.list(elements),
            common + 1
        )
    });
}

/// Notes that a transaction read what it had yet to append.
pub(super) fn note_own_future(
    table: &Table,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) {
    anomalies.note(Kind::Internal, [reader], || {
        let speaker = words::Speaker { table };
        format!(
            "{} read {} of key {}, with an element that it had yet to append itself",
            speaker.name(reader),
            speaker.list(elements),
            speaker.key(key)
        )
    });
}
