//! Owns the tests of K1 and K4, and of majorities among voters that change.
//! Never lets a mutation pass unseen.

use results::trace::{Role, Started, TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};

use crate::epoch_history::cluster::Shape;
use crate::epoch_history::replica::name;
use crate::epoch_history::{is_election, judge, last, must_flag_in};

fn changes_voters(event: &TraceEvent) -> bool {
    matches!(event.detail, TraceDetail::VotersAppended { .. })
}

fn exposed(event: &TraceEvent) -> Option<i64> {
    match event.detail {
        TraceDetail::HighWatermark { high_watermark, .. } => Some(high_watermark),
        _ => None,
    }
}

/// A change that some node reports as committed: offset and epoch of the leader that appended it.
fn committed_change(trace: &[TraceEvent]) -> Option<i64> {
    trace.iter().enumerate().rev().find_map(|(place, event)| {
        let TraceDetail::VotersAppended { offset, .. } = event.detail else {
            return None;
        };
        let later = trace[place..]
            .iter()
            .take_while(|later| later.node != event.node || later.epoch == event.epoch);
        let mut of_node = later.filter(|later| later.node == event.node);
        of_node
            .any(|later| exposed(later).is_some_and(|committed| committed > offset))
            .then_some(offset)
    })
}

#[test]
fn committed_voters_that_change_by_two_are_flagged() {
    must_flag_in(Shape::Full, "K1", |trace| {
        let Some(changed) = committed_change(trace) else {
            return false;
        };
        for event in trace {
            if let TraceDetail::VotersAppended { offset, voters, .. } = &mut event.detail
                && *offset == changed
            {
                voters.extend(["n8".to_owned(), "n9".to_owned()]);
            }
        }
        true
    });
}

#[test]
fn nodes_that_know_different_committed_voters_are_flagged() {
    must_flag_in(Shape::Full, "K1", |trace| {
        let Some(changed) = committed_change(trace) else {
            return false;
        };
        let of_change = |event: &TraceEvent| matches!(event.detail, TraceDetail::VotersAppended { offset, .. } if offset == changed);
        // On the last node to append it, which must then report it, as another did.
        let Some(place) = last(trace, of_change) else {
            return false;
        };
        let node = trace[place].node.clone();
        let reports = |event: &TraceEvent, of_node: bool| {
            (event.node == node) == of_node
                && exposed(event).is_some_and(|committed| committed > changed)
        };
        let is_reported = trace[place..]
            .iter()
            .take_while(|event| {
                event.node != node || !matches!(event.detail, TraceDetail::Started(_))
            })
            .any(|event| reports(event, true));
        let others = trace.iter().filter(|event| of_change(event)).count() > 1
            && trace.iter().any(|event| reports(event, false));
        if let TraceDetail::VotersAppended { voters, .. } = &mut trace[place].detail {
            *voters = vec!["n9".to_owned()];
        }
        is_reported && others
    });
}

#[test]
fn a_second_change_before_the_first_is_committed_is_flagged() {
    must_flag_in(Shape::Full, "K1", |trace| {
        let leads = |node: &str, epoch| {
            trace.iter().any(|event| {
                event.node == node
                    && event.epoch == epoch
                    && matches!(
                        event.detail,
                        TraceDetail::RoleChange {
                            role: Role::Leader,
                            ..
                        }
                    )
            })
        };
        let by_leader =
            |event: &TraceEvent| changes_voters(event) && leads(&event.node, event.epoch);
        let Some(place) = last(trace, by_leader) else {
            return false;
        };
        let mut event = trace[place].clone();
        if let TraceDetail::VotersAppended { offset, voters, .. } = &mut event.detail {
            *offset += 1;
            voters.push("n9".into());
        }
        trace.insert(place + 1, event);
        true
    });
}

/// The error of 2014: a leader that has not committed in its epoch may not know the change before.
#[test]
fn a_change_by_a_leader_that_has_not_committed_yet_is_flagged() {
    must_flag_in(Shape::Full, "K1", |trace| {
        let Some(place) = last(trace, is_election) else {
            return false;
        };
        let mut event = trace[place].clone();
        if let TraceDetail::RoleChange {
            epoch_start_offset: Some(start),
            ..
        } = event.detail
        {
            event.detail = TraceDetail::VotersAppended {
                offset: start,
                voters: vec!["n9".into()],
                kraft_version: 1,
            };
        }
        trace.insert(place + 1, event);
        true
    });
}

