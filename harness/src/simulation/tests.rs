//! Owns the checks of the simulated world through the same trait that a run uses.
//! Never waits for wall-clock time.

mod clocks;
mod disks;
mod machine;
mod mischief;
mod networks;
mod strangers;
mod voters;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nemesis::action::{Action, ClockSetting};
use nemesis::fault::{Shaping, Strobe, Style};
use results::manifest::RunOptions;
use results::schedule::FaultOutcome;
use results::trigger::Trigger;
use serde_json::json;

use super::world::{SimulatedWorld, Witness};
use crate::execution::TIMERS;
use crate::world::{Answer, Call, Event, FaultReport, HealReport, Request, World};

const SECOND: u64 = 1_000_000_000;

fn options(nodes: u32) -> RunOptions {
    RunOptions {
        workload: "register".into(),
        nemesis: Vec::new(),
        nemesis_is_a_pool: false,
        nodes,
        concurrency: 1,
        rate_per_second: 1,
        time_ms: 1,
        interval_ms: 1,
        healthy_ms: 0,
        operation_timeout_ms: 1,
        recovery_timeout_ms: 1,
        bug: None,
        timers: TIMERS,
        left_out_operations: Vec::new(),
        cluster: Default::default(),
        liveness_phase: false,
        required_coverage: Vec::new(),
    }
}

/// A world with what a test asks of it.
struct Bench {
    world: SimulatedWorld,
    next_call: u64,
}

impl Bench {
    /// Three nodes that had two seconds to elect a leader.
    fn new(seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let witness = Witness::Trace(Vec::new());
        let world = SimulatedWorld::new(seed, &options(3), None, true, witness, stop);
        let mut bench = Self {
            world,
            next_call: 0,
        };
        bench.pass(2 * SECOND);
        bench
    }

    fn pass(&mut self, duration_ns: u64) -> Vec<Event> {
        let end_ns = self.world.now_ns() + duration_ns;
        let mut events = Vec::new();
        loop {
            match self.world.next_event(end_ns) {
                Event::Deadline => return events,
                event => events.push(event),
            }
        }
    }

    fn ask(&mut self, node: &str, request: Request, patience_ns: u64) -> Answer {
        let id = self.next_call;
        self.next_call += 1;
        let deadline_ns = self.world.now_ns() + patience_ns;
        self.world.call(Call {
            id,
            node: node.into(),
            request,
            stamp: None,
            deadline_ns,
        });
        loop {
            match self.world.next_event(u64::MAX) {
                Event::Answer { call, answer } if call == id => return answer,
                Event::Deadline => panic!("every call has an answer"),
                _ => {}
            }
        }
    }

    fn write(&mut self, node: &str, value: u64) -> Answer {
        let (key, value) = ("k".into(), json!(value));
        self.ask(node, Request::Write { key, value }, SECOND / 2)
    }

    fn leader(&mut self) -> String {
        for _ in 0..50 {
            for node in ["n1", "n2", "n3"] {
                if matches!(self.write(node, 1), Answer::Done { .. }) {
                    return node.into();
                }
            }
            self.pass(SECOND / 10);
        }
        panic!("no node leads");
    }

    fn start(&mut self, id: u64, action: Action) -> FaultReport {
        self.world.start_fault(id, action);
        loop {
            match self.world.next_event(u64::MAX) {
                Event::FaultStarted {
                    id: started,
                    report,
                } if started == id => return report,
                Event::Deadline => panic!("every fault is reported"),
                _ => {}
            }
        }
    }

    fn heal(&mut self, id: u64) -> HealReport {
        self.world.heal_fault(id);
        loop {
            match self.world.next_event(u64::MAX) {
                Event::FaultHealed { id: healed, report } if healed == id => return report,
                Event::Deadline => panic!("every healing is reported"),
                _ => {}
            }
        }
    }
}

fn others(node: &str) -> Vec<String> {
    let all = ["n1", "n2", "n3"].into_iter();
    all.filter(|other| *other != node).map(Into::into).collect()
}

