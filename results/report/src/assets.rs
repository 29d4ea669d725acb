//! Owns the style and the scripts that the pages carry inline.
//! Never refers to anything outside the page.

use crate::operations::Outcome;
use crate::plots::{self, Swatch};
use crate::timeline::NodeState;

const BASE_STYLE: &str = include_str!("../templates/style.css");

/// The script of a run's page: copying commands, and the timeline.
pub(crate) const RUN_SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("../templates/run/copy.js"),
    include_str!("../templates/run/packed.js"),
    include_str!("../templates/run/time_view.js"),
    include_str!("../templates/run/operations.js"),
    include_str!("../templates/run/timeline.js"),
    include_str!("../templates/run/controls.js"),
    include_str!("../templates/run/messages.js"),
    include_str!("../templates/run/orders.js"),
    include_str!("../templates/run/start.js"),
);

/// The script of the list of runs: filter and sort.
pub(crate) const INDEX_SCRIPT: &str = include_str!("../templates/index.js");

/// The script of a campaign's page: copying the command.
pub(crate) const CAMPAIGN_SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("../templates/run/copy.js")
);

/// The style of the list of runs and of campaigns.
pub(crate) fn index_style() -> String {
    BASE_STYLE.to_owned()
}

/// The style of a run's page: dark colours for the plots, the colours that the scripts draw with,
/// and switches that hide groups of shapes.
pub(crate) fn run_style() -> String {
    let mut style = BASE_STYLE.to_owned();
    style.push_str("@media (prefers-color-scheme:dark){\n");
    style.push_str(&plots::dark_rules(".plot "));
    style.push_str("}\n");
    style.push_str(&variables());
    let outcomes = Outcome::ALL.map(|outcome| (outcome.word(), plots::outcome(outcome)));
    for (name, swatch) in outcomes.into_iter().chain(faults()) {
        let (light, dark) = (swatch.hex(), swatch.dark);
        style.push_str(&format!(
            "body:has(#show-{name}:not(:checked)) .plot \
             :is([fill=\"{light}\"],[stroke=\"{light}\"])\
             {{display:none}}\n\
             .key-{name}{{background:{light}}}\n\
             @media (prefers-color-scheme:dark){{.key-{name}{{background:#{dark:06X}}}}}\n"
        ));
    }
    style
}

fn faults() -> impl Iterator<Item = (&'static str, Swatch)> {
    let kinds = plots::FAULT_KINDS.into_iter().chain(["other"]);
    kinds.map(|kind| (kind, plots::fault(kind)))
}

/// The colours of faults and states by name: scripts take them from here, so that no colour is
/// written down twice.
fn variables() -> String {
    let states = NodeState::ALL.map(|state| ("state", state.word(), plots::state(state)));
    let faults = faults().map(|(kind, swatch)| ("fault", kind, swatch));
    let (mut light, mut dark) = (String::new(), String::new());
    let keys = NodeState::ALL.map(NodeState::word);
    let keys = keys.map(|state| format!(".state-{state}{{background:var(--state-{state})}}"));
    for (group, name, swatch) in states.into_iter().chain(faults) {
        light.push_str(&format!("--{group}-{name}:{};", swatch.hex()));
        dark.push_str(&format!("--{group}-{name}:#{:06X};", swatch.dark));
    }
    format!(
        ":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{}\n",
        keys.concat()
    )
}
