//! Owns checking epochs and logs event by event, while a run goes on.
//! Never concludes more than the checker does afterwards; it only concludes it sooner.

use results::trace::TraceEvent;

use super::epochs::Epochs;
use super::logs::Logs;

/// Watches a trace of which no event is lost, as in a simulation.
#[derive(Debug)]
pub struct Watch {
    epochs: Epochs,
    logs: Logs,
}

impl Watch {
    /// Watches the nodes of a cluster with this many voters.
    pub fn new(voter_count: u32) -> Self {
        Self {
            epochs: Epochs::new(),
            logs: Logs::new(voter_count as usize, std::collections::BTreeMap::new()),
        }
    }

    /// Takes the next event, no earlier than the one before. Returns the id of a property that is
    /// violated by now, if any is. That a majority lacks what a leader committed shows only once time
    /// has gone on: until then, its flush may still be reported.
    pub fn observe(&mut self, event: &TraceEvent) -> Option<&'static str> {
        self.epochs.observe(event);
        self.logs.observe(event);
        self.epochs.violated().chain(self.logs.violated()).next()
    }
}

#[cfg(test)]
mod tests {
    use results::trace::TraceDetail;

    use super::*;

    fn event(time: u64, node: &str, detail: TraceDetail) -> TraceEvent {
        TraceEvent {
            time,
            node: node.into(),
            incarnation: 1,
            seq: time,
            epoch: 3,
            detail,
        }
    }

    #[test]
    fn a_violation_shows_at_the_event_that_makes_it() {
        let mut watch = Watch::new(3);
        let vote = |candidate: &str| TraceDetail::VotePersisted {
            candidate: candidate.into(),
        };
        assert_eq!(watch.observe(&event(1, "n1", vote("n2"))), None);
        assert_eq!(watch.observe(&event(2, "n3", vote("n3"))), None);
        assert_eq!(watch.observe(&event(3, "n1", vote("n3"))), Some("K6"));
    }

    #[test]
    fn a_high_watermark_beyond_the_log_shows_at_once() {
        let mut watch = Watch::new(3);
        let beyond = TraceDetail::HighWatermark {
            high_watermark: 4,
            log_end: 3,
        };
        assert_eq!(watch.observe(&event(1, "n1", beyond)), Some("K3"));
    }
}
