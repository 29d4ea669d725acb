//! Owns how people hear, while a run goes on, of a node that ended by itself.
//! Never keeps anything from the recording, which has all that the node said.

use std::collections::BTreeSet;

use results::schedule::Schedule;

/// What is told of a node that ended: in a few words where a fault of its disk is under way, as it is meant to
/// end of it, and otherwise with all that it said.
pub(super) fn told(
    schedule: &Schedule,
    under_way: &BTreeSet<u64>,
    node: &str,
    description: &str,
) -> String {
    let is_of_its_disk = |id: &&u64| {
        let fault = schedule.faults.iter().find(|fault| fault.id == **id);
        let disk = fault.filter(|fault| fault.fault.kind == "disk");
        let resolved = disk.and_then(|disk| disk.resolved.as_ref());
        resolved.is_some_and(|resolved| resolved.nodes().any(|hit| hit == node))
    };
    match under_way.iter().find(is_of_its_disk) {
        Some(id) => format!("node {node} stopped: its disk fails (fault {id})"),
        None => format!("node {node} crashed: {description}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_whose_disk_fails_just_then_is_told_of_shortly() {
        let text = r#"{"format_version":1,"seed":1,"faults":[
            {"id":3,"trigger":{"at_ms":0},"duration_ms":9,"fault":{"kind":"disk","what":"no-space","targets":"one"},
             "resolved":{"at_ms":0,"nodes":["n2"],"what":"no-space"}},
            {"id":4,"trigger":{"at_ms":0},"duration_ms":9,"fault":{"kind":"kill","targets":"one"},
             "resolved":{"at_ms":0,"nodes":["n1"]}}]}"#;
        let schedule: Schedule = serde_json::from_str(text).unwrap();
        let told = |ids: &[u64], node| {
            let under_way = ids.iter().copied().collect();
            super::told(&schedule, &under_way, node, "a bug")
        };
        let shortly = "node n2 stopped: its disk fails (fault 3)";
        assert_eq!(told(&[3, 4], "n2"), shortly);
        for (ids, node) in [(&[4][..], "n2"), (&[3, 4], "n1"), (&[3, 4], "n3")] {
            assert_eq!(told(ids, node), format!("node {node} crashed: a bug"));
        }
    }
}
