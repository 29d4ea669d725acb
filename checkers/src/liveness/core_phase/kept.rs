//! Owns what of a trace the properties of a liveness phase need: where nodes stood as it began, and the rest.
//! Never keeps more than a few events of what came before.

use std::collections::BTreeMap;
use std::rc::Rc;

use results::shared_text::{SharedText, position};
use results::trace::{Role, TraceDetail, TraceEvent};

/// An event with its place in the trace.
type Placed = (u64, Rc<TraceEvent>);

/// Watches a trace go by and keeps that of it from which a phase is judged as from the whole.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    next_place: u64,
    before: Vec<(SharedText, Latest)>,
    is_begun: bool,
    since: Vec<Rc<TraceEvent>>,
}

/// The events that tell where a node stands: of each kind the latest, since its last start.
#[derive(Debug, Default)]
struct Latest {
    any: Option<Placed>,
    started: Option<Placed>,
    role: Option<Placed>,
    log_end: Option<Placed>,
    high_watermark: Option<Placed>,
    installed: Vec<Placed>,
    /// When it last became leader, whenever it was started since.
    led: Option<Placed>,
}

impl Latest {
    fn note(&mut self, placed: Placed) {
        match &placed.1.detail {
            TraceDetail::Started(_) => {
                *self = Self {
                    started: Some(placed.clone()),
                    led: self.led.take(),
                    ..Self::default()
                };
            }
            TraceDetail::RoleChange { role, .. } => {
                if *role == Role::Leader {
                    self.led = Some(placed.clone());
                }
                self.role = Some(placed.clone());
            }
            TraceDetail::Append { .. } | TraceDetail::Truncate { .. } => {
                self.log_end = Some(placed.clone());
            }
            TraceDetail::HighWatermark { .. } => self.high_watermark = Some(placed.clone()),
            TraceDetail::SnapshotInstalled { .. } => self.installed.push(placed.clone()),
            _ => {}
        }
        self.any = Some(placed);
    }

    fn into_events(self) -> impl Iterator<Item = Placed> {
        let latest = [
            self.any,
            self.started,
            self.role,
            self.log_end,
            self.high_watermark,
            self.led,
        ];
        latest.into_iter().flatten().chain(self.installed)
    }
}

impl Kept {
    /// Takes the next event.
    pub(crate) fn observe(&mut self, event: &Rc<TraceEvent>) {
        if self.is_begun {
            self.since.push(event.clone());
            return;
        }
        let placed = (self.next_place, event.clone());
        self.next_place += 1;
        let known = position(self.before.iter().map(|(name, _)| name), &event.node);
        let position = known.unwrap_or_else(|| {
            self.before.push((event.node.clone(), Latest::default()));
            self.before.len() - 1
        });
        self.before[position].1.note(placed);
    }

    /// A phase is about to begin: whatever follows is kept.
    pub(crate) fn begin(&mut self) {
        self.is_begun = true;
    }

    /// What was kept, in the order of the trace.
    pub(crate) fn into_trace(self) -> Vec<TraceEvent> {
        let before = self.before.into_iter();
        let before = before.flat_map(|(_, latest)| latest.into_events());
        let before: BTreeMap<u64, Rc<TraceEvent>> = before.collect();
        let events = before.into_values().chain(self.since);
        events.map(Rc::unwrap_or_clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use results::trace::Started;

    use super::super::nodes;
    use super::*;

    fn event(time: u64, node: &str, epoch: i32, detail: TraceDetail) -> Rc<TraceEvent> {
        Rc::new(TraceEvent {
            time,
            node: node.into(),
            incarnation: 1,
            seq: time,
            epoch,
            detail,
        })
    }

    fn append(last_offset: i64) -> TraceDetail {
        TraceDetail::Append {
            base_offset: last_offset,
            last_offset,
            batch_epoch: 1,
            crc: 7,
        }
    }

    fn committed(high_watermark: i64) -> TraceDetail {
        TraceDetail::HighWatermark {
            high_watermark,
            log_end: high_watermark,
        }
    }

    fn role(role: Role) -> TraceDetail {
        TraceDetail::RoleChange {
            role,
            leader: None,
            epoch_start_offset: None,
            reason: None,
        }
    }

    fn installed(end_offset: i64) -> TraceDetail {
        TraceDetail::SnapshotInstalled {
            end_offset,
            last_epoch: 1,
            digest: String::new(),
            voters: None,
            kraft_version: 0,
        }
    }

    fn started(log_end: i64) -> TraceDetail {
        TraceDetail::Started(Box::new(Started {
            role: Role::Unattached,
            log_start: 0,
            log_end,
            last_epoch: 1,
            voted_for: None,
            leader: None,
            truncated_bytes: 0,
            snapshots: None,
            voters: None,
            kraft_version: None,
            directory_id: None,
            is_voter: None,
        }))
    }

    /// Wherever a phase begins, nodes stand where the whole trace says that they do.
    #[test]
    fn nodes_stand_where_the_whole_trace_has_them() {
        let details = [
            started(0),
            role(Role::Leader),
            append(3),
            committed(4),
            append(9),
            TraceDetail::Truncate { log_end: 5 },
            installed(20),
            committed(12),
            installed(30),
            append(31),
            role(Role::Follower),
            TraceDetail::Flush { log_end: 32 },
            started(7),
            append(8),
            committed(9),
            TraceDetail::Truncate { log_end: 9 },
        ];
        let events = details
            .into_iter()
            .enumerate()
            .flat_map(|(number, detail)| {
                let (time, epoch) = (number as u64 * 10, number as i32 / 4);
                let other = event(time + 5, "n2", epoch, append(number as i64));
                [event(time, "n1", epoch, detail), other]
            });
        let events: Vec<Rc<TraceEvent>> = events.collect();
        let whole: Vec<TraceEvent> = events.iter().map(|event| (**event).clone()).collect();
        for begun_at in 0..=events.len() {
            let mut kept = Kept::default();
            for (place, event) in events.iter().enumerate() {
                if place == begun_at {
                    kept.begin();
                }
                kept.observe(event);
            }
            let kept = kept.into_trace();
            let times = events.iter().map(|event| event.time);
            for time in times.skip(begun_at.saturating_sub(1)) {
                let told = |trace| format!("{:?}", nodes::at(trace, time));
                assert_eq!(
                    told(&kept),
                    told(&whole),
                    "begun at {begun_at}, time {time}"
                );
            }
            let leads = |event: &&TraceEvent| {
                matches!(
                    event.detail,
                    TraceDetail::RoleChange {
                        role: Role::Leader,
                        ..
                    }
                )
            };
            assert_eq!(kept.iter().rfind(leads), whole.iter().rfind(leads));
        }
    }
}
