//! Owns the step from a fault as asked for to the nodes and links it really hits.
//! Never touches a process or a socket, and draws nothing that its fault id and seed do not decide.

mod choice;
mod shapes;
#[cfg(test)]
mod tests;

use crate::action::{Action, ClockSetting, VoterChange};
use crate::budget::{FaultBudget, minority};
use crate::fault::{
    CLIENTS, Direction, Fault, Files, Group, LinkSelector, MembershipChange, Shape, Target, Targets,
};
use crate::reach::Reach;
use crate::view::ClusterView;
use std::collections::BTreeSet;

use results::keyed_random::Stream;
use results::schedule::ResolvedFault;

use self::shapes::Links;

/// How many voters a drawn removal leaves at least; a removal of a named node may leave one alone.
const VOTERS_KEPT: usize = 2;

/// An action, and what had to be assumed to arrive at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// What to do.
    pub action: Action,
    /// The leader was asked for but not known, or does not run, so a drawn node stands in for it.
    pub leader_unknown: bool,
}

impl Resolution {
    /// The record for `schedule.json`; `at_ms` is when the fault was applied, since the run started.
    pub fn to_resolved(&self, at_ms: u64) -> ResolvedFault {
        let mut resolved = self.action.to_resolved(at_ms);
        if self.leader_unknown {
            resolved
                .targets
                .insert("leader_unknown".into(), true.into());
        }
        resolved
    }
}

/// Decides whom a fault hits. `id` is the number of the fault; with `seed` and the view it decides
/// everything. The error is the reason, for people, why the fault is skipped.
pub fn resolve(
    seed: u64,
    id: u64,
    fault: &Fault,
    view: &ClusterView,
) -> Result<Resolution, String> {
    fault
        .validate(&view.nodes)
        .map_err(|error| error.to_string())?;
    let is_voter = |position: &usize| view.voters().any(|voter| *voter == view.nodes[*position]);
    let mut resolver = Resolver {
        draws: Stream::new(seed, "resolve"),
        id,
        view,
        reach: fault.reach(),
        is_lost_on_the_dead: fault.is_lost_on_the_dead(),
        voters: (0..view.nodes.len()).filter(is_voter).collect(),
        leader_unknown: false,
    };
    let action = resolver.action(fault)?;
    Ok(Resolution {
        action,
        leader_unknown: resolver.leader_unknown,
    })
}

/// Counters of the draws of one fault.
const DRAW_NODE: u64 = 0;
const DRAW_DIRECTION: u64 = 1;
const DRAW_SPARE: u64 = 2;
const DRAW_PLACE: u64 = 3;
const DRAW_STAND_IN: u64 = 4;
const DRAW_ORDER: u64 = 16;

struct Resolver<'a> {
    draws: Stream,
    id: u64,
    view: &'a ClusterView,
    /// How far the fault reaches.
    reach: Reach,
    /// Whether it comes to nothing on nodes that end just before.
    is_lost_on_the_dead: bool,
    /// Positions of the voters.
    voters: Vec<usize>,
    leader_unknown: bool,
}

