//! Owns the bookkeeping of a run's schedule: what is due, what is active, what remains.
//! Never reads a clock and never injects anything; time is an argument.

use results::schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet};

/// Something to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Let the fault with this id wait for its event, which is counted from now on.
    Watch(u64),
    /// Start the fault with this id.
    Start(u64),
    /// Heal the fault with this id.
    Heal(u64),
}

/// Where a run stands in its schedule. All times are milliseconds since the run started.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// `(at_ms, id)` of the faults that have not started; of those that wait for an event, when they
    /// begin to.
    starts: BTreeSet<(u64, u64)>,
    /// The faults that an event starts.
    by_event: BTreeSet<u64>,
    /// Those of them that wait for it now.
    waiting: BTreeSet<u64>,
    /// `(at_ms, id)` of the healings of the active faults.
    heals: BTreeSet<(u64, u64)>,
    duration_ms: BTreeMap<u64, u64>,
}

impl Timeline {
    /// The beginning of a schedule. Faults that wait for an event start by [`Self::fire`] alone.
    ///
    /// # Panics
    /// When two faults share an id; [`crate::schedule::prepare`] refuses such a schedule.
    pub fn new(schedule: &Schedule) -> Self {
        let mut timeline = Self {
            starts: BTreeSet::new(),
            by_event: BTreeSet::new(),
            waiting: BTreeSet::new(),
            heals: BTreeSet::new(),
            duration_ms: BTreeMap::new(),
        };
        for fault in &schedule.faults {
            timeline.starts.insert((fault.trigger.at_ms, fault.id));
            if fault.trigger.on.is_some() {
                timeline.by_event.insert(fault.id);
            }
            let earlier = timeline.duration_ms.insert(fault.id, fault.duration_ms);
            assert!(earlier.is_none(), "fault id {} is not unique", fault.id);
        }
        timeline
    }

    /// When [`Self::due`] next has something to say; nothing after the last healing.
    pub fn next_due_ms(&self) -> Option<u64> {
        let next = |times: &BTreeSet<(u64, u64)>| times.first().map(|(at_ms, _)| *at_ms);
        next(&self.starts)
            .into_iter()
            .chain(next(&self.heals))
            .min()
    }

    /// Everything that has become due, in the order to do it: by time, healings before starts at the
    /// same time, then by id. A fault that starts late lasts as long as one that starts on time.
    pub fn due(&mut self, now_ms: u64) -> Vec<Due> {
        let mut due = Vec::new();
        loop {
            let heal = self
                .heals
                .first()
                .copied()
                .filter(|(at_ms, _)| *at_ms <= now_ms);
            let start = self
                .starts
                .first()
                .copied()
                .filter(|(at_ms, _)| *at_ms <= now_ms);
            match (heal, start) {
                (Some(heal), start) if start.is_none_or(|start| heal.0 <= start.0) => {
                    self.heals.remove(&heal);
                    due.push(Due::Heal(heal.1));
                }
                (_, Some(start)) if self.by_event.contains(&start.1) => {
                    self.starts.remove(&start);
                    self.waiting.insert(start.1);
                    due.push(Due::Watch(start.1));
                }
                (_, Some(start)) => {
                    self.starts.remove(&start);
                    self.heal_after(start.1, now_ms);
                    due.push(Due::Start(start.1));
                }
                _ => return due,
            }
        }
    }

    /// The event of a fault has come: whether the fault waited for it, and starts now.
    pub fn fire(&mut self, id: u64, now_ms: u64) -> bool {
        let waited = self.waiting.remove(&id);
        if waited {
            self.heal_after(id, now_ms);
        }
        waited
    }

    /// Lets no fault wait for its event any more. Those that did, ascending.
    pub fn stop_waiting(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_iter().collect()
    }

    /// Corrects when a fault really started, so that its duration counts from there; for faults that
    /// take time to install. Ignored for a fault that is not active.
    pub fn started(&mut self, id: u64, at_ms: u64) {
        if self.forget(id) {
            self.heal_after(id, at_ms);
        }
    }

    /// Lets a fault that could not start yet start at `at_ms` instead; it lasts as long as it would have.
    pub fn postpone(&mut self, id: u64, at_ms: u64) {
        self.forget(id);
        self.starts.insert((at_ms, id));
    }

    /// Takes an active fault out without healing it, for one that was skipped. Whether it was active.
    pub fn forget(&mut self, id: u64) -> bool {
        let healing = self.heals.iter().copied().find(|(_, active)| *active == id);
        healing.is_some_and(|healing| self.heals.remove(&healing))
    }

