//! Owns the style and the scripts that the pages carry inline.
//! Never refers to anything outside the page.

use crate::operations::Outcome;
use crate::plots;

const BASE_STYLE: &str = include_str!("../templates/style.css");

/// The script of a run's page: copying commands.
pub(crate) const RUN_SCRIPT: &str = include_str!("../templates/run.js");

/// The script of the list of runs: filter and sort.
pub(crate) const INDEX_SCRIPT: &str = include_str!("../templates/index.js");

/// The style of the list of runs.
pub(crate) fn index_style() -> String {
    BASE_STYLE.to_owned()
}

/// The style of a run's page: dark colours for the plots, and switches that hide groups of shapes.
pub(crate) fn run_style() -> String {
    let mut style = BASE_STYLE.to_owned();
    style.push_str("@media (prefers-color-scheme:dark){\n");
    style.push_str(&plots::dark_rules(".plot "));
    style.push_str("}\n");
    let outcomes = Outcome::ALL.map(|outcome| (outcome.word(), plots::outcome(outcome)));
    let kinds = plots::FAULT_KINDS.into_iter().chain(["other"]);
    let faults = kinds.map(|kind| (kind, plots::fault(kind)));
    for (name, swatch) in outcomes.into_iter().chain(faults) {
        let (light, dark) = (swatch.hex(), swatch.dark);
        style.push_str(&format!(
            "body:has(#show-{name}:not(:checked)) .plot :is([fill=\"{light}\"],[stroke=\"{light}\"])\
             {{display:none}}\n\
             .key-{name}{{background:{light}}}\n\
             @media (prefers-color-scheme:dark){{.key-{name}{{background:#{dark:06X}}}}}\n"
        ));
    }
    style
}