impl Resolver<'_> {
    fn action(&mut self, fault: &Fault) -> Result<Action, String> {
        if let Some(files) = fault.destroys()
            && !fault.is_beyond_budget()
            && let Some(targets) = fault.targets()
        {
            let positions = self.within_budget(targets, files)?;
            return Ok(on_nodes(fault, self.names(positions)));
        }
        Ok(match fault {
            Fault::Partition { shape, style } => Action::Cut {
                links: self.links(shape)?,
                style: *style,
            },
            Fault::Link { links, shaping } => Action::ShapeLinks {
                links: match links {
                    LinkSelector::Shape(shape) => self.links(shape)?,
                    LinkSelector::Targets(targets) => {
                        let nodes = self.positions(targets)?;
                        self.named(shapes::touching(&nodes, self.view.nodes.len()))
                    }
                },
                shaping: shaping.clone(),
            },
            Fault::Membership { change, target } => Action::Membership {
                change: self.voter_change(*change, target)?,
            },
            Fault::Burst => Action::Burst,
            Fault::ClockReset {
                targets: Targets::All,
            } => Action::ResetClocks {
                nodes: self.names(self.all_that_stay()?),
            },
            on_targets => {
                let targets = on_targets.targets().unwrap_or(&Targets::One);
                let positions = self.positions(targets)?;
                on_nodes(on_targets, self.names(positions))
            }
        })
    }

    /// Names of these nodes, in the order of the view.
    fn names(&self, mut positions: Vec<usize>) -> Vec<String> {
        positions.sort_unstable();
        let names = positions.into_iter();
        names
            .map(|position| self.view.nodes[position].clone())
            .collect()
    }

    /// The targets, in the order in which they were drawn.
    fn positions(&mut self, targets: &Targets) -> Result<Vec<usize>, String> {
        let voter_count = self.voters.len();
        let positions = match targets {
            Targets::One => vec![self.drawn()],
            Targets::Leader => vec![self.leader()],
            Targets::Minority => self.drawn_minority(),
            Targets::Majority => self.drawn_voters(voter_count / 2 + 1),
            Targets::All => (0..self.view.nodes.len()).collect(),
            Targets::Group(group) => self.group(*group)?,
            Targets::EventNode => vec![self.event_node()?],
            Targets::Nodes(names) => names.iter().map(|name| self.position(name)).collect(),
        };
        if positions.is_empty() {
            return Err(format!(
                "there are {voter_count} voters, too few to hit any"
            ));
        }
        Ok(positions)
    }

    /// The targets whose data may be destroyed without the cluster losing what it acknowledged. Drawn
    /// targets are drawn among those, and another one stands in for a leader that is none of them; what was
    /// asked for by name is hit as a whole or not at all.
    fn within_budget(&mut self, targets: &Targets, files: Files) -> Result<Vec<usize>, String> {
        let mut budget = self.view.budget();
        let whom = match targets {
            Targets::Nodes(names) => names.join(", "),
            _ => "one more voter".into(),
        };
        let spent = format!(
            "it would destroy data of {whom}: {} of {} voters have lost their copy already, and no more than {} \
             may, as a majority must keep it",
            budget.allowed_count() - budget.left(files),
            self.view.least_voter_count(),
            budget.allowed_count()
        );
        let (view, reach) = (self.view, self.reach);
        let may_hit = |name: &String, budget: &FaultBudget| {
            view.is_within_reach(name, reach) && budget.may_hit(name, files)
        };
        if let Targets::One | Targets::Leader = targets {
            let leader = (*targets == Targets::Leader).then(|| self.leader());
            if let Some(leader) = leader.filter(|leader| may_hit(&view.nodes[*leader], &budget)) {
                return Ok(vec![leader]);
            }
            let eligible: Vec<usize> = (0..view.nodes.len())
                .filter(|position| may_hit(&view.nodes[*position], &budget))
                .collect();
            let eligible = self.that_stay_or_all(eligible);
            let drawn = self.draws.choose(self.id, DRAW_NODE, &eligible);
            return drawn.map(|position| vec![*position]).ok_or(spent);
        }
        let most = budget.allowed_count();
        let (wanted, as_many_as_possible) = match targets {
            Targets::Minority => (self.that_stay_first(self.voter_order()), true),
            Targets::Group(_) => (self.positions(targets)?, true),
            _ => (self.positions(targets)?, false),
        };
        let mut hit = Vec::new();
        for position in wanted {
            let name = &self.view.nodes[position];
            if *targets == Targets::Minority && hit.len() == most {
                break;
            }
            let may_hit = if as_many_as_possible {
                may_hit(name, &budget)
            } else {
                budget.may_hit(name, files)
            };
            if may_hit {
                budget.damage(name, files);
                hit.push(position);
            } else if !as_many_as_possible {
                return Err(spent);
            }
        }
        if hit.is_empty() {
            return Err(spent);
        }
        Ok(hit)
    }

    fn links(&mut self, shape: &Shape) -> Result<Vec<(String, String)>, String> {
        let node_count = self.view.nodes.len();
        let links = match shape {
            Shape::Halves => {
                let order: Vec<usize> = (0..node_count).collect();
                let (left, right) = order.split_at(node_count / 2);
                shapes::both_ways(left, right)
            }
            Shape::RandomHalves => {
                let order = self.order();
                let (left, right) = order.split_at(node_count / 2);
                shapes::both_ways(left, right)
            }
            Shape::OneNode { target } => {
                let node = self.target(target)?;
                shapes::touching(&[node], node_count)
            }
            Shape::Leader => {
                let node = self.leader();
                shapes::touching(&[node], node_count)
            }
            Shape::LeaderMinority => self.leader_among(minority(node_count)),
            Shape::LeaderMajority => self.leader_among(node_count / 2 + 1),
            Shape::OneWay { target, direction } => {
                let node = self.target(target)?;
                self.one_way(node, *direction)
            }
            Shape::MajoritiesRing => shapes::majorities_ring(&self.order()),
            Shape::Bridge => shapes::bridge(&self.order()),
            Shape::Chain => shapes::chain(&self.order()),
            Shape::Kip996 => match self.voter_order().get(..5) {
                Some(five) => shapes::kip_996(five),
                None => return Err(format!("{} voters are not five", self.voters.len())),
            },
            Shape::Groups(groups) => {
                let groups = groups.iter().map(|group| self.all_positions(group));
                shapes::between_groups(&groups.collect::<Vec<_>>())
            }
            Shape::Links(links) => links
                .iter()
                .map(|(from, to)| (self.position(from), self.position(to)))
                .collect(),
        };
        Ok(self.named(links))
    }

    fn named(&self, links: Links) -> Vec<(String, String)> {
        let nodes = &self.view.nodes;
        let of_clients = self.links_of_clients(&links);
        let links = links.into_iter();
        links
            .map(|(from, to)| (nodes[from].clone(), nodes[to].clone()))
            .chain(of_clients)
            .collect()
    }

    /// Where clients have links: they stand beside a node that is drawn of those at the ends of these links,
    /// and lose what it loses. So whatever the shape is, they are on one of its sides.
    fn links_of_clients(&self, links: &Links) -> Vec<(String, String)> {
        if !self.view.has_client_links {
            return Vec::new();
        }
        let ends: BTreeSet<usize> = links.iter().flat_map(|(from, to)| [*from, *to]).collect();
        let ends: Vec<usize> = ends.into_iter().collect();
        let Some(place) = self.draws.choose(self.id, DRAW_PLACE, &ends) else {
            return Vec::new();
        };
        let name = |position: &usize| self.view.nodes[*position].clone();
        let of_clients = links.iter().filter_map(|(from, to)| match (from, to) {
            (from, to) if from == place => Some((CLIENTS.to_owned(), name(to))),
            (from, to) if to == place => Some((name(from), CLIENTS.to_owned())),
            _ => None,
        });
        of_clients.collect()
    }

    /// The leader and drawn others, `count` of them together, from the rest.
    fn leader_among(&mut self, count: usize) -> Links {
        let leader = self.leader();
        let mut order = self.order();
        order.retain(|node| *node != leader);
        order.insert(0, leader);
        let (with, without) = order.split_at(count);
        shapes::both_ways(with, without)
    }

    fn one_way(&self, node: usize, direction: Direction) -> Links {
        let is_speechless = match direction {
            Direction::From => true,
            Direction::To => false,
            Direction::Any => self.draws.chance(self.id, DRAW_DIRECTION, 50),
        };
        let others = shapes::others(node, self.view.nodes.len()).into_iter();
        if is_speechless {
            others.map(|other| (node, other)).collect()
        } else {
            others.map(|other| (other, node)).collect()
        }
    }

    fn target(&mut self, target: &Target) -> Result<usize, String> {
        match target {
            Target::One => Ok(self.drawn()),
            Target::Leader => Ok(self.leader()),
            Target::OneOf(group) => {
                let members = self.group(*group)?;
                let members = self.that_stay_or_all(members);
                let drawn = self.draws.choose(self.id, DRAW_NODE, &members);
                drawn.copied().ok_or_else(|| "there is nobody".into())
            }
            Target::EventNode => self.event_node(),
            Target::Node(name) => Ok(self.position(name)),
        }
    }

    fn group(&mut self, group: Group) -> Result<Vec<usize>, String> {
        let leader = match group {
            Group::Followers => self.view.nodes[self.last_leader()].clone(),
            Group::Candidates | Group::Lagging | Group::Observers => String::new(),
        };
        let members = self.view.members(group, &leader)?;
        Ok(self.reachable_or_all(self.all_positions(&members)))
    }

    fn voter_change(
        &mut self,
        change: MembershipChange,
        target: &Target,
    ) -> Result<VoterChange, String> {
        match change {
            MembershipChange::Add => Ok(VoterChange::Add {
                node: match target {
                    Target::Node(name) if self.view.spares.contains(name) => name.clone(),
                    Target::Node(name) => {
                        return Err(format!("{name} is no node that could be started and added"));
                    }
                    _ => self.spare()?,
                },
            }),
            // Nobody who could be promoted was there from the start: somebody comes first.
            MembershipChange::Promote
                if *target == Target::One && self.view.members(Group::Observers, "").is_err() =>
            {
                Ok(VoterChange::Add {
                    node: self.spare()?,
                })
            }
            MembershipChange::Promote => {
                let target = match target {
                    Target::One => &Target::OneOf(Group::Observers),
                    target => target,
                };
                let position = self.target(target)?;
                let node = self.view.nodes[position].clone();
                if self.voters.contains(&position) {
                    return Err(format!("{node} is a voter already"));
                }
                Ok(VoterChange::Promote { node })
            }
            MembershipChange::Remove | MembershipChange::RemoveLeader => {
                let node = self.dispensable_voter(target)?;
                let kept_count = match target {
                    Target::Node(_) => 1,
                    _ => VOTERS_KEPT,
                };
                let left_count = self.voters.len() - 1;
                if left_count < kept_count {
                    return Err(format!("without {node}, {left_count} voters would be left"));
                }
                Ok(VoterChange::Remove { node })
            }
            MembershipChange::Replace => Ok(VoterChange::Replace {
                node: self.leaving_voter(target)?,
                by: self.spare()?,
            }),
        }
    }

    /// The voter that is to leave. If others have lost data, somebody who is not needed is drawn, or stands in
    /// for a leader who is.
    fn dispensable_voter(&mut self, target: &Target) -> Result<String, String> {
        let asked_for = self.leaving_voter(target)?;
        let needed = self.check_needed(&asked_for);
        if needed.is_ok() {
            return Ok(asked_for);
        }
        let nodes = &self.view.nodes;
        let voters = self.voters.iter().map(|position| &nodes[*position]);
        let others: Vec<&String> = voters.filter(|it| self.check_needed(it).is_ok()).collect();
        match (target, needed) {
            (Target::One | Target::Leader, Err(why)) => {
                let drawn = self.draws.choose(self.id, DRAW_NODE, &others);
                drawn.map(|node| (*node).clone()).ok_or(why)
            }
            (_, needed) => needed.map(|()| asked_for),
        }
    }

    /// Refuses to remove a voter that may be needed because others have lost data.
    ///
    /// The one that leaves may be the leader. If it dies before another one has the record of its removal,
    /// those who are left need a majority of the voters as they were, without it: its log is longer than
    /// theirs, so it gives them no vote, and it stands for election no more.
    fn check_needed(&self, leaving: &str) -> Result<(), String> {
        let mut lost = self.view.damaged.keys();
        let is_voter = |node: &&String| self.view.voters().any(|voter| voter == *node);
        let lost_count = lost.clone().filter(is_voter).count();
        if lost_count == 0 || self.view.damaged.contains_key(leaving) {
            return Ok(());
        }
        let voter_count = self.view.least_voter_count();
        let whole_count = voter_count.saturating_sub(1 + lost_count);
        if whole_count > voter_count / 2 {
            return Ok(());
        }
        let first = lost.find(is_voter).map_or("somebody", String::as_str);
        Err(format!(
            "{first} has lost data, so of {voter_count} voters {leaving} may be needed"
        ))
    }

    fn leaving_voter(&mut self, target: &Target) -> Result<String, String> {
        let position = match target {
            Target::One => {
                let drawn = self.draws.choose(self.id, DRAW_NODE, &self.voters);
                *drawn.ok_or("there are no voters")?
            }
            target => self.target(target)?,
        };
        let node = &self.view.nodes[position];
        if !self.voters.contains(&position) {
            return Err(format!("{node} is no voter"));
        }
        Ok(node.clone())
    }

    fn spare(&self) -> Result<String, String> {
        let drawn = self
            .draws
            .choose(self.id, DRAW_SPARE, &self.view.spares)
            .cloned();
        drawn.ok_or_else(|| "there is no node outside the cluster that could be added".into())
    }

    fn event_node(&self) -> Result<usize, String> {
        let node = self.view.event_node.as_ref();
        let node = node.ok_or("no event started this fault, so there is no node of an event")?;
        let position = self.view.nodes.iter().position(|known| known == node);
        position.ok_or_else(|| format!("{node} is not part of the cluster any more"))
    }

    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.view.nodes.len()).collect();
        self.draws.shuffle(self.id, DRAW_ORDER, &mut order);
        order
    }

    fn voter_order(&self) -> Vec<usize> {
        let mut order = self.voters.clone();
        self.draws.shuffle(self.id, DRAW_ORDER, &mut order);
        order
    }

    fn all_positions(&self, names: &[String]) -> Vec<usize> {
        names.iter().map(|name| self.position(name)).collect()
    }

    fn position(&self, name: &str) -> usize {
        self.view
            .nodes
            .iter()
            .position(|node| node == name)
            .expect("validation refuses names that the view does not have")
    }
}

