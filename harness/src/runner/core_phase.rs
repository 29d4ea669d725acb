//! Owns the liveness phase of a run: a random majority is healed, the rest stays broken, clients ask.
//! Never judges what it sees; the lines that it leaves in the history are for the checkers.

use std::collections::{BTreeMap, BTreeSet};

use checkers::liveness::{
    CORE_CHOSEN, CORE_GIVEN_UP, CORE_HEALED, CORE_KEY, CORE_LEFT, CORE_SETTLED, CORE_SKIPPED,
};
use nemesis::action::Action;
use nemesis::fault::{Files, Style};
use results::history::OperationType;
use results::keyed_random::Stream;
use results::manifest::NodeTimers;
use results::schedule::{FaultOutcome, ScheduledFault};
use serde_json::{Value, json};

use super::{HEAL_LIMIT_NS, NS_PER_MS, READ_RETRY_NS, Runner, Stop};
use crate::world::{FaultReport, HealReport, World};

/// Smallest cluster of which a majority is not everybody.
const NODES_MIN: usize = 3;
/// Of 100 cores, how many are no larger than a majority must be: the hardest case.
const SMALLEST_PERCENT: u64 = 67;
/// Of 100 phases, in how many the rest is dead; otherwise it runs on, cut off from everybody.
const DEAD_PERCENT: u64 = 50;
/// Writes that must succeed in one epoch before the core counts as settled.
const WRITE_COUNT: u64 = 6;
/// Election rounds that the core may need. Few elections take more than two; as timers are random, some
/// do, and none of many thousand runs may be called wrong for bad luck.
const ELECTION_ROUNDS: u64 = 8;
/// The faults that change who votes, and that are healed by changing it again.
const VOTER_KINDS: [&str; 2] = ["membership", "wipe"];

/// The faults of the phase itself. No schedule has so many faults.
const CUT_ID: u64 = u64::MAX - 1;
const KILL_ID: u64 = u64::MAX - 2;

/// Reports about the phase's own faults.
#[derive(Debug, Default)]
pub(super) struct OwnFaults {
    started: BTreeMap<u64, FaultReport>,
    healed: BTreeSet<u64>,
}

impl OwnFaults {
    pub(super) fn owns(id: u64) -> bool {
        [CUT_ID, KILL_ID].contains(&id)
    }

    pub(super) fn started(&mut self, id: u64, report: FaultReport) {
        self.started.insert(id, report);
    }

    pub(super) fn healed(&mut self, id: u64, _report: &HealReport) {
        self.healed.insert(id);
    }
}

/// Who recovers, and what becomes of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    core: Vec<String>,
    rest: Vec<String>,
    is_rest_dead: bool,
}

/// Successes in a row in one epoch.
#[derive(Debug, Clone, Copy)]
struct Streak {
    epoch: Option<i32>,
    since_ns: u64,
    write_count: u64,
}

/// What the core was asked so far.
#[derive(Debug, Default)]
struct Asked {
    tried_count: u64,
    success_count: u64,
    longest_wait_ns: u64,
    streak: Option<Streak>,
}

impl Choice {
    /// Drawn from the seed, apart from everything else that is drawn from it. Who has lost data, and so does not
    /// start any more, is part of the rest. `None` where no majority is left that is not everybody.
    fn draw(seed: u64, nodes: &[String], lost: &BTreeMap<String, BTreeSet<Files>>) -> Option<Self> {
        if nodes.len() < NODES_MIN {
            return None;
        }
        let draws = Stream::new(seed, "liveness-phase");
        let majority = nodes.len() / 2 + 1;
        let size = if draws.chance(0, 0, SMALLEST_PERCENT) {
            majority
        } else {
            draws.between(0, 1, majority as u64, nodes.len() as u64 - 1) as usize
        };
        let mut order = nodes.to_vec();
        draws.shuffle(1, 0, &mut order);
        // In the order drawn, but those who are whole first.
        order.sort_by_key(|node| lost.contains_key(node));
        let whole_count = order
            .iter()
            .filter(|node| !lost.contains_key(*node))
            .count();
        if whole_count < majority {
            return None;
        }
        let mut rest = order.split_off(size.min(whole_count));
        order.sort();
        rest.sort();
        Some(Self {
            core: order,
            rest,
            is_rest_dead: draws.chance(0, 2, DEAD_PERCENT),
        })
    }

    /// Every link from or to a node of the rest, of links between all `nodes`.
    fn links(&self, nodes: &[String]) -> Vec<(String, String)> {
        let mut links = Vec::new();
        for lonely in &self.rest {
            for other in nodes {
                if other != lonely {
                    links.push((lonely.clone(), other.clone()));
                }
                if !self.rest.contains(other) {
                    links.push((other.clone(), lonely.clone()));
                }
            }
        }
        links
    }
}