    /// Ids of the active faults, ascending.
    pub fn active(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.heals.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Ends the schedule: the active faults to heal now, ascending by id. Nothing is due afterwards.
    pub fn heal_all(&mut self) -> Vec<u64> {
        let ids = self.active();
        self.heals.clear();
        self.starts.clear();
        self.waiting.clear();
        ids
    }

    fn heal_after(&mut self, id: u64, at_ms: u64) {
        let duration_ms = self.duration_ms.get(&id).copied().unwrap_or_default();
        self.heals.insert((at_ms.saturating_add(duration_ms), id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Due::{Heal, Start, Watch};

    fn timeline(faults: &[(u64, u64, u64)]) -> Timeline {
        let faults: Vec<serde_json::Value> = faults
            .iter()
            .map(|(id, at_ms, duration_ms)| {
                serde_json::json!({"id": id, "trigger": {"at_ms": at_ms},
                    "duration_ms": duration_ms, "fault": {"kind": "kill"}})
            })
            .collect();
        let schedule = serde_json::json!({"format_version": 1, "seed": 1, "faults": faults});
        Timeline::new(&serde_json::from_value(schedule).unwrap())
    }

    #[test]
    fn a_fault_that_is_postponed_starts_later_and_lasts_as_long() {
        let schedule: Schedule = serde_json::from_str(
            r#"{"format_version":1,"faults":[{"id":7,"trigger":{"at_ms":100},"duration_ms":50,
                "fault":{"kind":"kill","targets":"one"}}]}"#,
        )
        .unwrap();
        let mut timeline = Timeline::new(&schedule);
        assert_eq!(timeline.due(100), [Due::Start(7)]);
        timeline.postpone(7, 300);
        assert_eq!(timeline.due(299), []);
        assert_eq!(timeline.due(310), [Due::Start(7)]);
        assert_eq!(timeline.due(359), []);
        assert_eq!(timeline.due(360), [Due::Heal(7)]);
    }

    #[test]
    fn faults_start_and_heal_on_time() {
        let mut timeline = timeline(&[(1, 100, 50), (2, 120, 100)]);
        assert_eq!(timeline.next_due_ms(), Some(100));
        assert_eq!(timeline.due(99), []);
        assert_eq!(timeline.due(100), [Start(1)]);
        assert_eq!(timeline.due(100), []);
        assert_eq!(timeline.next_due_ms(), Some(120));
        assert_eq!(timeline.due(120), [Start(2)]);
        assert_eq!(timeline.active(), [1, 2]);
        assert_eq!(timeline.due(150), [Heal(1)]);
        assert_eq!(timeline.due(220), [Heal(2)]);
        assert_eq!(timeline.next_due_ms(), None);
        assert_eq!(timeline.due(u64::MAX), []);
    }

    #[test]
    fn at_equal_times_healing_comes_first_then_the_lower_id() {
        let mut timeline = timeline(&[(9, 0, 100), (8, 0, 100), (3, 100, 10), (2, 100, 10)]);
        assert_eq!(timeline.due(0), [Start(8), Start(9)]);
        assert_eq!(timeline.due(100), [Heal(8), Heal(9), Start(2), Start(3)]);
    }

    #[test]
    fn a_late_fault_keeps_its_duration() {
        let mut timeline = timeline(&[(1, 100, 50), (2, 130, 50)]);
        assert_eq!(timeline.due(1_000), [Start(1), Start(2)]);
        assert_eq!(timeline.due(1_049), []);
        assert_eq!(timeline.due(1_050), [Heal(1), Heal(2)]);
    }

    #[test]
    fn a_fault_that_took_time_to_install_lasts_from_there() {
        let mut timeline = timeline(&[(1, 100, 50)]);
        assert_eq!(timeline.due(100), [Start(1)]);
        timeline.started(1, 130);
        timeline.started(7, 130);
        assert_eq!(timeline.due(179), []);
        assert_eq!(timeline.due(180), [Heal(1)]);
        timeline.started(1, 300);
        assert_eq!(timeline.next_due_ms(), None);
    }

    #[test]
    fn a_skipped_fault_is_not_healed() {
        let mut timeline = timeline(&[(1, 0, 50), (2, 0, 50)]);
        timeline.due(0);
        assert!(timeline.forget(1));
        assert!(!timeline.forget(1));
        assert_eq!(timeline.due(50), [Heal(2)]);
    }

    #[test]
    fn the_end_heals_what_is_active_and_starts_nothing_more() {
        let mut timeline = timeline(&[(5, 0, 900), (4, 10, 100), (6, 500, 10)]);
        timeline.due(10);
        assert_eq!(timeline.heal_all(), [4, 5]);
        assert_eq!(timeline.next_due_ms(), None);
        assert_eq!(timeline.due(u64::MAX), []);
        assert_eq!(timeline.heal_all(), Vec::<u64>::new());
    }

    #[test]
    fn a_fault_waits_for_its_event_and_lasts_from_there() {
        let schedule = serde_json::json!({"format_version": 1, "faults": [
            {"id": 1, "trigger": {"on": "became-leader", "at_ms": 5}, "duration_ms": 10,
             "fault": {"kind": "kill"}}]});
        let mut timeline = Timeline::new(&serde_json::from_value(schedule).unwrap());
        assert!(!timeline.fire(1, 4), "it does not wait yet");
        assert_eq!(timeline.next_due_ms(), Some(5));
        assert_eq!(timeline.due(5), [Watch(1)]);
        assert_eq!(timeline.next_due_ms(), None);
        assert!(timeline.active().is_empty());
        assert!(timeline.fire(1, 70));
        assert!(!timeline.fire(1, 71), "it starts once");
        assert_eq!(timeline.active(), [1]);
        assert_eq!(timeline.due(79), []);
        assert_eq!(timeline.due(80), [Heal(1)]);
    }

    #[test]
    fn no_event_starts_anything_after_the_end() {
        let schedule = serde_json::json!({"format_version": 1, "faults": [
            {"id": 1, "trigger": {"on": "flush"}, "duration_ms": 10, "fault": {"kind": "kill"}}]});
        let mut timeline = Timeline::new(&serde_json::from_value(schedule).unwrap());
        timeline.due(0);
        assert_eq!(timeline.stop_waiting(), [1]);
        assert_eq!(timeline.heal_all(), Vec::<u64>::new());
        assert!(!timeline.fire(1, 3));
    }

    #[test]
    #[should_panic(expected = "not unique")]
    fn two_faults_with_one_id_are_a_bug() {
        timeline(&[(1, 0, 1), (1, 5, 1)]);
    }
}