/// The action of a fault that hits nodes, on these.
fn on_nodes(fault: &Fault, nodes: Vec<String>) -> Action {
    match fault {
        Fault::Kill { .. } => Action::Kill { nodes },
        Fault::KillClean { .. } => Action::KillClean { nodes },
        Fault::Restart { .. } => Action::Restart { nodes },
        Fault::Pause { .. } => Action::Pause { nodes },
        Fault::Slow { duty, .. } => Action::Slow { nodes, duty: *duty },
        Fault::Wipe { .. } => Action::Wipe { nodes },
        Fault::ClockSkew {
            offset_ms, rate, ..
        } => {
            let clocks = nodes.into_iter().map(|node| ClockSetting {
                node,
                offset_ms: *offset_ms,
                rate: *rate,
            });
            Action::SkewClocks {
                clocks: clocks.collect(),
            }
        }
        Fault::ClockStrobe { strobe, .. } => Action::StrobeClocks {
            nodes,
            strobe: *strobe,
        },
        Fault::ClockReset { .. } => Action::ResetClocks { nodes },
        Fault::Disk { disk, .. } => Action::Disk { nodes, disk: *disk },
        Fault::Snapshot { .. } => Action::Snapshot { nodes },
        Fault::Partition { .. } | Fault::Link { .. } | Fault::Membership { .. } | Fault::Burst => {
            unreachable!("a {} fault hits no nodes", fault.kind())
        }
    }
}
