//! Owns what leaves a loop, and the record of what left too early.
//! Never delivers anything.

use node::client::ClientReply;
use node::ids::Offset;
use node::message::Response;
use node::moment::{Edge, Moment};
use node::node_loop::{Departure, Outbox};
use node::trace::{TraceEvent, Traced};

use crate::disk::DiskHandle;

/// Collects what leaves and notes what should not have left yet.
#[derive(Debug)]
pub(crate) struct Collected {
    disk: DiskHandle,
    pub(crate) departures: Vec<Departure>,
    pub(crate) events: Vec<Traced>,
    /// Moments in order, each with whether something was not durable then; if they are asked for.
    pub(crate) moments: Option<Vec<(Edge, Moment, bool)>>,
    high_watermark: Option<Offset>,
    /// Left while something that somebody may rely on was not durable.
    pub(crate) undurable: Vec<Departure>,
    /// Acknowledged before the trace said that it is committed.
    pub(crate) uncommitted: Vec<Departure>,
}

impl Collected {
    pub(crate) fn new(disk: DiskHandle) -> Self {
        Self {
            disk,
            departures: Vec::new(),
            events: Vec::new(),
            moments: None,
            high_watermark: None,
            undurable: Vec::new(),
            uncommitted: Vec::new(),
        }
    }

    /// Everything below is committed, by the trace.
    pub(crate) fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }

    pub(crate) fn take(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }
}

/// Whether it promises anything about the records that this node has stored.
fn promises(departure: &Departure) -> bool {
    let Departure::Reply { response, .. } = departure else {
        return true;
    };
    !matches!(**response, Response::Fetch(_) | Response::FetchSnapshot(_))
}

impl Outbox for Collected {
    fn depart(&mut self, departure: Departure) {
        let is_early = if promises(&departure) {
            self.disk.is_dirty()
        } else {
            // It still shows an epoch and who leads it.
            self.disk.is_election_state_dirty()
        };
        if is_early {
            self.undurable.push(departure.clone());
        }
        if let Departure::ClientReply {
            reply: ClientReply::Written { position },
            ..
        } = &departure
            && self.high_watermark <= Some(position.offset)
        {
            self.uncommitted.push(departure.clone());
        }
        self.departures.push(departure);
    }
    fn wants_moments(&self) -> bool {
        self.moments.is_some()
    }
    fn moment(&mut self, edge: Edge, moment: Moment) {
        let is_dirty = self.disk.is_dirty();
        if let Some(moments) = &mut self.moments {
            moments.push((edge, moment, is_dirty));
        }
    }
    fn trace(&mut self, traced: Traced) {
        if let TraceEvent::HighWatermark { high_watermark, .. } = traced.event {
            self.high_watermark = Some(high_watermark);
        }
        self.events.push(traced);
    }
}
