//! Owns the data of the message diagram: what went between the nodes, and what was left out of it.
//! Never leaves out an election: only fetches are many.

use results::manifest::Manifest;
use serde_json::json;

use crate::messages::{self, Message};
use crate::names::Names;
use crate::reading::Run;
use crate::text::{count, printable};

use super::moments::Moment;
use super::packed::{Column, pack};

/// Up to this many messages all are kept; one costs about twelve bytes of the page.
const MESSAGE_COUNT_MAX: usize = 60_000;
/// Around a moment, fetches are kept this long before and after.
const AROUND_NS: u64 = 400_000_000;

/// The diagram of a run.
#[derive(Debug, Default)]
pub(crate) struct Diagram {
    /// The data for the script; empty without messages.
    pub(crate) data: String,
    /// Why there is none, or what was left out, for people.
    pub(crate) notice: String,
}

impl Diagram {
    /// In place of a diagram that could not be made.
    pub(crate) fn failed() -> Self {
        Self {
            data: String::new(),
            notice: "The messages could not be drawn: the drawing code panicked.".to_owned(),
        }
    }
}

/// Packs the messages of `run`.
pub(crate) fn diagram(run: &Run, moments: &[Moment]) -> Diagram {
    let all = messages::messages(&run.nodes);
    if all.is_empty() {
        return Diagram {
            data: String::new(),
            notice: absence(run.manifest.as_ref()),
        };
    }
    let total = all.len();
    let kept: Vec<_> = if total <= MESSAGE_COUNT_MAX {
        all
    } else {
        around(all, moments)
    };
    let notice = match total - kept.len() {
        0 => String::new(),
        left_out => format!(
            "{} of {} messages are here: all that are not fetches, and the fetches around violations \
             and elections. The other {} fetches are in the traces.",
            count(kept.len() as u64),
            count(total as u64),
            count(left_out as u64)
        ),
    };
    Diagram {
        data: packed(&kept, run),
        notice,
    }
}

fn absence(manifest: Option<&Manifest>) -> String {
    let asked = manifest.is_some_and(|run| run.options.cluster.trace_messages);
    let why = if asked {
        "The run was to trace messages between nodes, but the traces hold none."
    } else {
        "Messages between nodes were not traced in this run, so they cannot be drawn. \
         Run it again with --trace-messages to have them."
    };
    why.to_owned()
}

/// Violations come before elections among the moments, so they are served first.
fn around<'a>(all: Vec<Message<'a>>, moments: &[Moment]) -> Vec<Message<'a>> {
    let is_fetch = |message: &Message<'_>| message.words.rpc == "fetch";
    let mut room =
        MESSAGE_COUNT_MAX.saturating_sub(all.iter().filter(|one| !is_fetch(one)).count());
    let mut wanted = vec![false; all.len()];
    for moment in moments {
        let from_ns = moment.from_ns.saturating_sub(AROUND_NS);
        let to_ns = moment.to_ns.saturating_add(AROUND_NS);
        let first = all.partition_point(|one| one.sent_ns < from_ns);
        let last = all.partition_point(|one| one.sent_ns <= to_ns);
        // The end of a long violation is where it shows.
        for place in (first..last).rev() {
            if room > 0 && !wanted[place] && is_fetch(&all[place]) {
                wanted[place] = true;
                room -= 1;
            }
        }
    }
    let kept = all.into_iter().zip(wanted);
    kept.filter(|(message, wanted)| *wanted || !is_fetch(message))
        .map(|(message, _)| message)
        .collect()
}

fn packed(list: &[Message<'_>], run: &Run) -> String {
    let (mut rpcs, mut errors) = (Names::default(), Names::default());
    let mut columns = [
        "sent", "delay", "ends", "rpc", "epoch", "offset", "mark", "granted", "error",
    ]
    .map(|name| (name, Column::default()));
    let positive = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    for one in list {
        let words = one.words;
        let sent_us = one.sent_ns / 1000;
        let delay_us = one
            .received_ns
            .map(|ns| (ns / 1000).saturating_sub(sent_us));
        let ends = one.from * run.nodes.len() + one.to;
        let rpc = u64::from(rpcs.number(&words.rpc)) * 2 + u64::from(words.is_response);
        let error = words.error.as_ref().map(|error| errors.number(error));
        let [
            sent,
            delay,
            both,
            rpcs,
            epoch,
            offset,
            mark,
            granted,
            failure,
        ] = &mut columns;
        sent.1.push_change(sent_us);
        delay.1.push_optional(delay_us);
        both.1.push(ends as u64);
        rpcs.1.push(rpc);
        epoch.1.push_optional(positive(words.epoch.map(i64::from)));
        offset.1.push_optional(positive(words.offset));
        mark.1.push_optional(positive(words.high_watermark));
        granted.1.push_optional(words.granted.map(u64::from));
        failure.1.push_optional(error.map(u64::from));
    }
    let mut columns: Vec<_> = columns.into();
    columns.extend(marks(run));
    let names = |names: &Names| names.iter().map(printable).collect::<Vec<_>>();
    let head = json!({
        "count": list.len(),
        "nodes": run.nodes.iter().map(|node| printable(&node.node)).collect::<Vec<_>>(),
        "rpcs": names(&rpcs),
        "errors": names(&errors),
        "mark_counts": run.nodes.iter().map(|node| node.log.len()).collect::<Vec<_>>(),
    });
    pack(head, &columns)
}

/// Log end and high watermark of every node, one node after the other.
fn marks(run: &Run) -> [(&'static str, Column); 3] {
    let mut columns = ["mark_at", "mark_end", "mark_high"].map(|name| (name, Column::default()));
    for sample in run.nodes.iter().flat_map(|node| &node.log) {
        let [at, end, high] = &mut columns;
        at.1.push_change(sample.at_ns / 1000);
        end.1
            .push_change(u64::try_from(sample.log_end).unwrap_or(0));
        high.1
            .push_change(u64::try_from(sample.high_watermark).unwrap_or(0));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Words;

    fn words(rpc: &str) -> Words {
        Words {
            rpc: rpc.into(),
            is_response: false,
            epoch: None,
            offset: None,
            high_watermark: None,
            granted: None,
            error: None,
        }
    }

    #[test]
    fn of_too_many_messages_those_around_moments_and_all_votes_are_kept() {
        let (fetch, vote) = (words("fetch"), words("vote"));
        let messages = (0..100_000u64).map(|number| Message {
            sent_ns: number * 1_000_000,
            received_ns: None,
            from: 0,
            to: 1,
            words: if number % 1000 == 0 { &vote } else { &fetch },
        });
        let moment = Moment {
            label: "stale".into(),
            violation: true,
            from_ns: 50_000_500_000,
            to_ns: 50_000_500_000,
            indices: vec![],
            failing: None,
        };
        let kept = around(messages.collect(), &[moment]);
        let votes = kept.iter().filter(|one| one.words.rpc == "vote").count();
        assert_eq!(votes, 100);
        let fetches: Vec<_> = kept.iter().filter(|one| one.words.rpc == "fetch").collect();
        assert_eq!(
            fetches.len(),
            799,
            "0.4 s on both sides, but for the vote between"
        );
        assert!(
            fetches
                .iter()
                .all(|one| one.sent_ns.abs_diff(50_000_500_000) <= AROUND_NS)
        );
    }
}