#[test]
fn a_cluster_elects_a_leader_and_reads_what_was_written() {
    let mut bench = Bench::new(1);
    let leader = bench.leader();
    assert!(matches!(bench.write(&leader, 7), Answer::Done { .. }));
    let read = bench.ask(&leader, Request::Read { key: "k".into() }, SECOND);
    assert!(
        matches!(&read, Answer::Done { value, .. } if *value == json!(7)),
        "{read:?}"
    );
    let follower = &others(&leader)[0];
    let refused = bench.write(follower, 8);
    assert!(
        matches!(&refused, Answer::Refused { leader: Some(named), .. } if *named == leader),
        "{refused:?}"
    );
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_of_all_nodes() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed);
        let leader = bench.leader();
        assert!(matches!(bench.write(&leader, 7), Answer::Done { .. }));
        let nodes: Vec<String> = ["n1", "n2", "n3"].map(Into::into).into();
        let report = bench.start(1, Action::Kill { nodes });
        assert_eq!(report.outcome, FaultOutcome::Installed);
        assert_eq!(report.effect["killed_count"], 3);
        let down = bench.write(&leader, 8);
        assert!(
            matches!(&down, Answer::Refused { code, .. } if code == "NODE_DOWN"),
            "{down:?}"
        );
        bench.pass(SECOND);
        let healed = bench.heal(1);
        assert_eq!(healed.problem, None);
        assert!(healed.effect["down_ms"].as_u64() >= Some(1_000));
        let mut read = bench.ask("n1", Request::Read { key: "k".into() }, SECOND);
        for node in ["n2", "n3", "n1"].repeat(20) {
            if matches!(read, Answer::Done { .. }) {
                break;
            }
            bench.pass(SECOND / 10);
            read = bench.ask(node, Request::Read { key: "k".into() }, SECOND);
        }
        assert!(
            matches!(&read, Answer::Done { value, .. } if *value == json!(7)),
            "seed {seed}: {read:?}"
        );
    }
}

#[test]
fn a_stopped_leader_answers_nobody_until_it_goes_on() {
    let mut bench = Bench::new(2);
    let leader = bench.leader();
    let nodes = vec![leader.clone()];
    let report = bench.start(
        1,
        Action::Pause {
            nodes: nodes.clone(),
        },
    );
    assert_eq!(report.effect["stopped_count"], 1);
    let again = bench.start(2, Action::Pause { nodes });
    assert_eq!(again.outcome, FaultOutcome::Skipped);
    let silent = bench.write(&leader, 9);
    assert!(
        matches!(&silent, Answer::Unknown { code, .. } if code == "timeout"),
        "{silent:?}"
    );
    let healed = bench.heal(1);
    assert_eq!(healed.effect["stopped_ms"].as_u64(), Some(500));
    bench.leader();
}

#[test]
fn a_cut_holds_messages_and_says_how_many() {
    let mut bench = Bench::new(3);
    let leader = bench.leader();
    let mut links = Vec::new();
    for other in others(&leader) {
        links.push((leader.clone(), other.clone()));
        links.push((other, leader.clone()));
    }
    let style = Style::Hold;
    let report = bench.start(1, Action::Cut { links, style });
    assert_eq!(report.outcome, FaultOutcome::Installed);
    let lonely = bench.write(&leader, 9);
    assert!(matches!(lonely, Answer::Unknown { .. }), "{lonely:?}");
    bench.pass(3 * SECOND);
    let elected = others(&leader)
        .iter()
        .any(|node| matches!(bench.write(node, 10), Answer::Done { .. }));
    assert!(elected, "the others go on without the one that is cut off");
    let healed = bench.heal(1);
    assert!(healed.effect["messages_held"].as_u64() > Some(3));
    assert!(healed.effect["bytes_held"].as_u64() > Some(500));
    assert_eq!(healed.effect["links_affected"], 4);
}

