//! Owns the checks of runs on a machine that stands still, or is too busy to let nodes run, up to their verdicts.
//! Never waits for wall-clock time.

use std::collections::{BTreeMap, VecDeque};

use nemesis::view::ClusterView;
use results::schedule::Schedule;
use results::standstill::{Standstill, Strain};
use results::trigger::EventTrigger;
use results::verdict::{CheckerResult, Validity, Verdict};

use super::*;
use crate::simulation::SessionPlan;
use crate::simulation::session::conduct;
use crate::world::ProcessorTime;

const MS: u64 = 1_000_000;

/// What is wrong with the machine of a simulated cluster.
#[derive(Debug, Clone, Copy, Default)]
struct Troubles {
    /// When everything stands still, and for how long.
    standstill_ns: Option<(u64, u64)>,
    /// From when on nodes are not let run, so that nobody gets an answer.
    starved_from_ns: Option<u64>,
    /// How much of that time the kernel says that they waited.
    waited_percent: u64,
}

/// A simulated cluster on such a machine.
struct TroubledWorld {
    inner: SimulatedWorld,
    troubles: Troubles,
    /// What happened while everything stood still.
    missed: VecDeque<Event>,
    /// Calls that nobody answers, by when their clients give up.
    unanswered: VecDeque<(u64, u64)>,
}

impl TroubledWorld {
    fn starved_ns(&self) -> u64 {
        let from_ns = self.troubles.starved_from_ns.unwrap_or(u64::MAX);
        self.inner.now_ns().saturating_sub(from_ns)
    }
}

impl World for TroubledWorld {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn nodes(&self) -> &[String] {
        self.inner.nodes()
    }

    fn view(&self, leader: Option<&str>) -> ClusterView {
        self.inner.view(leader)
    }

    fn call(&mut self, call: Call) {
        if self.starved_ns() > 0 {
            self.unanswered.push_back((call.deadline_ns, call.id));
        } else {
            self.inner.call(call);
        }
    }

    fn start_fault(&mut self, id: u64, action: Action) {
        self.inner.start_fault(id, action);
    }

    fn heal_fault(&mut self, id: u64) {
        self.inner.heal_fault(id);
    }

    fn look(&mut self, id: u64) {
        self.inner.look(id);
    }

    fn watch(&mut self, id: u64, trigger: EventTrigger) {
        self.inner.watch(id, trigger);
    }

    fn watch_nothing(&mut self) {
        self.inner.watch_nothing();
    }

    fn go_on(&mut self, hold: u64) {
        self.inner.go_on(hold);
    }

    fn restore(&mut self) {
        self.inner.restore();
    }

    fn processor_times(&self) -> BTreeMap<String, ProcessorTime> {
        let time = ProcessorTime {
            ran_ns: self.inner.now_ns() / 100,
            waited_ns: self.starved_ns() * self.troubles.waited_percent / 100,
        };
        let names = self.inner.nodes().iter();
        names.map(|name| (name.clone(), time)).collect()
    }

    fn next_event(&mut self, deadline_ns: u64) -> Event {
        if let Some(event) = self.missed.pop_front() {
            return event;
        }
        if let Some((from_ns, for_ns)) = self.troubles.standstill_ns
            && self.inner.now_ns() >= from_ns
        {
            self.troubles.standstill_ns = None;
            // Virtual time goes on, and nobody looks.
            let until_ns = self.inner.now_ns() + for_ns;
            loop {
                match self.inner.next_event(until_ns) {
                    Event::Deadline => break,
                    event => self.missed.push_back(event),
                }
            }
            return self.missed.pop_front().unwrap_or(Event::Deadline);
        }
        let next = self.unanswered.front().copied();
        let (until_ns, call) = next.unwrap_or((u64::MAX, 0));
        let event = self.inner.next_event(deadline_ns.min(until_ns));
        if event == Event::Deadline && self.inner.now_ns() >= until_ns {
            self.unanswered.pop_front();
            let (code, message) = ("TIMEOUT".into(), "nobody answered".into());
            let answer = Answer::Unknown { code, message };
            return Event::Answer { call, answer };
        }
        event
    }
}

