//! Owns when a fault starts: at a time, or at an event of a node.
//! Never decides whether an event has come; worlds watch their nodes for that.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ranges;

/// When a fault starts. Written `{"at_ms": 5000}` or
/// `{"on": "became-leader", "node": "any", "nth": 2, "edge": "after"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Trigger {
    /// Milliseconds since the run started at which the fault starts; with an event, the moment from
    /// which events are counted.
    pub at_ms: u64,
    /// The event that starts the fault; none for a fault that starts by time alone.
    pub on: Option<EventTrigger>,
}

/// The event of a node that starts a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTrigger {
    /// What must happen.
    pub event: EventName,
    /// On which node.
    pub node: NodeSelector,
    /// The how many-th such event starts the fault, from 1.
    pub nth: u32,
    /// Whether the fault starts before the event takes effect or after it.
    pub edge: Edge,
}

/// On which side of an event a fault starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// The node is held at the point where the event would take effect until the fault is there.
    Before,
    /// The event has taken effect.
    #[default]
    After,
}

/// Whose events count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NodeSelector {
    /// Those of every node.
    #[default]
    Any,
    /// Those of a node that leads at that moment.
    Leader,
    /// Those of a node that follows at that moment.
    Follower,
    /// Those of a node that stands for election, or asks whether it could, at that moment.
    Candidate,
    /// Those of a node that is no voter.
    Observer,
    /// Those of this node.
    Node(String),
}

/// What can start a fault: the events that a node traces, and messages that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventName {
    /// The node took part again after a start.
    Started,
    /// It became a leader.
    BecameLeader,
    /// It became a candidate.
    BecameCandidate,
    /// It became a prospective candidate (KIP-996).
    BecameProspective,
    /// It became a follower.
    BecameFollower,
    /// It gave up leadership.
    Resigned,
    /// A vote became durable.
    VotePersisted,
    /// A newer epoch or its leader became durable.
    EpochAdopted,
    /// A batch was appended to the log.
    Append,
    /// The log became durable up to its end.
    Flush,
    /// The high watermark moved.
    HighWatermark,
    /// The log was cut back.
    Truncate,
    /// A snapshot of its own became durable.
    SnapshotFrozen,
    /// A snapshot of the leader replaced the log.
    SnapshotInstalled,
    /// The beginning of the log was deleted.
    LogStartAdvanced,
    /// A set of voters was appended to the log (KIP-853).
    VotersAppended,
    /// A linearizable read was answered.
    ReadServed,
    /// A request of this type left for another node.
    MessageSent(MessageType),
    /// A request of this type arrived from another node.
    MessageReceived(MessageType),
}

/// Types of requests between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageType {
    /// A question whether a vote would be granted (KIP-996).
    PreVote,
    /// A request for a vote.
    Vote,
    /// The announcement of a leader.
    BeginQuorumEpoch,
    /// The farewell of a leader.
    EndQuorumEpoch,
    /// A follower asking for records.
    Fetch,
    /// A follower asking for a piece of a snapshot.
    FetchSnapshot,
}

const MESSAGE_TYPES: [(MessageType, &str); 6] = [
    (MessageType::PreVote, "pre-vote"),
    (MessageType::Vote, "vote"),
    (MessageType::BeginQuorumEpoch, "begin-quorum-epoch"),
    (MessageType::EndQuorumEpoch, "end-quorum-epoch"),
    (MessageType::Fetch, "fetch"),
    (MessageType::FetchSnapshot, "fetch-snapshot"),
];

