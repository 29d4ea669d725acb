//! Owns the choice of nodes where it is free: of those that a fault can act on, and finds as they are.
//! Never looks further than the view goes.

use super::{DRAW_NODE, DRAW_STAND_IN, Resolver};
use crate::budget::minority;

impl Resolver<'_> {
    /// A drawn node. If it is out of reach, or may end before it is hit, another one is drawn in its place, if there
    /// is one that is better: so a node that is fit is hit whatever became of the others.
    pub(super) fn drawn(&self) -> usize {
        let node_count = self.view.nodes.len() as u64;
        let drawn = self.draws.below(self.id, DRAW_NODE, node_count) as usize;
        let fit = self.that_stay_or_all(self.reachable(0..self.view.nodes.len()));
        if fit.contains(&drawn) {
            return drawn;
        }
        let stand_in = self.draws.choose(self.id, DRAW_STAND_IN, &fit);
        stand_in.copied().unwrap_or(drawn)
    }

    /// Drawn voters, so many that a majority stays untouched: those that are out of reach are none of it. One in any
    /// case, if one may ever be hit.
    pub(super) fn drawn_minority(&self) -> Vec<usize> {
        let most = minority(self.voters.len());
        let away = self.voters.iter().filter(|it| !self.is_within_reach(**it));
        let left = most.saturating_sub(away.count());
        self.drawn_voters(left.max(most.min(1)))
    }

    /// So many drawn voters, or as many as are within reach.
    pub(super) fn drawn_voters(&self, count: usize) -> Vec<usize> {
        let mut drawn = self.that_stay_first(self.reachable_or_all(self.voter_order()));
        drawn.truncate(count);
        drawn
    }

    fn is_within_reach(&self, position: usize) -> bool {
        self.view
            .is_within_reach(&self.view.nodes[position], self.reach)
    }

    fn reachable(&self, positions: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let positions = positions.into_iter();
        positions.filter(|it| self.is_within_reach(*it)).collect()
    }

    /// Those of these that are within reach. If none is, all: whoever is hit then tells why nothing came of it.
    pub(super) fn reachable_or_all(&self, positions: Vec<usize>) -> Vec<usize> {
        those_or_all(positions, |it| self.is_within_reach(it))
    }

    /// Whether the fault finds a node as it is now: whether one still runs that may end by itself depends on its
    /// last write, say.
    fn stays(&self, position: usize) -> bool {
        let node = &self.view.nodes[position];
        !(self.is_lost_on_the_dead && self.view.may_end_by_itself(node))
    }

    /// These, in the same order, but first those that the fault finds as they are now.
    pub(super) fn that_stay_first(&self, mut positions: Vec<usize>) -> Vec<usize> {
        positions.sort_by_key(|position| !self.stays(*position));
        positions
    }

    /// Those of these that the fault finds as they are now. If there are none, all: replays wait for their nodes.
    pub(super) fn that_stay_or_all(&self, positions: Vec<usize>) -> Vec<usize> {
        those_or_all(positions, |it| self.stays(it))
    }

    /// All nodes, but for those that the fault may not find any more.
    ///
    /// # Errors
    /// For people: these are all.
    pub(super) fn all_that_stay(&self) -> Result<Vec<usize>, String> {
        let all = 0..self.view.nodes.len();
        let stay: Vec<usize> = all.filter(|it| self.stays(*it)).collect();
        if stay.is_empty() {
            return Err(
                "every node may end at any moment: its disk fails, or it is about to leave".into(),
            );
        }
        Ok(stay)
    }

    /// The leader. One that is out of reach leads nobody any more, or soon will not; it stays where all are.
    pub(super) fn leader(&mut self) -> usize {
        let last = self.last_leader();
        let is_anybody = !self.reachable(0..self.view.nodes.len()).is_empty();
        if self.is_within_reach(last) || !is_anybody {
            return last;
        }
        self.leader_unknown = true;
        self.drawn()
    }

    /// Who is taken for the leader, whatever became of it.
    pub(super) fn last_leader(&mut self) -> usize {
        let leader = self.view.leader.as_ref();
        let known = leader.and_then(|name| self.view.nodes.iter().position(|node| node == name));
        known.unwrap_or_else(|| {
            self.leader_unknown = true;
            self.drawn()
        })
    }
}

/// Those of the positions of which this is so, or all if there are none.
fn those_or_all(positions: Vec<usize>, is_so: impl Fn(usize) -> bool) -> Vec<usize> {
    let those: Vec<usize> = positions.iter().copied().filter(|it| is_so(*it)).collect();
    if those.is_empty() { positions } else { those }
}
