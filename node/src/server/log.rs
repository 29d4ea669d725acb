//! Owns the log of a node process: one line per event on standard error, as text or as JSON.
//! Never decides what is worth a line; it adds which node says it, in which role and epoch.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::ids::{Epoch, NodeId};
use crate::raft::Role;

use super::outbox::role_name;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: time, level, node, role, epoch, message, fields.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// Role and epoch as last reported. A process has one node and one log, hence a static.
static STANDING: AtomicU64 = AtomicU64::new(0);

/// How the log of this process was set up.
static INSTALLED: OnceLock<LogFormat> = OnceLock::new();

const ROLES: [Role; 6] = [
    Role::Unattached,
    Role::Prospective,
    Role::Candidate,
    Role::Leader,
    Role::Follower,
    Role::Resigned,
];

/// Notes what every line from now on says about the node; without a role, only the epoch changes.
pub(crate) fn note_standing(role: Option<Role>, epoch: Epoch) {
    let role = match role {
        Some(role) => ROLES
            .iter()
            .position(|known| *known == role)
            .map_or(0, |at| at as u64 + 1),
        None => STANDING.load(Ordering::Relaxed) >> 32,
    };
    // Only the node's own thread notes anything, so nothing is lost between load and store.
    STANDING.store(role << 32 | u64::from(epoch.0 as u32), Ordering::Relaxed);
}

/// Role, unless the node has not started yet, and epoch.
fn standing() -> (Option<Role>, Epoch) {
    let packed = STANDING.load(Ordering::Relaxed);
    let role = (packed >> 32) as usize;
    let role = role.checked_sub(1).and_then(|at| ROLES.get(at)).copied();
    (role, Epoch(packed as u32 as i32))
}

/// Sets the log of this process up. Does nothing where the embedding program has one already.
pub(crate) fn install(node: NodeId, format: LogFormat, level: Level) {
    let _ = INSTALLED.set(format);
    // Fails only where there is another log already, which then serves.
    let _ = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        // Otherwise a line that cannot be written is complained about where it cannot be written either,
        // which ends the process: a reader that goes away must not take the node with it.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_max_level(level)
        .event_format(Lines { node, format })
        .try_init();
}

/// The last line of a process that cannot go on. As text it is a plain sentence, because people
/// read it first and often read nothing else.
pub(crate) fn last_words(node: NodeId, reason: &str) {
    let (role, epoch) = standing();
    let line = match INSTALLED.get() {
        Some(LogFormat::Json) => {
            let line = Line {
                time: now(),
                level: Level::ERROR.as_str(),
                node: node.to_string(),
                epoch,
                role: role.map(role_name),
                message: format!("stopped: {reason}"),
                fields: Map::new(),
            };
            line.to_json()
        }
        _ => match role {
            Some(role) => format!(
                "{node} stopped: {} ({} in epoch {epoch})",
                printable(reason),
                role_name(role)
            ),
            None => format!("{node} stopped: {}", printable(reason)),
        },
    };
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The only line of a process that did not start. As text it is a plain sentence.
pub(crate) fn refusal(node: NodeId, format: LogFormat, reason: &str) {
    let line = match format {
        LogFormat::Text => format!("kraft-node: {}", printable(reason)),
        LogFormat::Json => {
            let line = Line {
                time: now(),
                level: Level::ERROR.as_str(),
                node: node.to_string(),
                epoch: Epoch(0),
                role: None,
                message: reason.into(),
                fields: Map::new(),
            };
            line.to_json()
        }
    };
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

#[derive(Debug, Serialize)]
struct Line {
    /// UTC, RFC 3339.
    time: String,
    level: &'static str,
    node: String,
    /// 0 before the node has started.
    epoch: Epoch,
    /// `null` before the node has started.
    role: Option<&'static str>,
    message: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl Line {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a line is made of strings and JSON")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            time, level, node, ..
        } = self;
        let role = self.role.unwrap_or("starting");
        let message = printable(&self.message);
        write!(
            formatter,
            "{time} {level:>5} {node} {role} epoch {}: {message}",
            self.epoch
        )?;
        for (name, value) in &self.fields {
            match value {
                Value::String(text) => write!(formatter, " {name}={:?}", printable(text))?,
                other => write!(formatter, " {name}={other}")?,
            }
        }
        Ok(())
    }
}

fn now() -> String {
    let mut text = String::new();
    // Fails only where a string cannot grow.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// In one line, without anything that a terminal would act on.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// How events become lines.
#[derive(Debug)]
struct Lines {
    node: NodeId,
    format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let (role, epoch) = standing();
        let line = Line {
            time: now(),
            level: event.metadata().level().as_str(),
            node: self.node.to_string(),
            epoch,
            role: role.map(role_name),
            message: said.message,
            fields: said.fields,
        };
        match self.format {
            LogFormat::Text => writeln!(writer, "{line}"),
            LogFormat::Json => writeln!(writer, "{}", line.to_json()),
        }
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    fn add(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            // What every line says must not be said twice, least of all in two ways.
            "time" | "level" | "node" | "epoch" | "role" => format!("event_{}", field.name()),
            other => other.to_owned(),
        };
        self.fields.insert(name, value);
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Fails only where a string cannot grow.
        let _ = write!(text, "{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value.into());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a log in this format says to two events.
    fn logged(format: LogFormat) -> String {
        #[derive(Clone, Default)]
        struct Sink(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::default();
        let writer = sink.clone();
        let log = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(Level::INFO)
            .event_format(Lines {
                node: NodeId(3),
                format,
            })
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(
                reason = "a \"b\"\n\u{1b}[31m",
                count = 3,
                node = "x",
                "one\ntwo"
            );
            tracing::debug!("not asked for");
        });
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_text_line_is_one_line_whatever_it_says() {
        let text = logged(LogFormat::Text);
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{text}");
        assert!(rest.starts_with(" WARN n3 "), "{text}");
        assert!(rest.contains(": one two "), "{text}");
        assert!(rest.contains(" count=3") && rest.contains("reason=\"a"));
    }

    #[test]
    fn a_json_line_has_the_same_members_first_and_keeps_what_was_said() {
        let text = logged(LogFormat::Json);
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["node"]),
            (&"WARN".into(), &"n3".into())
        );
        assert_eq!(line["message"], "one\ntwo");
        assert_eq!(line["reason"], "a \"b\"\n\u{1b}[31m");
        assert_eq!(
            (&line["count"], &line["event_node"]),
            (&3.into(), &"x".into())
        );
        for member in ["time", "epoch", "role"] {
            assert!(line.get(member).is_some(), "{member}");
        }
    }
}