#[test]
fn a_restart_with_other_voters_than_those_of_the_log_is_flagged() {
    must_flag_in(Shape::Full, "K1", |trace| {
        let restarts = |event: &TraceEvent| match &event.detail {
            TraceDetail::Started(started) => {
                let directory = started.directory_id.as_deref().unwrap_or_default();
                event.incarnation > 1 && directory.ends_with("-0")
            }
            _ => false,
        };
        let Some(place) = last(trace, restarts) else {
            return false;
        };
        if let TraceDetail::Started(started) = &mut trace[place].detail {
            started.voters = Some(vec!["n9".into()]);
        }
        true
    });
}

#[test]
fn an_observer_that_takes_something_else_for_committed_is_flagged() {
    must_flag_in(Shape::Full, "K4", |trace| {
        let never_votes = |node: &str| {
            !matches!(node, "n1" | "n2" | "n3")
                && !trace.iter().any(|event| match &event.detail {
                    TraceDetail::VotersAppended { voters, .. } => {
                        voters.iter().any(|voter| voter == node)
                    }
                    _ => false,
                })
        };
        let Some(observer) = (3..6).map(name).find(|node| never_votes(node)) else {
            return false;
        };
        // Its last append before its last report, if nothing but the report comes between.
        let of_observer = |event: &TraceEvent| event.node == observer;
        let Some(report) = last(trace, |event| {
            of_observer(event) && exposed(event).is_some()
        }) else {
            return false;
        };
        let committed = exposed(&trace[report]).unwrap_or(0);
        let Some(append) = trace[..report].iter().rposition(|event| {
            of_observer(event) && matches!(event.detail, TraceDetail::Append { .. })
        }) else {
            return false;
        };
        if trace[append].incarnation != trace[report].incarnation {
            return false;
        }
        match &mut trace[append].detail {
            TraceDetail::Append {
                crc, last_offset, ..
            } if *last_offset < committed => {
                *crc += 1_000_000;
                true
            }
            _ => false,
        }
    });
}

/// Writes traces by hand.
#[derive(Default)]
struct Script {
    trace: Vec<TraceEvent>,
}

impl Script {
    fn say(&mut self, node: &str, detail: TraceDetail) -> &mut Self {
        let seq = self.trace.iter().filter(|event| event.node == node).count();
        let is_start = matches!(detail, TraceDetail::Started(_));
        self.trace.push(TraceEvent {
            time: 10 * self.trace.len() as u64,
            node: node.into(),
            incarnation: 1,
            seq: seq as u64,
            epoch: i32::from(!is_start),
            detail,
        });
        self
    }

    /// All start with these voters in the log's snapshot.
    fn start(nodes: &[&str], voters: &[&str]) -> Self {
        let mut script = Self::default();
        for node in nodes {
            let started = Started {
                role: Role::Unattached,
                log_start: 0,
                log_end: 0,
                last_epoch: 0,
                voted_for: None,
                leader: None,
                truncated_bytes: 0,
                snapshots: Some(Vec::new()),
                voters: Some(voters.iter().map(|&voter| voter.to_owned()).collect()),
                kraft_version: Some(1),
                directory_id: Some(format!("of-{node}")),
                is_voter: Some(voters.contains(node)),
            };
            script.say(node, TraceDetail::Started(Box::new(started)));
        }
        script
    }

    fn lead(&mut self, node: &str) -> &mut Self {
        let candidate = node.to_owned();
        self.say(node, TraceDetail::VotePersisted { candidate });
        self.say(
            node,
            TraceDetail::RoleChange {
                role: Role::Leader,
                leader: Some(node.into()),
                epoch_start_offset: Some(0),
                reason: None,
            },
        )
    }

    /// One record at `offset`.
    fn append(&mut self, node: &str, offset: i64) -> &mut Self {
        self.say(
            node,
            TraceDetail::Append {
                base_offset: offset,
                last_offset: offset,
                batch_epoch: 1,
                crc: offset as u32,
            },
        )
    }

    fn append_voters(&mut self, node: &str, offset: i64, voters: &[&str]) -> &mut Self {
        self.append(node, offset);
        let voters = voters.iter().map(|&voter| voter.to_owned()).collect();
        self.say(
            node,
            TraceDetail::VotersAppended {
                offset,
                voters,
                kraft_version: 1,
            },
        )
    }

    fn flush(&mut self, node: &str, log_end: i64) -> &mut Self {
        self.say(node, TraceDetail::Flush { log_end })
    }

    fn commit(&mut self, node: &str, high_watermark: i64) -> &mut Self {
        let log_end = high_watermark;
        self.say(
            node,
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            },
        )
    }

    /// Three voters have one record; then the leader n1 removes itself.
    fn removal_of_the_leader() -> Self {
        let nodes = ["n1", "n2", "n3"];
        let mut script = Self::start(&nodes, &nodes);
        script.lead("n1");
        for node in nodes {
            script.append(node, 0).flush(node, 1);
        }
        script.commit("n1", 1);
        script
            .append_voters("n1", 1, &["n2", "n3"])
            .append_voters("n2", 1, &["n2", "n3"])
            .append_voters("n3", 1, &["n2", "n3"]);
        script
    }

    fn judge(&mut self) -> CheckerResult {
        for node in ["n1", "n2", "n3"] {
            // Nobody's trace is cut.
            self.say(node, TraceDetail::EpochAdopted { leader: None });
        }
        judge(&self.trace)
    }
}

