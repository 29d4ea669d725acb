//! Owns what a run does with the faults of its schedule: starting them, resolving whom they hit, taking them back.
//! Never applies one; the world does.

use checkers::replayed::WAITED_MS;
use nemesis::action::Action;
use nemesis::fault::Fault;
use nemesis::resolve::{Resolution, resolve};
use nemesis::timeline::Due;
use nemesis::view::ClusterView;
use results::schedule::{FaultOutcome, ResolvedFault, ScheduledFault};
use serde_json::json;

use super::waiting::{awaits_nodes_ms, looks_again_ms, needs_sight};
use super::{HEAL_LIMIT_NS, NS_PER_MS, Runner, START_UP_MS, Stop, healing};
use crate::world::{FaultReport, HealReport, Sight, World};

impl<W: World> Runner<'_, W> {
    /// When the schedule next wants something done.
    pub(super) fn next_fault_ns(&self) -> u64 {
        let next = self.timeline.next_due_ms();
        next.map_or(u64::MAX, |due_ms| due_ms.saturating_mul(NS_PER_MS))
    }

    pub(super) fn conduct_faults(&mut self, now_ns: u64) -> results::Result<()> {
        for due in self.timeline.due(now_ns / NS_PER_MS) {
            match due {
                Due::Watch(id) => self.watch(id),
                Due::Start(id) => self.start_fault(id)?,
                Due::Heal(id) => self.heal_fault(id)?,
            }
        }
        Ok(())
    }

    pub(super) fn start_fault(&mut self, id: u64) -> results::Result<()> {
        let Some(fault) = self.fault(id).cloned() else {
            return Ok(());
        };
        let now_ns = self.world.now_ns();
        let f = format!("start-{}", fault.fault.kind);
        // Said once, even if it has to wait for others.
        if self.told.insert(id) {
            self.recorder
                .nemesis(now_ns, &f, json!({ "id": id, "fault": fault.fault }))?;
        }
        self.starting.insert(id);
        if needs_sight(&fault) {
            self.world.look(id);
            return Ok(());
        }
        self.begin_fault(id, Sight::default())
    }

    /// Decides whom a fault hits, now that all there is to know of the nodes is known, and begins it.
    pub(super) fn begin_fault(&mut self, id: u64, sight: Sight) -> results::Result<()> {
        let Some(fault) = self.fault(id).cloned() else {
            return Ok(());
        };
        if self.heal_when_started.contains(&id) {
            return self.skip_fault(
                id,
                "its time was over before the nodes were looked at".into(),
            );
        }
        let now_ns = self.world.now_ns();
        let resolution = match self.resolve(&fault, sight) {
            Ok(resolution) => resolution,
            Err(reason) => {
                let end_ms = START_UP_MS + self.time_ns / NS_PER_MS;
                return match looks_again_ms(&fault, now_ns / NS_PER_MS, end_ms) {
                    None => self.skip_fault(id, reason),
                    Some(at_ms) => {
                        self.starting.remove(&id);
                        self.timeline.postpone(id, at_ms);
                        Ok(())
                    }
                };
            }
        };
        let view = || self.world.view(None);
        if let Some(at_ms) = awaits_nodes_ms(&fault, &resolution.action, view, now_ns / NS_PER_MS) {
            self.starting.remove(&id);
            self.awaiting.insert(id);
            self.timeline.postpone(id, at_ms);
            return Ok(());
        }
        let mut resolved = ResolvedFault {
            event: self.causes.get(&id).map(|cause| cause.event.clone()),
            ..resolution.to_resolved(now_ns / NS_PER_MS)
        };
        if self.awaiting.remove(&id) {
            let waited_ms = resolved.at_ms.saturating_sub(fault.trigger.at_ms);
            resolved.targets.insert(WAITED_MS.into(), json!(waited_ms));
        }
        self.recorder
            .update_fault(id, |fault| fault.resolved = Some(resolved));
        if resolution.action == Action::Burst {
            let report = self.bursts.begin(id, now_ns, &mut self.clients);
            return self.fault_started(id, report);
        }
        self.world.start_fault(id, resolution.action);
        Ok(())
    }

    fn skip_fault(&mut self, id: u64, reason: String) -> results::Result<()> {
        self.starting.remove(&id);
        self.heal_when_started.remove(&id);
        self.timeline.forget(id);
        self.let_go_for(id);
        self.recorder.update_fault(id, |fault| {
            fault.outcome = Some(FaultOutcome::Skipped);
            fault.reason = Some(reason);
        });
        Ok(())
    }

    /// A recorded target is used as it stands; a symbolic one is resolved now, and so is that of a fault that
    /// an event starts, since the event may come to another node than it did.
    fn resolve(&self, fault: &ScheduledFault, sight: Sight) -> Result<Resolution, String> {
        let cause = self.causes.get(&fault.id);
        if let Some(resolved) = &fault.resolved
            && cause.is_none()
        {
            return Action::from_resolved(&fault.fault.kind, resolved)
                .map(|action| Resolution {
                    action,
                    leader_unknown: false,
                })
                .map_err(|error| error.to_string());
        }
        let parsed = Fault::from_description(&fault.fault).map_err(|error| error.to_string())?;
        let leads = cause.filter(|cause| cause.leads);
        // Clients hear of a new leader later than those who watch it.
        let leader = match leads {
            Some(cause) => Some(cause.event.node.as_str()),
            None => self.clients.leader(),
        };
        let view = ClusterView {
            event_node: cause.map(|cause| cause.event.node.clone()),
            roles: sight.roles,
            log_ends: sight.log_ends,
            ..self.world.view(leader)
        };
        resolve(self.seed, fault.id, &parsed, &view)
    }

    pub(super) fn heal_fault(&mut self, id: u64) -> results::Result<()> {
        if self.starting.contains(&id) {
            self.heal_when_started.insert(id);
            return Ok(());
        }
        if !self.active.remove(&id) {
            return Ok(());
        }
        let now_ns = self.world.now_ns();
        if let Some(fault) = self.fault(id) {
            let f = format!("stop-{}", fault.fault.kind);
            self.recorder.nemesis(now_ns, &f, json!({ "id": id }))?;
        }
        self.healing.insert(id);
        if let Some(report) = self.bursts.end(id, now_ns, &mut self.clients) {
            return self.fault_healed(id, report);
        }
        self.world.heal_fault(id);
        Ok(())
    }

    pub(super) fn fault_started(&mut self, id: u64, report: FaultReport) -> results::Result<()> {
        self.starting.remove(&id);
        let now_ns = self.world.now_ns();
        if report.outcome == FaultOutcome::Skipped {
            self.timeline.forget(id);
        } else {
            self.active.insert(id);
            self.timeline.started(id, now_ns / NS_PER_MS);
        }
        let kind = self
            .fault(id)
            .map_or_else(String::new, |fault| fault.fault.kind.clone());
        self.recorder.update_fault(id, |fault| {
            fault.outcome = Some(report.outcome);
            fault.reason = report.reason.clone();
            fault.effect = report.effect.clone();
        });
        let resolved = self.fault(id).and_then(|fault| fault.resolved.clone());
        let value = json!({
            "id": id, "outcome": report.outcome, "reason": report.reason, "resolved": resolved,
            "effect": report.effect
        });
        self.recorder
            .nemesis(now_ns, &format!("start-{kind}"), value)?;
        if self.heal_when_started.remove(&id) {
            self.heal_fault(id)?;
        }
        self.let_go_for(id);
        Ok(())
    }

    pub(super) fn fault_healed(&mut self, id: u64, report: HealReport) -> results::Result<()> {
        self.healing.remove(&id);
        let now_ns = self.world.now_ns();
        let kind = self
            .fault(id)
            .map_or_else(String::new, |fault| fault.fault.kind.clone());
        let value = json!({ "id": id, "problem": report.problem, "effect": report.effect });
        self.recorder
            .nemesis(now_ns, &format!("stop-{kind}"), value)?;
        self.recorder.update_fault(id, |fault| {
            healing::note(fault, report, now_ns / NS_PER_MS);
        });
        Ok(())
    }

    /// Takes back every fault of the schedule.
    pub(super) fn heal_scheduled(&mut self) -> Result<(), Stop> {
        let limit_ns = self.world.now_ns() + HEAL_LIMIT_NS;
        let known: Vec<u64> = self.active.union(&self.starting).copied().collect();
        for id in known {
            self.heal_fault(id)?;
        }
        while !(self.starting.is_empty() && self.active.is_empty() && self.healing.is_empty())
            && self.world.now_ns() < limit_ns
        {
            self.wait(limit_ns)?;
        }
        Ok(())
    }

    pub(super) fn fault(&self, id: u64) -> Option<&ScheduledFault> {
        self.recorder
            .schedule()
            .faults
            .iter()
            .find(|fault| fault.id == id)
    }
}