/// How long the core may take to begin to serve, in milliseconds: 1.5 fetch timeouts until a leader that is
/// gone is missed or resigns, and some elections.
fn bound_ms(timers: &NodeTimers) -> u64 {
    let round_ms = 2 * timers.election_timeout_ms + timers.election_backoff_max_ms;
    timers.fetch_timeout_ms * 3 / 2 + ELECTION_ROUNDS * round_ms
}

/// How long the core must then serve in one epoch, in milliseconds: enough for a follower whose request was
/// lost to notice, and to catch up.
fn window_ms(timers: &NodeTimers) -> u64 {
    timers.fetch_timeout_ms + timers.request_timeout_ms + timers.fetch_max_wait_ms
}

/// How much longer a timer may take because the clock that it was set on was ahead, and is right again: by
/// as much as it was ahead, less what has passed since.
fn clock_slack_ms(faults: &[ScheduledFault], now_ms: u64) -> u64 {
    let slack = faults.iter().filter_map(|fault| {
        let skews = fault.effect.iter();
        let skews = skews.filter(|(name, _)| name.contains("_skew"));
        let ahead_ms = skews
            .filter_map(|(_, value)| value.as_f64())
            .fold(0.0, f64::max);
        let healed_ms = fault.healed_at_ms?;
        Some((ahead_ms.ceil() as u64).saturating_sub(now_ms.saturating_sub(healed_ms)))
    });
    slack.max().unwrap_or(0)
}

