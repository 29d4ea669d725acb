//! Owns what is known of a cluster at the moment a fault is due.
//! Never fills a gap with a guess; what a world does not know is absent.

use std::collections::{BTreeMap, BTreeSet};

use results::trace::Role;

use crate::budget::FaultBudget;
use crate::fault::{Files, Group};
use crate::reach::Reach;

/// What is known of the cluster at the moment a fault is due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Names of the nodes of the cluster, in a fixed order: draws are positions in this list.
    pub nodes: Vec<String>,
    /// The leader, if one is known.
    pub leader: Option<String>,
    /// By node: its role, where known.
    pub roles: BTreeMap<String, Role>,
    /// By node: where its log ends, where known.
    pub log_ends: BTreeMap<String, i64>,
    /// The nodes that are no voters; absent if the world does not tell, and then all count as voters.
    pub observers: Option<BTreeSet<String>>,
    /// Nodes that can be started and added, but are not part of the cluster.
    pub spares: Vec<String>,
    /// Whether the voters are, or may become, others in number than at first: a change is in force or not
    /// certainly over. Then every node may come to vote.
    pub is_changing: bool,
    /// How many voters changes that are under way may leave at some time, at least; absent where there are
    /// none.
    pub least_voter_count: Option<usize>,
    /// By node: files whose durable contents it has lost and not got back.
    pub damaged: BTreeMap<String, BTreeSet<Files>>,
    /// The nodes that do not start with what is left on their disks. Until they have new ones, they are down.
    pub broken: BTreeSet<String>,
    /// Whether faults of links take links between clients and nodes, too.
    pub has_client_links: bool,
    /// The nodes that do not run at present, as far as the world tells: they have nothing to lose but their
    /// disks, and a drawn fault had better hit others.
    pub down: BTreeSet<String>,
    /// The nodes that other faults have stopped, so that they do nothing at present.
    pub stopped: BTreeSet<String>,
    /// The nodes whose disks fail for other faults.
    pub failing_disks: BTreeSet<String>,
    /// The node whose event started the fault, if an event did.
    pub event_node: Option<String>,
}

impl ClusterView {
    /// A view of which no more is known than who is there and who leads.
    pub fn new(nodes: Vec<String>, leader: Option<String>) -> Self {
        Self {
            nodes,
            leader,
            ..Self::default()
        }
    }

    /// Names of the voters, in the order of the nodes.
    pub fn voters(&self) -> impl Iterator<Item = &String> {
        let observers = self.observers.as_ref();
        let is_observer = move |node: &&String| observers.is_some_and(|all| all.contains(*node));
        self.nodes.iter().filter(move |node| !is_observer(node))
    }

    /// How many voters there may be at some time, at least.
    pub fn least_voter_count(&self) -> usize {
        let voter_count = self.voters().count();
        self.least_voter_count
            .map_or(voter_count, |least| least.min(voter_count))
    }

    /// Whether a fault that reaches so far can do anything to a node as it is now.
    pub fn is_within_reach(&self, node: &str, reach: Reach) -> bool {
        let is_up = !self.down.contains(node);
        match reach {
            Reach::Any => true,
            Reach::Running => is_up,
            Reach::Working => is_up && !self.stopped.contains(node),
            Reach::Replaceable => {
                let is_broken = self.broken.contains(node);
                (is_up || is_broken) && !self.failing_disks.contains(node)
            }
        }
    }

    /// Whether a node that runs may end at any moment, without being hit: its disk fails, or it has no vote while
    /// the voters change, so that it is on its way in or out.
    pub fn may_end_by_itself(&self, node: &str) -> bool {
        let has_no_vote = self
            .observers
            .as_ref()
            .is_some_and(|all| all.contains(node));
        self.failing_disks.contains(node) || (self.is_changing && has_no_vote)
    }

    /// How much data may still be destroyed.
    pub fn budget(&self) -> FaultBudget {
        let mut budget = if self.is_changing {
            FaultBudget::new(&self.nodes)
        } else {
            FaultBudget::new(self.voters())
        };
        budget = budget.with_least(self.least_voter_count());
        for (node, damaged) in &self.damaged {
            for files in damaged {
                budget.damage(node, *files);
            }
        }
        budget
    }