const EVENTS: [(EventName, &str); 17] = [
    (EventName::Started, "started"),
    (EventName::BecameLeader, "became-leader"),
    (EventName::BecameCandidate, "became-candidate"),
    (EventName::BecameProspective, "became-prospective"),
    (EventName::BecameFollower, "became-follower"),
    (EventName::Resigned, "resigned"),
    (EventName::VotePersisted, "vote-persisted"),
    (EventName::EpochAdopted, "epoch-adopted"),
    (EventName::Append, "append"),
    (EventName::Flush, "flush"),
    (EventName::HighWatermark, "high-watermark"),
    (EventName::Truncate, "truncate"),
    (EventName::SnapshotFrozen, "snapshot-frozen"),
    (EventName::SnapshotInstalled, "snapshot-installed"),
    (EventName::LogStartAdvanced, "log-start-advanced"),
    (EventName::VotersAppended, "voters-appended"),
    (EventName::ReadServed, "read-served"),
];

const SENT: &str = "message-sent:";
const RECEIVED: &str = "message-received:";

impl MessageType {
    /// The name in schedules and traces.
    pub fn name(self) -> &'static str {
        let found = MESSAGE_TYPES.iter().find(|(known, _)| *known == self);
        found.map_or("", |(_, name)| name)
    }
}

impl EventName {
    /// Every event.
    pub fn all() -> Vec<Self> {
        let messages = MESSAGE_TYPES.iter().flat_map(|(message_type, _)| {
            [
                Self::MessageSent(*message_type),
                Self::MessageReceived(*message_type),
            ]
        });
        let events = EVENTS.iter().map(|(event, _)| *event);
        events.chain(messages).collect()
    }

    /// The name in schedules: `became-leader`, `message-sent:fetch`, ...
    pub fn name(self) -> String {
        match self {
            Self::MessageSent(message_type) => format!("{SENT}{}", message_type.name()),
            Self::MessageReceived(message_type) => format!("{RECEIVED}{}", message_type.name()),
            event => {
                let found = EVENTS.iter().find(|(known, _)| *known == event);
                found.map_or_else(String::new, |(_, name)| (*name).to_owned())
            }
        }
    }

    /// The event of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|event| event.name() == name)
    }
}

impl Trigger {
    /// Starts a fault at a time, in milliseconds since the run started.
    pub fn at(at_ms: u64) -> Self {
        Self { at_ms, on: None }
    }
}

/// The trigger as it stands in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_milliseconds"
    )]
    at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nth: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edge: Option<Edge>,
}

/// What stands for a node: a word, or a list of one node as faults name their targets.
const NODE_WORDS: &str = "any, leader, follower, candidate, observer, or a list of one node such as \
                          [\"n1\"]";

impl TryFrom<Written> for Trigger {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Some(name) = written.on else {
            if written.node.is_some() || written.nth.is_some() || written.edge.is_some() {
                return Err(
                    "a trigger with \"node\", \"nth\" or \"edge\" needs the event, \"on\"".into(),
                );
            }
            let at_ms = written
                .at_ms
                .ok_or("a trigger needs a time, \"at_ms\", or an event, \"on\"")?;
            return Ok(Self::at(at_ms));
        };
        let event = EventName::from_name(&name).ok_or_else(|| {
            let known: Vec<String> = EventName::all().into_iter().map(EventName::name).collect();
            format!("unknown event \"{name}\"; known: {}", known.join(", "))
        })?;
        let nth = written.nth.unwrap_or(1);
        if nth == 0 {
            return Err("\"nth\" is 0; the first event is number 1".into());
        }
        let node = written.node.as_ref().map(node_selector).transpose()?;
        Ok(Self {
            at_ms: written.at_ms.unwrap_or(0),
            on: Some(EventTrigger {
                event,
                node: node.unwrap_or_default(),
                nth,
                edge: written.edge.unwrap_or_default(),
            }),
        })
    }
}

fn node_selector(written: &Value) -> Result<NodeSelector, String> {
    let named = written.as_array().and_then(|list| match list.as_slice() {
        [Value::String(node)] => Some(NodeSelector::Node(node.clone())),
        _ => None,
    });
    let word = || match written.as_str()? {
        "any" => Some(NodeSelector::Any),
        "leader" => Some(NodeSelector::Leader),
        "follower" => Some(NodeSelector::Follower),
        "candidate" => Some(NodeSelector::Candidate),
        "observer" => Some(NodeSelector::Observer),
        _ => None,
    };
    named
        .or_else(word)
        .ok_or_else(|| format!("unknown \"node\" {written} of a trigger; known: {NODE_WORDS}"))
}