#[test]
fn restoring_revives_resumes_and_sets_clocks_right() {
    let mut bench = Bench::new(6);
    bench.start(
        1,
        Action::Kill {
            nodes: vec!["n1".into()],
        },
    );
    bench.start(
        2,
        Action::Pause {
            nodes: vec!["n2".into()],
        },
    );
    bench.world.restore();
    let problems = loop {
        match bench.world.next_event(u64::MAX) {
            Event::Restored { problems, .. } => break problems,
            Event::Deadline => panic!("restoring is reported"),
            _ => {}
        }
    };
    assert_eq!(problems, Vec::<String>::new());
    for node in ["n1", "n2", "n3"] {
        let answer = bench.write(node, 1);
        assert!(
            matches!(
                answer,
                Answer::Done { .. } | Answer::Refused { leader: _, .. }
            ),
            "{node}: {answer:?}"
        );
    }
}

#[test]
fn a_node_that_was_stopped_acts_on_its_timers_again() {
    let mut bench = Bench::new(8);
    let leader = bench.leader();
    let stopped = others(&leader).remove(0);
    let alone = others(&stopped)
        .into_iter()
        .flat_map(|other| [(stopped.clone(), other.clone()), (other, stopped.clone())]);
    bench.start(
        1,
        Action::Cut {
            links: alone.collect(),
            style: Style::Hold,
        },
    );
    bench.pass(SECOND / 10);
    let nodes = vec![stopped.clone()];
    bench.start(2, Action::Pause { nodes });
    bench.pass(3 * SECOND);
    bench.heal(2);
    let resumed_ns = bench.world.now_ns();
    bench.pass(3 * SECOND);
    let Witness::Trace(trace) = bench.world.into_remains().witness else {
        panic!("the trace was kept");
    };
    let since = trace
        .iter()
        .filter(|event| event.node == stopped && event.time > resumed_ns + SECOND);
    assert!(
        since.count() >= 2,
        "it asks for votes, and gives up, again and again"
    );
}

/// All links between a node and the others.
fn links_of(node: &str) -> Vec<(String, String)> {
    let both = |other: String| [(node.to_owned(), other.clone()), (other, node.to_owned())];
    others(node).into_iter().flat_map(both).collect()
}

fn count(effect: &serde_json::Map<String, serde_json::Value>, name: &str) -> u64 {
    effect.get(name).map_or(0, |count| count.as_u64().unwrap())
}

#[test]
fn a_reset_fails_exchanges_at_once_and_delivers_nothing_late() {
    let mut bench = Bench::new(7);
    let leader = bench.leader();
    let links = links_of(&leader);
    let style = Style::Reset;
    bench.start(1, Action::Cut { links, style });
    assert!(matches!(bench.write(&leader, 9), Answer::Unknown { .. }));
    bench.pass(3 * SECOND);
    let elected = others(&leader)
        .iter()
        .any(|node| matches!(bench.write(node, 10), Answer::Done { .. }));
    assert!(elected, "the others go on without the one that is cut off");
    let effect = bench.heal(1).effect;
    assert!(count(&effect, "connections_reset") > 20, "{effect:?}");
    assert_eq!(count(&effect, "messages_held"), 0);
    bench.leader();
}

#[test]
fn a_refusing_cut_holds_what_is_there_and_refuses_what_is_new() {
    let mut bench = Bench::new(8);
    let leader = bench.leader();
    let links = links_of(&leader);
    let style = Style::Refuse;
    bench.start(1, Action::Cut { links, style });
    bench.pass(3 * SECOND);
    let effect = bench.heal(1).effect;
    assert!(count(&effect, "connections_refused") > 10, "{effect:?}");
    let held = count(&effect, "messages_held");
    assert!((1..=20).contains(&held), "{effect:?}");
    bench.leader();
}

