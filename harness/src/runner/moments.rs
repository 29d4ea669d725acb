//! Owns the faults of a run that events start: waiting for them, and letting held nodes go on.
//! Never looks for events; the world does.

use std::collections::BTreeSet;

use nemesis::fault::Fault;
use results::schedule::StartingEvent;

use super::{NS_PER_MS, Runner};
use crate::world::World;

/// Why a fault starts that does not start by time.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    /// The event.
    pub(super) event: StartingEvent,
    /// Whether its node leads.
    pub(super) leads: bool,
}

impl<W: World> Runner<'_, W> {
    /// Lets a fault wait for its event.
    pub(super) fn watch(&mut self, id: u64) {
        let trigger = self.fault(id).and_then(|fault| fault.trigger.on.clone());
        if let Some(trigger) = trigger {
            self.world.watch(id, trigger);
        }
    }

    /// Starts the faults that waited for an event. Its node goes on once they have started: at once, if
    /// none of them waits any more, or if they need answers of nodes.
    pub(super) fn moment_has_come(
        &mut self,
        hold: u64,
        ids: &[u64],
        cause: Cause,
    ) -> results::Result<()> {
        let now_ms = self.world.now_ns() / NS_PER_MS;
        let mut starting = BTreeSet::new();
        for id in ids {
            if self.timeline.fire(*id, now_ms) {
                self.causes.insert(*id, cause.clone());
                self.start_fault(*id)?;
                // One that is skipped is not starting any more.
                if self.starting.contains(id) && !self.needs_answer(*id) {
                    starting.insert(*id);
                }
            }
        }
        if starting.is_empty() {
            self.world.go_on(hold);
        } else {
            self.held.insert(hold, starting);
        }
        Ok(())
    }

    fn needs_answer(&self, id: u64) -> bool {
        let asked = self
            .fault(id)
            .map(|fault| Fault::from_description(&fault.fault));
        asked.is_some_and(|asked| asked.is_ok_and(|asked| asked.needs_answer()))
    }

    /// A fault has started, or will not: nodes that were held for it alone go on.
    pub(super) fn let_go_for(&mut self, id: u64) {
        let world = &mut self.world;
        self.held.retain(|hold, starting| {
            starting.remove(&id);
            if starting.is_empty() {
                world.go_on(*hold);
            }
            !starting.is_empty()
        });
    }

    /// From here on nothing of the schedule starts. What never did says why.
    pub(super) fn start_nothing_more(&mut self) {
        self.world.watch_nothing();
        let waited = self.timeline.stop_waiting();
        let under_way = [&self.starting, &self.active, &self.healing];
        let under_way: BTreeSet<u64> = under_way.into_iter().flatten().copied().collect();
        let was_cut_short = self.interrupted;
        self.recorder.update_faults(|fault| {
            if fault.outcome.is_some() || under_way.contains(&fault.id) {
                return;
            }
            let event = fault.trigger.on.as_ref();
            let reason = match event.filter(|_| waited.contains(&fault.id)) {
                Some(on) => {
                    let (event, nth) = (on.event.name(), on.nth);
                    format!("the event it waited for, {event} number {nth}, never came")
                }
                None if was_cut_short => "the run was ended before it was due".into(),
                None => "it was due only after the workload was over".into(),
            };
            fault.reason = Some(reason);
        });
    }
}