impl From<Trigger> for Written {
    fn from(trigger: Trigger) -> Self {
        let Some(on) = trigger.on else {
            return Self {
                at_ms: Some(trigger.at_ms),
                on: None,
                node: None,
                nth: None,
                edge: None,
            };
        };
        let node = match on.node {
            NodeSelector::Any => json!("any"),
            NodeSelector::Leader => json!("leader"),
            NodeSelector::Follower => json!("follower"),
            NodeSelector::Candidate => json!("candidate"),
            NodeSelector::Observer => json!("observer"),
            NodeSelector::Node(node) => json!([node]),
        };
        Self {
            at_ms: (trigger.at_ms != 0).then_some(trigger.at_ms),
            on: Some(on.event.name()),
            node: Some(node),
            nth: Some(on.nth),
            edge: Some(on.edge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trigger, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_time_is_written_as_ever() {
        let trigger = read(r#"{"at_ms":5000}"#).unwrap();
        assert_eq!(trigger, Trigger::at(5_000));
        assert_eq!(
            serde_json::to_string(&trigger).unwrap(),
            r#"{"at_ms":5000}"#
        );
    }

    #[test]
    fn every_event_and_node_survives_the_round_trip() {
        let nodes = [
            NodeSelector::Any,
            NodeSelector::Leader,
            NodeSelector::Follower,
            NodeSelector::Candidate,
            NodeSelector::Observer,
            NodeSelector::Node("n3".into()),
        ];
        let events = EventName::all();
        assert_eq!(events.len(), EVENTS.len() + 2 * MESSAGE_TYPES.len());
        for event in events {
            for (node, edge) in nodes.iter().zip([Edge::Before, Edge::After].iter().cycle()) {
                let trigger = Trigger {
                    at_ms: 40,
                    on: Some(EventTrigger {
                        event,
                        node: node.clone(),
                        nth: 3,
                        edge: *edge,
                    }),
                };
                let text = serde_json::to_string(&trigger).unwrap();
                assert_eq!(read(&text), Ok(trigger), "{text}");
            }
        }
    }

    #[test]
    fn an_event_alone_is_the_first_of_any_node_once_it_has_happened() {
        let trigger = read(r#"{"on":"message-sent:pre-vote"}"#).unwrap();
        let expected = EventTrigger {
            event: EventName::MessageSent(MessageType::PreVote),
            node: NodeSelector::Any,
            nth: 1,
            edge: Edge::After,
        };
        assert_eq!(trigger.on, Some(expected));
        assert_eq!(trigger.at_ms, 0);
    }

    #[test]
    fn mistakes_are_explained() {
        let error = |text: &str| read(text).unwrap_err();
        assert!(error("{}").contains("at_ms"));
        assert!(error(r#"{"nth":2}"#).contains("\"on\""));
        let unknown = error(r#"{"on":"became-king"}"#);
        assert!(unknown.contains("became-leader"), "{unknown}");
        assert!(unknown.contains("message-received:fetch"), "{unknown}");
        assert!(error(r#"{"on":"flush","nth":0}"#).contains("number 1"));
        assert!(error(r#"{"on":"flush","node":"n1"}"#).contains("[\"n1\"]"));
        let two = error(r#"{"on":"flush","node":["n1","n2"]}"#);
        assert!(
            two.contains(r#"["n1","n2"]"#) && two.contains("a list of one node"),
            "{two}"
        );
        let early = error(r#"{"at_ms":-4}"#);
        assert!(
            early.contains("`-4`, expected a whole number of milliseconds"),
            "{early}"
        );
        assert!(error(r#"{"on":"flush","edge":"beside"}"#).contains("before"));
        assert!(error(r#"{"at_ms":1,"after":2}"#).contains("after"));
    }
}
