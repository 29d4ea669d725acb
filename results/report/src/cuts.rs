//! Owns how cut links are told: as sides that do not reach each other, where the cut has such a shape.
//! Never says more than the links do: nodes that no link leads to or from are not named.

use std::collections::BTreeSet;

/// Links by their ends, from and to.
type Links<'a> = BTreeSet<(&'a str, &'a str)>;

/// `n1 n2 | n3 n4 n5` for sides without any link between them, `n1 → n2 n3` where it is so in one direction only,
/// and the single links (`n1 ↔ n3, n2 → n3`) for everything else.
pub(crate) fn told(links: &[(&str, &str)]) -> String {
    let cut: Links<'_> = links.iter().copied().collect();
    sides(&cut)
        .or_else(|| one_way(&cut))
        .unwrap_or_else(|| one_by_one(links, &cut))
}

/// Cut both ways between any two nodes of different sides, and nowhere else.
fn sides(cut: &Links<'_>) -> Option<String> {
    if cut.iter().any(|(from, to)| !cut.contains(&(*to, *from))) {
        return None;
    }
    let mut left: BTreeSet<&str> = cut.iter().map(|(from, _)| *from).collect();
    let mut told = Vec::new();
    while let Some(first) = left.pop_first() {
        // With this shape, whoever the first one still reaches is on its side.
        let (beyond, mut side): (BTreeSet<&str>, BTreeSet<&str>) =
            left.iter().partition(|node| cut.contains(&(first, **node)));
        side.insert(first);
        let is_whole = side.iter().all(|one| {
            let inside = side.iter().all(|other| !cut.contains(&(one, other)));
            inside && beyond.iter().all(|other| cut.contains(&(one, other)))
        });
        if !is_whole {
            return None;
        }
        told.push(listed(&side));
        left = beyond;
    }
    (told.len() > 1).then(|| told.join(" | "))
}

/// Cut from every node of one side to every node of the other, and not back.
fn one_way(cut: &Links<'_>) -> Option<String> {
    let from: BTreeSet<&str> = cut.iter().map(|(from, _)| *from).collect();
    let to: BTreeSet<&str> = cut.iter().map(|(_, to)| *to).collect();
    let is_whole = from.is_disjoint(&to) && cut.len() == from.len() * to.len();
    (is_whole && !cut.is_empty()).then(|| format!("{} → {}", listed(&from), listed(&to)))
}

fn one_by_one(links: &[(&str, &str)], cut: &Links<'_>) -> String {
    let mut told = Vec::new();
    let mut done = Links::new();
    for (from, to) in links {
        if done.contains(&(*to, *from)) {
            continue;
        }
        done.insert((from, to));
        let arrow = match cut.contains(&(*to, *from)) {
            true => '↔',
            false => '→',
        };
        told.push(format!("{from} {arrow} {to}"));
    }
    told.join(", ")
}

fn listed(nodes: &BTreeSet<&str>) -> String {
    nodes.iter().copied().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All links between the nodes of different sides, both ways.
    fn between<'a>(sides: &[&[&'a str]]) -> Vec<(&'a str, &'a str)> {
        let mut links = Vec::new();
        for (place, side) in sides.iter().enumerate() {
            for other in sides.iter().skip(place + 1) {
                for one in *side {
                    links.extend(other.iter().flat_map(|two| [(*one, *two), (*two, *one)]));
                }
            }
        }
        links
    }

    #[test]
    fn nodes_that_do_not_reach_each_other_stand_on_different_sides() {
        let halves = between(&[&["n1", "n2"], &["n3", "n4", "n5"]]);
        assert_eq!(told(&halves), "n1 n2 | n3 n4 n5");
        let three = between(&[&["n2"], &["n1", "n4"], &["n3"]]);
        assert_eq!(told(&three), "n1 n4 | n2 | n3");
        assert_eq!(told(&between(&[&["n3"], &["n1"]])), "n1 | n3");
    }

    #[test]
    fn a_cut_in_one_direction_says_in_which() {
        let deaf = [("n1", "n3"), ("n2", "n3")];
        assert_eq!(told(&deaf), "n1 n2 → n3");
    }

    #[test]
    fn a_cut_of_any_other_shape_is_told_link_by_link() {
        let mixed = [("n1", "n3"), ("n3", "n1"), ("n2", "n3")];
        assert_eq!(told(&mixed), "n1 ↔ n3, n2 → n3");
        // A chain of four: its ends reach one neighbour each.
        let chain = between(&[&["n1"], &["n3", "n4"]]);
        let chain = [chain, between(&[&["n2"], &["n4"]])].concat();
        assert_eq!(told(&chain), "n1 ↔ n3, n1 ↔ n4, n2 ↔ n4");
        assert_eq!(told(&[]), "");
    }
}