fn shaped(seed: u64, shaping: Shaping) -> serde_json::Map<String, serde_json::Value> {
    let mut bench = Bench::new(seed);
    let leader = bench.leader();
    let links = links_of(&leader);
    let report = bench.start(1, Action::ShapeLinks { links, shaping });
    assert_eq!(report.outcome, FaultOutcome::Installed);
    for value in 0..30 {
        bench.write(&leader, value);
    }
    let effect = bench.heal(1).effect;
    bench.leader();
    effect
}

#[test]
fn shaped_links_do_what_was_asked_and_nothing_else() {
    let none = Shaping::default();
    let delayed = shaped(
        9,
        Shaping {
            delay_ms: 40,
            jitter_ms: 10,
            ..none.clone()
        },
    );
    assert!(count(&delayed, "messages_delayed") > 60, "{delayed:?}");
    let mean_us = count(&delayed, "mean_delay_us");
    assert!((36_000..44_000).contains(&mean_us), "{delayed:?}");
    assert!(count(&delayed, "longest_delay_us") <= 50_000, "{delayed:?}");
    let flaky = shaped(
        10,
        Shaping {
            loss_percent: 10,
            duplicate_percent: 30,
            reorder_percent: 30,
            ..none.clone()
        },
    );
    // How many there are depends on every detail of what nodes send; that there are some does not.
    for name in ["messages_lost", "messages_doubled", "messages_reordered"] {
        assert!(count(&flaky, name) > 0, "{name}: {flaky:?}");
        assert_eq!(count(&delayed, name), 0, "{name}");
    }
    let narrow = shaped(
        11,
        Shaping {
            bandwidth_bytes_per_second: 4_000,
            ..none.clone()
        },
    );
    assert!(count(&narrow, "longest_delay_us") > 60_000, "{narrow:?}");
    let stalled = shaped(
        12,
        Shaping {
            stall_after_bytes: 2_000,
            ..none
        },
    );
    assert!(count(&stalled, "bytes_held") > 0, "{stalled:?}");
    assert_eq!(count(&stalled, "messages_delayed"), 0);
}

#[test]
fn who_waits_for_a_node_that_ends_learns_it_late_over_links_that_close_slowly() {
    // Fetches wait at the leader for news, so somebody waits whenever it is killed.
    let effect_of = |close_delay_ms| {
        let mut bench = Bench::new(18);
        let leader = bench.leader();
        let shaping = Shaping {
            close_delay_ms,
            delay_ms: 1,
            ..Shaping::default()
        };
        let links = links_of(&leader);
        bench.start(1, Action::ShapeLinks { links, shaping });
        bench.pass(SECOND);
        let nodes = vec![leader];
        bench.start(2, Action::Kill { nodes });
        bench.pass(SECOND);
        bench.heal(1).effect
    };
    let fast = effect_of(0);
    assert!(!fast.contains_key("connections_closed_slowly"), "{fast:?}");
    let slow = effect_of(400);
    assert!(count(&slow, "connections_closed_slowly") > 0, "{slow:?}");
    assert_eq!(count(&slow, "longest_close_delay_ms"), 400);
}

#[test]
fn a_look_tells_roles_and_log_ends_of_those_that_run() {
    let mut bench = Bench::new(15);
    let leader = bench.leader();
    let dead = others(&leader)[0].clone();
    let nodes = vec![dead.clone()];
    bench.start(1, Action::Kill { nodes });
    bench.write(&leader, 3);
    bench.world.look(7);
    let sight = loop {
        match bench.world.next_event(u64::MAX) {
            Event::Seen { id: 7, sight } => break sight,
            Event::Deadline => panic!("every look is reported"),
            _ => {}
        }
    };
    assert_eq!(sight.roles[&leader], results::trace::Role::Leader);
    assert!(!sight.roles.contains_key(&dead) && sight.roles.len() == 2);
    assert!(sight.log_ends[&leader] >= 2, "{sight:?}");
}

