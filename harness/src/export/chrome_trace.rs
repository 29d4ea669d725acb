//! Owns how a run reads as a trace of events on a time axis (Trace Event Format of Chrome's tracing).
//! Never invents an end: what did not end lasts until the run does, and says so.

use std::collections::BTreeMap;
use std::io::{self, Write};

use checkers::operations::pair;
use results::history::Operation;
use results::store::Recording;
use results::trace::TraceDetail;
use serde_json::{Value, json};

/// Groups of rows, in the order in which they are shown.
const NEMESIS: u32 = 1;
const NODES: u32 = 2;
const CLIENTS: u32 = 3;

/// Writes all events as one JSON document. Times are in microseconds.
pub(super) fn write(recording: &Recording, to: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { to, count: 0 };
    write!(events.to, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    for (group, name) in [(NEMESIS, "nemesis"), (NODES, "nodes"), (CLIENTS, "clients")] {
        events.add(&json!({
            "ph": "M", "name": "process_name", "pid": group, "tid": 0, "args": {"name": name},
        }))?;
    }
    let end_ns = end_ns(recording);
    faults(recording, end_ns, &mut events)?;
    roles(recording, end_ns, &mut events)?;
    operations(&recording.history, end_ns, &mut events)?;
    writeln!(events.to, "\n]}}")
}

struct Events<'a> {
    to: &'a mut dyn Write,
    count: u64,
}

impl Events<'_> {
    fn add(&mut self, event: &Value) -> io::Result<()> {
        let separator = if self.count == 0 { "\n" } else { ",\n" };
        self.count += 1;
        write!(self.to, "{separator}{event}")
    }

    fn row(&mut self, group: u32, row: u64, name: &str) -> io::Result<()> {
        self.add(&json!({
            "ph": "M", "name": "thread_name", "pid": group, "tid": row, "args": {"name": name},
        }))
    }

    fn bar(
        &mut self,
        (group, row): (u32, u64),
        name: &str,
        (start_ns, end_ns): (u64, u64),
        about: Value,
    ) -> io::Result<()> {
        self.add(&json!({
            "ph": "X",
            "name": name,
            "pid": group,
            "tid": row,
            "ts": start_ns as f64 / 1e3,
            "dur": end_ns.saturating_sub(start_ns) as f64 / 1e3,
            "args": about,
        }))
    }
}

fn end_ns(recording: &Recording) -> u64 {
    let history = recording.history.last().map_or(0, |line| line.time);
    let trace = recording.trace.last().map_or(0, |event| event.time);
    history.max(trace)
}

fn faults(recording: &Recording, end_ns: u64, events: &mut Events<'_>) -> io::Result<()> {
    let happened = recording.schedule.faults.iter();
    let happened = happened.filter_map(|fault| Some((fault, fault.resolved.as_ref()?)));
    for (fault, resolved) in happened {
        let start_ns = resolved.at_ms * 1_000_000;
        let healed = fault.healed_at_ms;
        let heal_ns = healed.map_or(end_ns, |at_ms| at_ms * 1_000_000);
        events.row(NEMESIS, fault.id, &format!("fault {}", fault.id))?;
        let about = json!({
            "targets": resolved.targets,
            "outcome": fault.outcome,
            "effect": fault.effect,
            "healed": healed.is_some(),
        });
        let place = (NEMESIS, fault.id);
        events.bar(place, &fault.fault.kind, (start_ns, heal_ns), about)?;
    }
    Ok(())
}

/// What every node was, from one change of roles to the next.
fn roles(recording: &Recording, end_ns: u64, events: &mut Events<'_>) -> io::Result<()> {
    let mut rows: BTreeMap<&str, u64> = BTreeMap::new();
    let mut present: BTreeMap<&str, (String, i32, u64)> = BTreeMap::new();
    for event in &recording.trace {
        let role = match &event.detail {
            TraceDetail::Started(started) => started.role,
            TraceDetail::RoleChange { role, .. } => *role,
            _ => continue,
        };
        let node = event.node.as_str();
        if !rows.contains_key(node) {
            let row = rows.len() as u64 + 1;
            rows.insert(node, row);
            events.row(NODES, row, node)?;
        }
        let role = serde_json::to_value(role).unwrap_or_default();
        let role = role.as_str().unwrap_or_default().to_owned();
        let before = present.insert(node, (role, event.epoch, event.time));
        if let Some((role, epoch, since_ns)) = before {
            let place = (NODES, rows[node]);
            events.bar(
                place,
                &role,
                (since_ns, event.time),
                json!({"epoch": epoch}),
            )?;
        }
    }
    for (node, (role, epoch, since_ns)) in present {
        let place = (NODES, rows[node]);
        events.bar(place, &role, (since_ns, end_ns), json!({"epoch": epoch}))?;
    }
    Ok(())
}

fn operations(history: &[Operation], end_ns: u64, events: &mut Events<'_>) -> io::Result<()> {
    for operation in pair(history).map_err(io::Error::other)? {
        let (invoked, completed) = (operation.invoke, operation.completion.map(|(_, line)| line));
        let key = invoked.key.as_deref().unwrap_or_default();
        let about = json!({
            "index": invoked.index,
            "asked": invoked.value,
            "outcome": completed.map_or(json!("never answered"), |line| json!(line.operation_type)),
            "value": completed.map(|line| &line.value),
            "node": completed.and_then(|line| line.node.as_deref()),
            "epoch": completed.and_then(|line| line.epoch),
            "error": completed.and_then(|line| line.error.as_deref()),
        });
        let name = format!("{} {key}", invoked.f);
        let end_ns = completed.map_or(end_ns, |line| line.time);
        let place = (CLIENTS, operation.process);
        events.bar(place, name.trim_end(), (invoked.time, end_ns), about)?;
    }
    Ok(())
}
