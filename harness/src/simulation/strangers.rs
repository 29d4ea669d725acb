//! Owns the requests of another cluster that reach nodes of this one, as if both were wired to the same addresses.
//! Never lets an answer to them reach a node of this cluster.
//!
//! The other cluster is as much like this one as can be, a copy of it from a backup, say: what it asks is what a
//! node of this cluster has just asked, in the name of the other. A node that looks at the name refuses it.

use node::message::Request;
use node::node_loop::Arrival;
use node::raft::Correlation;

use super::draws::Draws;
use super::simulated_node::Asker;
use super::world::SimulatedWorld;

/// The name of the other cluster.
const CLUSTER_ID: &str = "another";
/// One request in so many comes a second time, in the name of the other cluster.
const ONE_IN: u64 = 50;
/// Numbers of requests that no node of this cluster uses in a run.
const FIRST_CORRELATION: u64 = 1 << 40;

/// What of the other cluster is drawn.
#[derive(Debug)]
pub(super) struct Strangers {
    draws: Option<Draws>,
    request_count: u64,
}

impl Strangers {
    /// Whether there is another cluster decides `is_there`.
    pub(super) fn new(seed: u64, is_there: bool) -> Self {
        Self {
            draws: is_there.then(|| Draws::new(seed, "simulation/strangers", 0)),
            request_count: 0,
        }
    }

    /// The number of what the other cluster asks after this request, if it asks anything.
    fn draw(&mut self) -> Option<Correlation> {
        let draws = self.draws?;
        self.request_count += 1;
        let is_drawn = draws.below(self.request_count, ONE_IN) == 0;
        is_drawn.then(|| Correlation(FIRST_CORRELATION + self.request_count))
    }
}

impl SimulatedWorld {
    /// What the other cluster asks of a node that is about to be asked this, if anything.
    pub(super) fn draw_stranger(&mut self, request: &Request) -> Option<(Correlation, Request)> {
        let correlation = self.strangers.draw()?;
        Some((correlation, in_another_name(request)?))
    }

    /// The other cluster asks a node.
    pub(super) fn ask_as_stranger(&mut self, to: usize, correlation: Correlation, asked: Request) {
        self.note(16, to, correlation.0);
        let ticket = self.ticket(to, Asker::Stranger);
        let arrival = Arrival::PeerRequest {
            ticket,
            correlation: Some(correlation),
            request: Box::new(asked),
        };
        self.deliver(to, arrival);
    }
}

/// The same in the name of the other cluster; `None` for what nodes do not ask each other again and again.
fn in_another_name(request: &Request) -> Option<Request> {
    let mut request = request.clone();
    let cluster_id = match &mut request {
        Request::Vote(request) => &mut request.cluster_id,
        Request::BeginQuorumEpoch(request) => &mut request.cluster_id,
        Request::EndQuorumEpoch(request) => &mut request.cluster_id,
        Request::Fetch(request) => &mut request.cluster_id,
        Request::FetchSnapshot(request) => &mut request.cluster_id,
        _ => return None,
    };
    CLUSTER_ID.clone_into(cluster_id);
    Some(request)
}
