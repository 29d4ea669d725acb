//! Owns a round of a node with mischief in it: in another order, in smaller pieces, with other answers.
//! Never does what a node could not have been made to do by when messages arrive and what they ask for.

use super::{Arrival, NodeError, NodeLoop, Outbox};
use crate::message::Request;
use crate::mischief::MischiefPoint;
use crate::storage::disk::Disk;

impl<D: Disk> NodeLoop<D> {
    /// The first part of a round, for a node with mischief.
    pub(super) fn take_in_with_mischief(
        &mut self,
        now_ns: u64,
        timestamp_ms: i64,
        arrivals: impl IntoIterator<Item = Arrival>,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let mut arrivals: Vec<Arrival> = arrivals.into_iter().collect();
        // Each of them came over another connection: no two of them have an order.
        if self.mischief.happens(MischiefPoint::ArrivalsReversed) {
            arrivals.reverse();
        }
        for arrival in &mut arrivals {
            self.change(arrival);
        }
        if self.mischief.happens(MischiefPoint::SnapshotTaken) {
            arrivals.push(Arrival::TakeSnapshot);
        }
        let syncs = self.mischief.happens(MischiefPoint::SyncsApart);
        if !syncs && !self.mischief.happens(MischiefPoint::ArrivalsApart) {
            return self.take_in(now_ns, timestamp_ms, arrivals, outbox);
        }
        for arrival in arrivals {
            self.take_in(now_ns, timestamp_ms, [arrival], outbox)?;
            if syncs {
                self.sync(now_ns, outbox)?;
            }
        }
        // Time may have made something due, even if nothing arrived.
        self.take_in(now_ns, timestamp_ms, [], outbox)
    }

    /// A fetch asks for less, or is in more of a hurry, than its sender was.
    fn change(&mut self, arrival: &mut Arrival) {
        let Arrival::PeerRequest { request, .. } = arrival else {
            return;
        };
        let Request::Fetch(fetch) = &mut **request else {
            return;
        };
        if self.mischief.happens(MischiefPoint::FetchAnsweredEarly) {
            fetch.max_wait_ms = 0;
        }
        if self.mischief.happens(MischiefPoint::FetchAnsweredSmall) {
            fetch.max_bytes = 1;
        }
    }

    /// No more mischief until the node is started again.
    pub fn end_mischief(&mut self) {
        self.mischief.end();
    }
}
