//! Owns the messages between nodes: which sending belongs to which arrival, and what was lost.
//! Never guesses an arrival: a message that no trace saw arrive is lost or was still on its way.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::timeline::NodeTimeline;

/// One end of a message, as a node told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Nanoseconds since the run started.
    pub(crate) at_ns: u64,
    /// Whether the node sent it; else it arrived.
    pub(crate) sent: bool,
    /// The other node.
    pub(crate) peer: String,
    /// Number of the request it is or answers.
    pub(crate) correlation: u64,
    /// What it says.
    pub(crate) words: Words,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    /// `vote`, `fetch`, ...
    pub(crate) rpc: String,
    /// Whether it is the answer.
    pub(crate) is_response: bool,
    /// Epoch that it speaks of.
    pub(crate) epoch: Option<i32>,
    /// Log end or place of the records, see the trace format.
    pub(crate) offset: Option<i64>,
    /// High watermark that it speaks of.
    pub(crate) high_watermark: Option<i64>,
    /// For the answer to a vote.
    pub(crate) granted: Option<bool>,
    /// Error of the answer.
    pub(crate) error: Option<String>,
}

/// The members of a traced message.
#[derive(Debug, Deserialize)]
pub(crate) struct Spoken<'a> {
    #[serde(borrow, default)]
    to: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    rpc: Cow<'a, str>,
    is_response: bool,
    #[serde(default)]
    correlation: Option<u64>,
    #[serde(default)]
    message_epoch: Option<i32>,
    #[serde(default)]
    offset: Option<i64>,
    #[serde(default)]
    high_watermark: Option<i64>,
    #[serde(default)]
    granted: Option<bool>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
}

impl Spoken<'_> {
    /// The end of the message; `None` for what has no number, which is not between nodes.
    pub(crate) fn said(self, at_ns: u64) -> Option<Said> {
        let sent = self.to.is_some();
        Some(Said {
            at_ns,
            sent,
            peer: self.to.or(self.from)?.into_owned(),
            correlation: self.correlation?,
            words: Words {
                rpc: self.rpc.into_owned(),
                is_response: self.is_response,
                epoch: self.message_epoch,
                offset: self.offset,
                high_watermark: self.high_watermark,
                granted: self.granted,
                error: self.error.map(Cow::into_owned),
            },
        })
    }
}

/// A message from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Nanoseconds since the run started.
    pub(crate) sent_ns: u64,
    /// Nanoseconds since the run started; `None` when nobody saw it arrive.
    pub(crate) received_ns: Option<u64>,
    /// Position of the sender among the nodes.
    pub(crate) from: usize,
    /// Position of the receiver among the nodes.
    pub(crate) to: usize,
    /// What it says.
    pub(crate) words: &'a Words,
}

/// All messages that a trace saw leave, in order of time.
pub(crate) fn messages(nodes: &[NodeTimeline]) -> Vec<Message<'_>> {
    let names: BTreeMap<&str, usize> = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| (node.node.as_str(), number))
        .collect();
    let mut ends: Vec<(usize, usize, &Said)> = Vec::new();
    for (own, node) in nodes.iter().enumerate() {
        let known = node.said.iter();
        ends.extend(known.filter_map(|said| Some((own, *names.get(said.peer.as_str())?, said))));
    }
    // A message may arrive in the nanosecond it left in.
    ends.sort_by_key(|(_, _, said)| (said.at_ns, !said.sent));

    let mut messages: Vec<Message<'_>> = Vec::new();
    let mut on_the_way: HashMap<(usize, usize, bool, u64), usize> = HashMap::new();
    for (own, peer, said) in ends {
        let (from, to) = if said.sent { (own, peer) } else { (peer, own) };
        let key = (from, to, said.words.is_response, said.correlation);
        if said.sent {
            // Numbers begin anew when a node restarts: an older message of that number is lost.
            on_the_way.insert(key, messages.len());
            messages.push(Message {
                sent_ns: said.at_ns,
                received_ns: None,
                from,
                to,
                words: &said.words,
            });
        } else if let Some(number) = on_the_way.remove(&key) {
            messages[number].received_ns = Some(said.at_ns);
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, lines: &[(u64, &str)]) -> NodeTimeline {
        let mut node = NodeTimeline::new(name, Vec::new());
        for (time, rest) in lines {
            let line = format!(
                r#"{{"time":{time},"node":"{name}","incarnation":1,"seq":0,"epoch":1,{rest}}}"#
            );
            node.take_line(line.as_bytes()).unwrap();
        }
        node
    }

    #[test]
    fn a_sending_finds_its_arrival_and_the_rest_is_lost() {
        let vote = r#""rpc":"vote","is_response":false,"correlation":"#;
        let nodes = [
            node(
                "n1",
                &[
                    (10, &format!(r#""event":"rpc-sent","to":"n2",{vote}1"#)),
                    (20, &format!(r#""event":"rpc-sent","to":"n2",{vote}2"#)),
                    (30, &format!(r#""event":"rpc-sent","to":"n2",{vote}1"#)),
                    (
                        50,
                        r#""event":"rpc-received","from":"n2","rpc":"vote","is_response":true,"correlation":1,"granted":true"#,
                    ),
                ],
            ),
            node(
                "n2",
                &[
                    (
                        40,
                        &format!(r#""event":"rpc-received","from":"n1",{vote}1"#),
                    ),
                    (
                        45,
                        r#""event":"rpc-sent","to":"n1","rpc":"pre-vote","is_response":true,"correlation":1,"granted":true"#,
                    ),
                    (
                        60,
                        r#""event":"rpc-received","from":"client","rpc":"describe-quorum","is_response":false"#,
                    ),
                    (
                        70,
                        &format!(r#""event":"rpc-received","from":"n9",{vote}1"#),
                    ),
                ],
            ),
        ];
        let messages = messages(&nodes);
        let told: Vec<_> = messages
            .iter()
            .map(|one| (one.sent_ns, one.received_ns, one.from, one.to))
            .collect();
        assert_eq!(
            told,
            [
                (10, None, 0, 1),
                (20, None, 0, 1),
                (30, Some(40), 0, 1),
                (45, Some(50), 1, 0)
            ]
        );
        assert_eq!(messages[3].words.rpc, "pre-vote");
        assert_eq!(messages[3].words.granted, Some(true));
    }

    #[test]
    fn a_damaged_message_is_refused_like_any_damaged_line() {
        let mut node = NodeTimeline::new("n1", Vec::new());
        let line = br#"{"time":1,"node":"n1","incarnation":1,"seq":0,"epoch":1,
            "event":"rpc-sent","to":"n2","is_response":false}"#;
        let refused = node.take_line(line).unwrap_err();
        assert!(refused.to_string().contains("rpc"), "{refused}");
    }
}
