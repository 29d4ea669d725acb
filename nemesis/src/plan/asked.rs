//! Owns what somebody asks of the planned faults of a family, in place of what is drawn: `targets=leader`.
//! Never draws, and never knows a family; a parameter is one of the fault as schedules write it.

use std::collections::BTreeMap;

use results::schedule::FaultDescription;
use serde_json::{Map, Value, json};

use crate::fault::{Fault, FaultError, MembershipChange, SHAPING_PARAMETERS};

/// Parameters of faults, as schedules write them.
pub type Asked = BTreeMap<String, Value>;

/// The parameters by which a link fault, or a partition, says which links it means.
const LINKS: [&str; 3] = ["shape", "target", "direction"];

/// The fault with what was asked for in place of what was drawn. What was drawn and does not go with it is
/// left out.
///
/// # Errors
/// When the fault has no such parameter, or not such a value.
pub(super) fn replace(drawn: &Fault, asked: &Asked) -> Result<FaultDescription, FaultError> {
    let mut description = drawn.to_description();
    let asked = &named_for(&description.kind, asked);
    let parameters = &mut description.parameters;
    let says = |name: &str| asked.contains_key(name);
    let leave_out = |parameters: &mut Map<String, Value>, names: &[&str]| {
        parameters.retain(|name, _| !names.contains(&name.as_str()));
    };
    if says("targets") {
        leave_out(parameters, &LINKS);
    }
    if SHAPING_PARAMETERS.into_iter().any(says) && description.kind == "link" {
        leave_out(parameters, &SHAPING_PARAMETERS);
    }
    if says("what") {
        leave_out(parameters, &["delay_ms", "restart", "target"]);
    }
    parameters.extend(asked.clone());
    if description.kind == "membership" && says("target") && !says("what") {
        parameters.insert("what".into(), change_of(drawn, asked).into());
    }
    if parameters.get("what") == Some(&json!("read-error")) && !says("restart") {
        // A node that runs hardly ever reads.
        parameters.insert("restart".into(), json!(true));
    }
    let replaced = Fault::from_description(&description).or_else(|error| {
        // The files that were drawn need not be some in which this can go wrong.
        if says("files") || description.parameters.remove("files").is_none() {
            return Err(error);
        }
        Fault::from_description(&description)
    });
    replaced.map(|fault| fault.to_description())
}

/// What becomes of a node that is named, where the drawn change is one of nodes that nobody names.
fn change_of(drawn: &Fault, asked: &Asked) -> &'static str {
    let Fault::Membership { change, .. } = drawn else {
        return "";
    };
    let is_observer = asked.get("target") == Some(&json!("observers"));
    match change {
        _ if is_observer => "promote",
        MembershipChange::Replace => "replace",
        _ => "remove",
    }
}

/// Faults that are about one node have a target; people say targets of all.
fn named_for(kind: &str, asked: &Asked) -> Asked {
    let mut asked = asked.clone();
    if matches!(kind, "partition" | "membership")
        && let Some(targets) = asked.remove("targets")
    {
        asked.entry("target".into()).or_insert(targets);
    }
    asked
}

/// What of that goes for the second fault of a pair, too: whom it hits.
pub(super) fn of_second(asked: &Asked) -> Asked {
    let targets = asked.iter().filter(|(name, _)| *name == "targets");
    targets
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        Fault::from_description(&serde_json::from_str(text).unwrap()).unwrap()
    }

    fn replaced(drawn: &str, asked: &[(&str, Value)]) -> Result<Value, String> {
        let asked = asked.iter();
        let asked = asked.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let replaced = replace(&fault(drawn), &asked.collect());
        replaced
            .map(|description| json!(description))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_replaces_what_was_drawn_and_all_that_does_not_go_with_it() {
        for (drawn, asked, expected) in [
            (
                r#"{"kind":"kill","targets":"one"}"#,
                vec![("targets", json!("leader"))],
                r#"{"kind":"kill","targets":"leader"}"#,
            ),
            (
                r#"{"kind":"link","shape":"one-way","target":"one","delay_ms":5,"jitter_ms":3}"#,
                vec![("targets", json!(["n2"])), ("loss_percent", json!(9))],
                r#"{"kind":"link","targets":["n2"],"loss_percent":9}"#,
            ),
            (
                r#"{"kind":"disk","what":"truncate","files":"snapshot"}"#,
                vec![("what", json!("misdirected-write"))],
                r#"{"kind":"disk","targets":"one","what":"misdirected-write","files":"log"}"#,
            ),
            (
                r#"{"kind":"disk","what":"bit-flip","files":"quorum-state"}"#,
                vec![("what", json!("truncate"))],
                r#"{"kind":"disk","targets":"one","what":"truncate","files":"quorum-state"}"#,
            ),
            (
                r#"{"kind":"membership","what":"add"}"#,
                vec![("targets", json!("leader"))],
                r#"{"kind":"membership","what":"remove","target":"leader"}"#,
            ),
            (
                r#"{"kind":"membership","what":"add"}"#,
                vec![("targets", json!("observers"))],
                r#"{"kind":"membership","what":"promote","target":"observers"}"#,
            ),
            (
                r#"{"kind":"disk","what":"sync-error"}"#,
                vec![("what", json!("read-error"))],
                r#"{"kind":"disk","targets":"one","what":"read-error","files":"all","restart":true}"#,
            ),
            (
                r#"{"kind":"disk","what":"read-error","restart":true}"#,
                vec![("what", json!("sync-error"))],
                r#"{"kind":"disk","targets":"one","what":"sync-error","files":"all"}"#,
            ),
            (
                r#"{"kind":"membership","what":"add"}"#,
                vec![("what", json!("remove-leader"))],
                r#"{"kind":"membership","what":"remove-leader"}"#,
            ),
            (
                r#"{"kind":"partition","shape":"one-node","target":"one"}"#,
                vec![("targets", json!("leader")), ("style", json!("reset"))],
                r#"{"kind":"partition","shape":"one-node","target":"leader","style":"reset"}"#,
            ),
        ] {
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(replaced(drawn, &asked), Ok(expected), "{drawn}");
        }
    }

    #[test]
    fn what_a_fault_does_not_have_is_refused() {
        let kill = r#"{"kind":"kill","targets":"one"}"#;
        let error = replaced(kill, &[("offset_ms", json!(3))]).unwrap_err();
        assert!(error.contains("no parameter \"offset_ms\""), "{error}");
        let error = replaced(kill, &[("targets", json!("leadr"))]).unwrap_err();
        assert!(error.contains("did you mean \"leader\""), "{error}");
    }
}