#[test]
fn restoring_sets_strobing_clocks_right_and_leaves_links_to_their_faults() {
    let mut bench = Bench::new(16);
    let leader = bench.leader();
    for (id, style) in [(1, Style::Hold), (2, Style::Reset), (3, Style::Refuse)] {
        let links = links_of(&leader);
        bench.start(id, Action::Cut { links, style });
    }
    let strobe = Strobe {
        delta_ms: 300,
        period_ms: 40,
    };
    let nodes = vec![leader];
    bench.start(4, Action::StrobeClocks { nodes, strobe });
    bench.world.restore();
    let events = bench.pass(2 * SECOND);
    let restored = events
        .iter()
        .any(|event| matches!(event, Event::Restored { .. }));
    assert!(restored);
    let is_right = |event: &Event| match event {
        Event::ClockOffsets { offsets_ms } => offsets_ms.values().all(|off_ms| *off_ms == 0.0),
        _ => true,
    };
    assert!(events.iter().all(is_right), "{events:?}");
    let effects: Vec<_> = (1..=3).map(|id| bench.heal(id).effect).collect();
    assert!(count(&effects[1], "connections_reset") > 0, "{effects:?}");
    let leader = bench.leader();
    assert!(matches!(bench.write(&leader, 5), Answer::Done { .. }));
}

/// Watches for an event on `node` while it is asked to write, and returns the hold.
fn hold_at(bench: &mut Bench, node: &str, event: &str, edge: &str) -> u64 {
    let trigger: Trigger =
        serde_json::from_value(json!({ "on": event, "edge": edge, "node": [node] })).unwrap();
    bench.world.watch(9, trigger.on.unwrap());
    let now_ns = bench.world.now_ns();
    bench.world.call(Call {
        id: 1_000,
        node: node.into(),
        request: Request::Write {
            key: "k".into(),
            value: json!(event),
        },
        stamp: None,
        deadline_ns: now_ns + SECOND,
    });
    loop {
        match bench.world.next_event(u64::MAX) {
            Event::Moment {
                hold, ids, event, ..
            } => {
                assert_eq!((ids, event.node.as_str()), (vec![9], node));
                assert_eq!(event.time_ns, bench.world.now_ns());
                return hold;
            }
            Event::Deadline => panic!("a write is appended and flushed"),
            _ => {}
        }
    }
}

#[test]
fn a_power_cut_at_a_moment_takes_back_exactly_what_comes_after_it() {
    for (event, edge, is_written) in [
        ("append", "before", false),
        ("append", "after", true),
        ("flush", "before", true),
    ] {
        let mut bench = Bench::new(1);
        let leader = bench.leader();
        bench.pass(SECOND);
        hold_at(&mut bench, &leader, event, edge);
        let nodes = vec![leader];
        let report = bench.start(1, Action::Kill { nodes });
        let lost_bytes = report.effect["unsynced_bytes"].as_u64().unwrap();
        assert_eq!(lost_bytes > 0, is_written, "{edge} {event}: {lost_bytes}");
    }
    let mut bench = Bench::new(1);
    let leader = bench.leader();
    bench.pass(SECOND);
    hold_at(&mut bench, &leader, "flush", "after");
    let nodes = vec![leader];
    let report = bench.start(1, Action::Kill { nodes });
    assert_eq!(report.effect["unsynced_bytes"], 0);
}

#[test]
fn a_node_that_is_held_does_nothing_until_it_is_let_go() {
    let mut bench = Bench::new(1);
    let leader = bench.leader();
    let hold = hold_at(&mut bench, &leader, "flush", "before");
    let events = bench.pass(SECOND / 2);
    let answered = |events: &[Event]| {
        let answered = |event: &Event| {
            matches!(
                event,
                Event::Answer {
                    call: 1_000,
                    answer: Answer::Done { .. }
                }
            )
        };
        events.iter().any(answered)
    };
    assert!(!answered(&events), "{events:?}");
    bench.world.go_on(hold + 1);
    assert!(!answered(&bench.pass(SECOND / 10)));
    bench.world.go_on(hold);
    assert!(answered(&bench.pass(SECOND / 10)));
}