#[test]
fn a_leader_that_removed_itself_needs_the_majority_of_the_others() {
    let mut enough = Script::removal_of_the_leader();
    enough.flush("n2", 2).flush("n3", 2).commit("n1", 2);
    let result = enough.judge();
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);

    let mut counts_itself = Script::removal_of_the_leader();
    counts_itself.flush("n1", 2).flush("n2", 2).commit("n1", 2);
    let majority = &counts_itself.judge().properties["I6"];
    assert_eq!(majority.valid, Validity::Invalid);
    assert!(
        majority
            .summary
            .contains("only 1 of 2 voters had that on disk (n2)"),
        "{majority:?}"
    );
}

#[test]
fn a_new_voter_counts_as_soon_as_it_is_in_the_leaders_log() {
    let grown = |flushed: &[&str]| {
        let nodes = ["n1", "n2", "n3"];
        let mut script = Script::start(&nodes, &["n1", "n2"]);
        script.lead("n1");
        for node in nodes {
            script.append(node, 0);
        }
        script.flush("n1", 1).flush("n2", 1).commit("n1", 1);
        for node in nodes {
            script.append_voters(node, 1, &nodes);
        }
        for node in flushed {
            script.flush(node, 2);
        }
        script.commit("n1", 2);
        script.judge()
    };
    let with_new = grown(&["n1", "n3"]);
    assert_eq!(with_new.valid, Validity::Valid, "{}", with_new.summary);
    let majority = &grown(&["n1"]).properties["I6"];
    assert_eq!(majority.valid, Validity::Invalid, "{majority:?}");
}

#[test]
fn a_change_that_is_cut_off_is_not_in_force_any_more() {
    let mut script = Script::removal_of_the_leader();
    // Written over by a record that is no change: the three vote as before.
    script.append("n1", 1).append("n2", 1);
    script.flush("n1", 2).flush("n2", 2).commit("n1", 2);
    let result = script.judge();
    let majority = &result.properties["I6"];
    assert_eq!(majority.valid, Validity::Valid, "{majority:?}");
}

#[test]
fn a_wiped_node_is_another_replica() {
    let wipe = |directory: &str| {
        let mut script = Script::start(&["n1", "n2", "n3"], &["n1", "n2", "n3"]);
        script.lead("n1");
        let mut event = script.trace[0].clone();
        event.incarnation = 2;
        event.time = 1_000;
        if let TraceDetail::Started(started) = &mut event.detail {
            started.directory_id = Some(directory.into());
        }
        script.trace.push(event);
        judge(&script.trace).properties["I5"].valid
    };
    assert_eq!(wipe("another"), Validity::Valid);
    assert_eq!(wipe("of-n1"), Validity::Invalid);
}

/// Whoever it does not tell goes on to follow it.
#[test]
fn a_removed_leader_leads_until_its_removal_is_committed_and_no_longer() {
    let resigns = |reason: &str| TraceDetail::RoleChange {
        role: Role::Resigned,
        leader: None,
        epoch_start_offset: None,
        reason: Some(reason.into()),
    };
    let committed = || {
        let mut script = Script::removal_of_the_leader();
        script.append("n1", 2);
        script.flush("n2", 2).flush("n3", 2).commit("n1", 2);
        script
    };
    let k1 = |script: &mut Script| script.judge().properties["K1"].clone();

    let mut in_time = committed();
    in_time.say("n1", resigns("removed from the voters"));
    let found = k1(&mut in_time);
    assert_eq!(found.valid, Validity::Valid, "{found:?}");

    let mut stays = committed();
    stays.append("n1", 3);
    let found = k1(&mut stays);
    assert_eq!(found.valid, Validity::Invalid, "{found:?}");
    assert!(found.summary.contains("n1 went on to lead"), "{found:?}");

    let mut early = Script::removal_of_the_leader();
    early.say("n1", resigns("removed"));
    let found = k1(&mut early);
    assert_eq!(found.valid, Validity::Invalid, "{found:?}");
    assert!(found.summary.contains("n1 resigned"), "{found:?}");

    // A leader that loses its majority, or is stopped, cannot wait for anything.
    let mut cut_off = Script::removal_of_the_leader();
    cut_off.say("n1", resigns("check quorum"));
    let found = k1(&mut cut_off);
    assert_eq!(found.valid, Validity::Valid, "{found:?}");
}
