//! Owns which faults an event of a node starts: what is waited for, what matches it, and the counting.
//! Never sees a node; worlds say what happens on theirs.

use results::trace::Role;
use results::trigger::{Edge, EventName, EventTrigger, NodeSelector};
use std::collections::{BTreeMap, BTreeSet};

/// Something that happens on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence<'a> {
    /// What.
    pub event: EventName,
    /// Whether it is about to happen, or just has.
    pub edge: Edge,
    /// On which node.
    pub node: &'a str,
    /// The state of that node as it last reported it; after a change of the state, the new one.
    pub role: Option<Role>,
}

/// The faults that wait for an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watches {
    waiting: BTreeMap<u64, Watch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Watch {
    trigger: EventTrigger,
    seen_count: u32,
}

impl Watches {
    /// Lets the fault `id` wait for its event, which is counted from now on.
    pub fn add(&mut self, id: u64, trigger: EventTrigger) {
        let seen_count = 0;
        self.waiting.insert(
            id,
            Watch {
                trigger,
                seen_count,
            },
        );
    }

    /// Lets nothing wait any more.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Every event that anything waits for, on its edge.
    pub fn awaited(&self) -> BTreeSet<(EventName, Edge)> {
        let waiting = self.waiting.values();
        waiting
            .map(|watch| (watch.trigger.event, watch.trigger.edge))
            .collect()
    }

    /// Something happens: the faults that it starts, by ascending id. They wait no longer.
    pub fn observe(&mut self, occurrence: Occurrence<'_>) -> Vec<u64> {
        let mut started = Vec::new();
        for (id, watch) in &mut self.waiting {
            if matches(&watch.trigger, occurrence) {
                watch.seen_count += 1;
                if watch.seen_count == watch.trigger.nth {
                    started.push(*id);
                }
            }
        }
        for id in &started {
            self.waiting.remove(id);
        }
        started
    }
}

fn matches(trigger: &EventTrigger, occurrence: Occurrence<'_>) -> bool {
    (trigger.event, trigger.edge) == (occurrence.event, occurrence.edge)
        && match &trigger.node {
            NodeSelector::Any => true,
            NodeSelector::Leader => occurrence.role == Some(Role::Leader),
            NodeSelector::Follower => occurrence.role == Some(Role::Follower),
            NodeSelector::Candidate => {
                matches!(occurrence.role, Some(Role::Candidate | Role::Prospective))
            }
            // Needs a world with observers, and no world has any yet.
            NodeSelector::Observer => false,
            NodeSelector::Node(node) => node == occurrence.node,
        }
}

/// Why no event can ever match this trigger, or none could be held for it; for people.
pub fn contradiction(trigger: &EventTrigger) -> Option<&'static str> {
    use EventName as Name;
    let (event, node, edge) = (trigger.event, &trigger.node, trigger.edge);
    if edge == Edge::Before && event == Name::Started {
        return Some(
            "before it has started, a node cannot be held; use \"edge\": \"after\", or kill it at another event",
        );
    }
    let new_role = match event {
        Name::BecameLeader => Some(NodeSelector::Leader),
        Name::BecameCandidate | Name::BecameProspective => Some(NodeSelector::Candidate),
        Name::BecameFollower => Some(NodeSelector::Follower),
        Name::Resigned => None,
        _ => return never_in_role(event, node),
    };
    let names_a_role = matches!(
        node,
        NodeSelector::Leader | NodeSelector::Follower | NodeSelector::Candidate
    );
    let is_new = Some(node) == new_role.as_ref();
    match edge {
        // The node is in its new state, whichever it was in before.
        Edge::After if names_a_role && !is_new => Some(
            "after a change of its state a node is in the new one, so this one never is; name no state",
        ),
        Edge::Before if event == Name::BecameLeader && is_new => {
            Some("before it becomes a leader a node does not lead; name \"candidate\" or \"any\"")
        }
        Edge::Before
            if event == Name::Resigned && names_a_role && *node != NodeSelector::Leader =>
        {
            Some("only a leader resigns")
        }
        _ => None,
    }
}