    /// The members of a group, in the order of the nodes. `leader` is who is taken for the leader.
    ///
    /// # Errors
    /// For people: what is not known, or that there is nobody.
    pub fn members(&self, group: Group, leader: &str) -> Result<Vec<String>, String> {
        let (members, nobody): (Vec<String>, _) = match group {
            Group::Followers => {
                let voters = self.voters().filter(|node| *node != leader);
                (voters.cloned().collect(), "the leader is the only voter")
            }
            Group::Candidates if self.roles.is_empty() => {
                return Err("it is not known who stands for election".into());
            }
            Group::Candidates => {
                let nodes = self.nodes.iter().filter(|node| {
                    let role = self.roles.get(*node);
                    matches!(role, Some(Role::Candidate | Role::Prospective))
                });
                (nodes.cloned().collect(), "nobody stands for election")
            }
            Group::Lagging => (self.lagging()?, "no log ends before another"),
            Group::Observers => {
                let known = self.observers.as_ref();
                let known = known.ok_or("it is not known who is an observer")?;
                let nodes = self.nodes.iter().filter(|node| known.contains(*node));
                (nodes.cloned().collect(), "there are no observers")
            }
        };
        if members.is_empty() {
            return Err(nobody.into());
        }
        Ok(members)
    }

    fn lagging(&self) -> Result<Vec<String>, String> {
        let known = self.nodes.iter();
        let known = known.filter_map(|node| Some((node, *self.log_ends.get(node)?)));
        let known: Vec<(&String, i64)> = known.collect();
        let ends = known.iter().map(|(_, end)| *end);
        let (Some(first), Some(last)) = (ends.clone().min(), ends.max()) else {
            return Err("it is not known where logs end".into());
        };
        let lagging = known
            .iter()
            .filter(|(_, end)| *end == first && first < last);
        Ok(lagging.map(|(node, _)| (*node).clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> ClusterView {
        let nodes = (1..=5).map(|number| format!("n{number}")).collect();
        ClusterView::new(nodes, Some("n2".into()))
    }

    #[test]
    fn what_is_not_known_is_said_and_not_guessed() {
        let view = view();
        for (group, word) in [
            (Group::Candidates, "election"),
            (Group::Lagging, "logs end"),
            (Group::Observers, "observer"),
        ] {
            let reason = view.members(group, "n2").unwrap_err();
            assert!(reason.contains(word), "{reason}");
            assert!(reason.contains("not known"), "{reason}");
        }
        assert_eq!(
            view.members(Group::Followers, "n2").unwrap(),
            ["n1", "n3", "n4", "n5"]
        );
    }

    #[test]
    fn groups_are_those_who_belong_to_them_now() {
        let mut view = view();
        view.roles = BTreeMap::from([
            ("n1".into(), Role::Candidate),
            ("n2".into(), Role::Leader),
            ("n4".into(), Role::Prospective),
        ]);
        assert_eq!(view.members(Group::Candidates, "n2").unwrap(), ["n1", "n4"]);
        view.roles = BTreeMap::from([("n1".into(), Role::Follower)]);
        assert!(view.members(Group::Candidates, "n2").is_err());

        view.observers = Some(BTreeSet::from(["n5".into(), "n9".into()]));
        assert_eq!(view.members(Group::Observers, "n2").unwrap(), ["n5"]);
        assert_eq!(
            view.members(Group::Followers, "n2").unwrap(),
            ["n1", "n3", "n4"]
        );

        let end = |node: &str, end| (node.to_owned(), end);
        view.log_ends = BTreeMap::from([end("n1", 7), end("n2", 9), end("n3", 7), end("n9", 1)]);
        assert_eq!(view.members(Group::Lagging, "n2").unwrap(), ["n1", "n3"]);
        view.log_ends = BTreeMap::from([end("n1", 9), end("n2", 9)]);
        assert!(view.members(Group::Lagging, "n2").is_err());
    }

    #[test]
    fn the_budget_counts_what_is_damaged_now() {
        let mut view = view();
        view.damaged = BTreeMap::from([("n1".into(), BTreeSet::from([Files::Log]))]);
        assert_eq!(view.budget().left(Files::Snapshot), 1);
        assert_eq!(view.budget().left(Files::QuorumState), 2);
        view.observers = Some(BTreeSet::from(["n1".into(), "n5".into()]));
        assert_eq!(view.budget().left(Files::Log), 1, "of three voters, one");
    }
}