impl<W: World> Runner<'_, W> {
    /// Heals a random majority, keeps the rest broken, and lets clients ask the majority until it serves or
    /// its time is over. Afterwards only what the phase itself broke is healed again.
    pub(super) fn demand_recovery_of_a_majority(&mut self) -> Result<(), Stop> {
        if self.interrupted || self.clients.busy() || self.world.nodes().len() < NODES_MIN {
            return Ok(());
        }
        self.phase = "healing a majority";
        if !self.settle_voters()? {
            let reason = "the voters could not be put in order, so nobody knows what a majority is";
            return self.core_line(CORE_SKIPPED, json!({ "reason": reason }));
        }
        if self.interrupted {
            return Ok(());
        }
        // Who does not vote is no part of any majority.
        let view = self.world.view(self.clients.leader());
        let voters: Vec<String> = view.voters().cloned().collect();
        let lost = view.damaged;
        let Some(choice) = Choice::draw(self.seed, &voters, &lost) else {
            if voters.len() < NODES_MIN {
                return Ok(());
            }
            let reason = "so many voters have lost data that no majority is left";
            return self.core_line(CORE_SKIPPED, json!({ "reason": reason }));
        };
        let lost: Vec<String> = lost.into_keys().collect();
        self.world.recovery_begins();
        if self.break_rest(&choice, &lost)? {
            self.ask_core(&choice)?;
            self.core_line(CORE_LEFT, Value::Null)?;
        }
        for id in [KILL_ID, CUT_ID] {
            if self.own_faults.started.contains_key(&id) {
                self.heal_own(id)?;
            }
        }
        Ok(())
    }

    /// Heals everything first where faults have changed the voters. That needs a majority of them, so it cannot
    /// be left to a majority that is not known yet; and only then it is known whom to count. Returns whether
    /// they are in order.
    fn settle_voters(&mut self) -> Result<bool, Stop> {
        let changes = |fault: &ScheduledFault| {
            VOTER_KINDS.contains(&fault.fault.kind.as_str())
                && !matches!(fault.outcome, None | Some(FaultOutcome::Skipped))
        };
        let may_change = |id: &u64| {
            let fault = self.fault(*id);
            fault.is_some_and(|fault| VOTER_KINDS.contains(&fault.fault.kind.as_str()))
        };
        let mut schedule = self.recorder.schedule().faults.iter();
        if !schedule.any(changes) && !self.starting.iter().any(may_change) {
            return Ok(true);
        }
        self.heal_scheduled()?;
        self.restore()?;
        Ok(self.restored.is_some() && self.healing.is_empty())
    }

    fn core_line(&mut self, f: &str, value: Value) -> Result<(), Stop> {
        let now_ns = self.world.now_ns();
        Ok(self.recorder.nemesis(now_ns, f, value)?)
    }

    /// Cuts the rest off before anything else heals, so that the cluster is never whole in between. Returns
    /// whether the core is in order.
    fn break_rest(&mut self, choice: &Choice, lost: &[String]) -> Result<bool, Stop> {
        let cut = Action::Cut {
            links: choice.links(self.world.nodes()),
            style: Style::Hold,
        };
        let is_cut = self.start_own(CUT_ID, cut)?;
        let mut nodes = choice.rest.clone();
        nodes.retain(|node| !lost.contains(node));
        // Who does not start any more is dead in any case, and says nothing about those who are cut off.
        let is_rest_dead = choice.is_rest_dead || nodes.is_empty();
        let value = json!({
            "core": choice.core,
            "rest": if is_rest_dead { &choice.rest } else { &nodes },
            "rest_is": if is_rest_dead { "dead" } else { "cut-off" },
        });
        self.core_line(CORE_CHOSEN, value)?;
        self.heal_scheduled()?;
        let problems = self.restore()?;
        let is_killed = !choice.is_rest_dead
            || nodes.is_empty()
            || self.start_own(KILL_ID, Action::Kill { nodes })?;
        let broken = problems.iter().filter(|problem| {
            let names = choice.core.iter();
            names
                .into_iter()
                .any(|node| problem.contains(node.as_str()))
        });
        let broken: Vec<&String> = broken.collect();
        let reason = if !is_cut || !is_killed {
            "the rest could not be broken".to_owned()
        } else if let Some(problem) = broken.first() {
            format!("a node of the core is not in order: {problem}")
        } else if self.interrupted {
            "the run was stopped".to_owned()
        } else {
            return Ok(true);
        };
        self.core_line(CORE_SKIPPED, json!({ "reason": reason }))?;
        Ok(false)
    }

    fn start_own(&mut self, id: u64, action: Action) -> Result<bool, Stop> {
        self.world.start_fault(id, action);
        let limit_ns = self.world.now_ns() + HEAL_LIMIT_NS;
        while !self.own_faults.started.contains_key(&id) && self.world.now_ns() < limit_ns {
            self.wait(limit_ns)?;
        }
        let report = self.own_faults.started.get(&id);
        Ok(report.is_some_and(|report| report.outcome != FaultOutcome::Skipped))
    }

    fn heal_own(&mut self, id: u64) -> Result<(), Stop> {
        self.world.heal_fault(id);
        let limit_ns = self.world.now_ns() + HEAL_LIMIT_NS;
        while !self.own_faults.healed.contains(&id) && self.world.now_ns() < limit_ns {
            self.wait(limit_ns)?;
        }
        Ok(())
    }

    fn ask_core(&mut self, choice: &Choice) -> Result<(), Stop> {
        let now_ms = self.world.now_ns() / NS_PER_MS;
        let slack_ms = clock_slack_ms(&self.recorder.schedule().faults, now_ms);
        let bound_ms = bound_ms(&self.timers) + slack_ms;
        let window_ms = window_ms(&self.timers);
        let value = json!({
            "core": choice.core,
            "bound_ms": bound_ms,
            "window_ms": window_ms,
            "slack_ms": slack_ms,
        });
        self.core_line(CORE_HEALED, value)?;
        self.phase = "asking a majority";
        self.clients.turn_to(choice.core.clone());
        let begin_limit_ns = self.world.now_ns() + bound_ms * NS_PER_MS;
        let mut asked = Asked::default();
        let measured = self.measure();
        let settled = self.ask_until_settled(begin_limit_ns, window_ms * NS_PER_MS, &mut asked)?;
        self.drain()?;
        self.tell_strain(&measured)?;
        let nodes = self.world.nodes().to_vec();
        self.clients.turn_to(nodes);
        if self.interrupted {
            return Ok(());
        }
        let value = json!({
            "tried_count": asked.tried_count,
            "success_count": asked.success_count,
            "longest_wait_ms": asked.longest_wait_ns / NS_PER_MS,
            "since_ns": asked.streak.map(|streak| streak.since_ns),
            "epoch": asked.streak.and_then(|streak| streak.epoch),
            "leader": self.clients.leader(),
        });
        self.core_line(if settled { CORE_SETTLED } else { CORE_GIVEN_UP }, value)
    }

    /// Writes, with pauses, until as many as are wanted succeeded in one epoch, and then reads. A row of
    /// successes must begin before `begin_limit_ns`, and end soon after.
    fn ask_until_settled(
        &mut self,
        begin_limit_ns: u64,
        window_ns: u64,
        asked: &mut Asked,
    ) -> Result<bool, Stop> {
        let pause_ns = window_ns / WRITE_COUNT;
        let end_limit_ns = begin_limit_ns + 2 * window_ns;
        let mut not_before_ns = 0;
        loop {
            let now_ns = self.world.now_ns();
            let is_late = match asked.streak {
                Some(streak) if streak.since_ns <= begin_limit_ns => now_ns >= end_limit_ns,
                _ => now_ns >= begin_limit_ns,
            };
            if self.interrupted || is_late {
                return Ok(false);
            }
            let written = asked.streak.map_or(0, |streak| streak.write_count);
            if !self.clients.busy() && now_ns >= not_before_ns {
                asked.tried_count += 1;
                let (world, recorder) = (&mut *self.world, &mut *self.recorder);
                if written >= WRITE_COUNT {
                    self.clients.begin_read(0, CORE_KEY, world, recorder)?;
                } else {
                    let number = asked.tried_count;
                    self.clients
                        .begin_probe(0, CORE_KEY, number, world, recorder)?;
                }
            }
            let next_ns = if self.clients.busy() {
                end_limit_ns
            } else {
                not_before_ns
            };
            let ended = self.wait(next_ns.min(end_limit_ns))?;
            let waited_ns = self.world.now_ns() - now_ns;
            asked.longest_wait_ns = asked.longest_wait_ns.max(waited_ns);
            let Some(ended) = ended else {
                continue;
            };
            let now_ns = self.world.now_ns();
            if ended.operation_type != OperationType::Ok {
                not_before_ns = now_ns + READ_RETRY_NS;
                continue;
            }
            not_before_ns = now_ns + pause_ns;
            asked.success_count += 1;
            match &mut asked.streak {
                Some(streak) if streak.epoch == ended.epoch => {
                    if streak.write_count >= WRITE_COUNT {
                        return Ok(true);
                    }
                    streak.write_count += 1;
                }
                streak => {
                    *streak = Some(Streak {
                        epoch: ended.epoch,
                        since_ns: now_ns,
                        write_count: 1,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|id| format!("n{id}")).collect()
    }

    #[test]
    fn a_core_is_a_majority_but_never_everybody_and_every_node_is_left_out_at_times() {
        let whole = BTreeMap::new();
        for count in 3..=9 {
            let mut left_out = BTreeSet::new();
            let mut dead_count = 0;
            for seed in 0..200 {
                let choice = Choice::draw(seed, &names(count), &whole).expect("enough nodes");
                assert!(choice.core.len() > count / 2 && choice.core.len() < count);
                let mut all = choice.core.clone();
                all.extend(choice.rest.clone());
                all.sort();
                assert_eq!(all, names(count));
                assert_eq!(
                    choice,
                    Choice::draw(seed, &names(count), &whole).expect("as before")
                );
                dead_count += u32::from(choice.is_rest_dead);
                left_out.extend(choice.rest);
            }
            assert_eq!(left_out.len(), count);
            assert!((50..150).contains(&dead_count), "{dead_count}");
        }
        assert_eq!(Choice::draw(1, &names(2), &BTreeMap::new()), None);
    }

    #[test]
    fn who_lost_data_is_left_out_of_the_core_and_without_a_majority_there_is_none() {
        let lost = |nodes: &[&str]| -> BTreeMap<String, BTreeSet<Files>> {
            let nodes = nodes.iter();
            nodes
                .map(|node| (node.to_string(), BTreeSet::from([Files::All])))
                .collect()
        };
        for seed in 0..100 {
            let two = Choice::draw(seed, &names(5), &lost(&["n2", "n4", "n9"]));
            assert_eq!(two.expect("three are a majority").core, ["n1", "n3", "n5"]);
            let one = Choice::draw(seed, &names(5), &lost(&["n2"])).expect("four are left");
            assert!(one.core.len() >= 3 && one.rest.contains(&"n2".to_owned()));
            assert_eq!(Choice::draw(seed, &names(4), &lost(&["n2", "n4"])), None);
        }
    }

    #[test]
    fn a_clock_that_was_ahead_leaves_time_for_timers_that_were_set_on_it() {
        let fault = |skew_ms: f64, healed_at_ms: Option<u64>| -> ScheduledFault {
            serde_json::from_value(json!({
                "trigger": {"at_ms": 0}, "duration_ms": 1, "fault": {"kind": "clock-skew"},
                "effect": {"n1_skew_ms": 3.0, "n1_skew_at_end_ms": skew_ms},
                "healed_at_ms": healed_at_ms,
            }))
            .expect("a fault")
        };
        assert_eq!(clock_slack_ms(&[], 9_000), 0);
        let faults = [fault(2_000.5, Some(8_000)), fault(900.0, Some(9_000))];
        assert_eq!(clock_slack_ms(&faults, 9_000), 1_001);
        assert_eq!(clock_slack_ms(&faults, 12_000), 0);
        assert_eq!(clock_slack_ms(&[fault(-500.0, Some(9_000))], 9_000), 3);
    }

    #[test]
    fn the_rest_is_cut_off_from_everybody_and_the_core_from_nobody_else() {
        let choice = Choice {
            core: names(3),
            rest: vec!["n4".into(), "n5".into()],
            is_rest_dead: false,
        };
        let listed = choice.links(&names(6));
        let links: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(links.len(), 2 * 4 * 2 + 2, "the observer n6 as well");
        assert_eq!(listed.len(), links.len(), "none is named twice");
        for (from, to) in links {
            assert!(choice.rest.contains(&from) || choice.rest.contains(&to));
        }
    }
}