/// What came of a run of four seconds on such a machine, in which a follower is paused from 3.5 s on.
fn run_with(troubles: Troubles) -> (Verdict, Vec<Standstill>, Option<Strain>) {
    let pause = json!({"id": 1, "trigger": {"at_ms": 3_500}, "duration_ms": 300,
        "fault": {"kind": "pause", "targets": ["n3"]},
        "resolved": {"at_ms": 3_500, "nodes": ["n3"]}, "recorded": {"at_ms": 3_500, "nodes": ["n3"]}});
    let schedule = json!({"format_version": results::FORMAT_VERSION, "seed": 4, "faults": [pause]});
    let schedule: Schedule = serde_json::from_value(schedule).unwrap();
    let options = RunOptions {
        concurrency: 5,
        rate_per_second: 100,
        time_ms: 4_000,
        operation_timeout_ms: 300,
        recovery_timeout_ms: 3_000,
        ..options(3)
    };
    let plan = SessionPlan {
        seed: 4,
        options,
        schedule,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let witness = Witness::Trace(Vec::new());
    let mut world = TroubledWorld {
        inner: SimulatedWorld::new(4, &plan.options, None, false, witness, stop),
        troubles,
        missed: VecDeque::new(),
        unanswered: VecDeque::new(),
    };
    let mut recording = conduct(&plan, &mut world).unwrap();
    let remains = world.inner.into_remains();
    recording.manifest.simulation = Some(remains.identity);
    recording.disks = remains.images;
    if let Witness::Trace(trace) = remains.witness {
        recording.trace = trace;
    }
    let verdict = checkers::check(&recording, &checkers::Options::default());
    let standstills = Standstill::all(&recording.history);
    let strain = recording.history.iter().find_map(Strain::of);
    (verdict, standstills, strain)
}

fn checker<'a>(verdict: &'a Verdict, name: &str) -> &'a CheckerResult {
    &verdict.checkers[name]
}

#[test]
fn a_standstill_is_told_from_a_tenth_of_a_second_on_and_explains_what_came_late() {
    let stood = |for_ms: u64| {
        run_with(Troubles {
            standstill_ns: Some((3_450 * MS, for_ms * MS)),
            ..Troubles::default()
        })
    };
    let (verdict, standstills, _) = stood(700);
    let [standstill] = standstills[..] else {
        panic!("not one standstill: {standstills:?}");
    };
    // What was not due yet when it began is not late for all of it.
    assert!((600..=700).contains(&standstill.lasted_ms), "{standstill}");
    let nemesis = checker(&verdict, "nemesis");
    assert_eq!(nemesis.valid, Validity::Valid, "{}", nemesis.summary);
    assert!(
        nemesis.summary.contains("same faults: 1 of 1")
            && nemesis.summary.contains("stood still for"),
        "{}",
        nemesis.summary
    );
    let liveness = checker(&verdict, "liveness");
    assert_eq!(liveness.valid, Validity::Valid, "{}", liveness.summary);

    let (verdict, standstills, _) = stood(60);
    assert_eq!(standstills, []);
    let summary = &checker(&verdict, "nemesis").summary;
    assert!(!summary.contains("stood still"), "{summary}");
}

#[test]
fn who_waits_for_a_processor_most_of_the_time_is_excused_and_nobody_else() {
    // From the end of the workload on, so that nothing recovers.
    let starved = |waited_percent| {
        run_with(Troubles {
            starved_from_ns: Some(6_000 * MS),
            waited_percent,
            ..Troubles::default()
        })
    };
    let (verdict, _, strain) = starved(70);
    let strain = strain.expect("the machine was too busy");
    assert!(2 * strain.waited_ms >= strain.of_ms, "{strain}");
    let liveness = checker(&verdict, "liveness");
    assert_eq!(liveness.valid, Validity::Unknown, "{}", liveness.summary);
    assert!(
        liveness.summary.contains("too busy")
            && liveness.summary.contains("waited for a processor"),
        "{}",
        liveness.summary
    );
    assert_eq!(verdict.valid, Validity::Unknown, "{}", verdict.summary);

    let (verdict, _, strain) = starved(40);
    assert_eq!(strain, None);
    let liveness = checker(&verdict, "liveness");
    assert_eq!(liveness.valid, Validity::Invalid, "{}", liveness.summary);

    let (verdict, standstills, strain) = run_with(Troubles::default());
    assert_eq!((standstills, strain), (Vec::new(), None));
    assert_eq!(verdict.valid, Validity::Valid, "{}", verdict.summary);
}