/// Events that only nodes in some state have.
fn never_in_role(event: EventName, node: &NodeSelector) -> Option<&'static str> {
    use EventName as Name;
    use results::trigger::MessageType as Type;
    let is_leader = *node == NodeSelector::Leader;
    let is_other = matches!(node, NodeSelector::Follower | NodeSelector::Candidate);
    match event {
        Name::Truncate | Name::SnapshotInstalled if is_leader => {
            Some("a leader's log is never cut back or replaced; name \"follower\" or \"any\"")
        }
        Name::ReadServed | Name::MessageSent(Type::BeginQuorumEpoch) if is_other => {
            Some("only a leader does that; name \"leader\" or \"any\"")
        }
        Name::MessageSent(Type::PreVote | Type::Vote)
            if matches!(node, NodeSelector::Leader | NodeSelector::Follower) =>
        {
            Some("only a candidate asks for votes; name \"candidate\" or \"any\"")
        }
        Name::MessageSent(Type::Fetch | Type::FetchSnapshot) if is_leader => {
            Some("a leader does not fetch; name \"follower\" or \"any\"")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(text: &str) -> EventTrigger {
        let trigger: results::trigger::Trigger = serde_json::from_str(text).unwrap();
        trigger.on.unwrap()
    }

    fn flush(node: &str, role: Role) -> Occurrence<'_> {
        Occurrence {
            event: EventName::Flush,
            edge: Edge::Before,
            node,
            role: Some(role),
        }
    }

    #[test]
    fn the_nth_event_of_a_node_that_matches_starts_the_fault_once() {
        let mut watches = Watches::default();
        watches.add(
            4,
            trigger(r#"{"on":"flush","edge":"before","node":"leader","nth":2}"#),
        );
        watches.add(
            3,
            trigger(r#"{"on":"flush","edge":"before","node":["n2"]}"#),
        );
        assert_eq!(
            watches.awaited(),
            BTreeSet::from([(EventName::Flush, Edge::Before)])
        );
        assert_eq!(
            watches.observe(flush("n1", Role::Leader)),
            Vec::<u64>::new()
        );
        assert_eq!(
            watches.observe(flush("n1", Role::Follower)),
            Vec::<u64>::new()
        );
        let after = Occurrence {
            edge: Edge::After,
            ..flush("n2", Role::Leader)
        };
        assert_eq!(watches.observe(after), Vec::<u64>::new());
        assert_eq!(watches.observe(flush("n2", Role::Leader)), [3, 4]);
        assert!(watches.is_empty());
        assert_eq!(
            watches.observe(flush("n2", Role::Leader)),
            Vec::<u64>::new()
        );
    }

    #[test]
    fn counting_begins_when_waiting_does() {
        let mut watches = Watches::default();
        let any = r#"{"on":"flush","edge":"before","nth":2}"#;
        watches.add(1, trigger(any));
        assert_eq!(
            watches.observe(flush("n1", Role::Follower)),
            Vec::<u64>::new()
        );
        watches.add(2, trigger(any));
        assert_eq!(watches.observe(flush("n3", Role::Candidate)), [1]);
        assert_eq!(watches.observe(flush("n3", Role::Candidate)), [2]);
        watches.add(2, trigger(any));
        watches.clear();
        assert!(watches.is_empty() && watches.awaited().is_empty());
    }

    #[test]
    fn a_prospective_candidate_stands_for_election() {
        let mut watches = Watches::default();
        watches.add(
            1,
            trigger(r#"{"on":"flush","edge":"before","node":"candidate"}"#),
        );
        assert_eq!(watches.observe(flush("n1", Role::Prospective)), [1]);
    }

    #[test]
    fn what_never_happens_is_told_from_what_may() {
        for (text, word) in [
            (r#"{"on":"started","edge":"before"}"#, "started"),
            (r#"{"on":"became-leader","node":"follower"}"#, "new one"),
            (
                r#"{"on":"became-leader","node":"leader","edge":"before"}"#,
                "does not lead",
            ),
            (
                r#"{"on":"resigned","node":"follower","edge":"before"}"#,
                "only a leader",
            ),
            (r#"{"on":"resigned","node":"leader"}"#, "new one"),
            (r#"{"on":"truncate","node":"leader"}"#, "cut back"),
            (r#"{"on":"message-sent:vote","node":"leader"}"#, "candidate"),
            (r#"{"on":"message-sent:fetch","node":"leader"}"#, "fetch"),
            (r#"{"on":"read-served","node":"candidate"}"#, "leader"),
        ] {
            let reason = contradiction(&trigger(text));
            assert!(
                reason.is_some_and(|reason| reason.contains(word)),
                "{text}: {reason:?}"
            );
        }
        for text in [
            r#"{"on":"started"}"#,
            r#"{"on":"became-leader","node":"leader"}"#,
            r#"{"on":"became-leader","node":"candidate","edge":"before"}"#,
            r#"{"on":"became-follower","node":"leader","edge":"before"}"#,
            r#"{"on":"vote-persisted","node":"follower","edge":"before"}"#,
            r#"{"on":"flush","node":"leader","edge":"before"}"#,
            r#"{"on":"message-received:vote","node":"leader"}"#,
        ] {
            assert_eq!(contradiction(&trigger(text)), None, "{text}");
        }
    }
}
