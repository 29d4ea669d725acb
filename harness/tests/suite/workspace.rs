//! Owns the check that crates depend on each other only in the directions that were decided.
//! Never builds anything.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each crate of this workspace may depend on, of the crates of this workspace.
const ALLOWED: [(&str, &[&str]); 6] = [
    ("node", &[]),
    ("results", &[]),
    ("results-report", &["results"]),
    ("nemesis", &["results"]),
    ("checkers", &["results"]),
    (
        "harness",
        &["node", "results", "results-report", "nemesis", "checkers"],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn manifest(path: &Path) -> toml::Table {
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(section) = table.get(section).and_then(toml::Value::as_table) else {
                continue;
            };
            for (name, value) in section {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                found.insert(renamed.unwrap_or(name).to_owned());
            }
        }
    }
    found
}

#[test]
fn crates_depend_on_each_other_only_as_decided() {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let members = manifest(&root().join("Cargo.toml"))["workspace"]["members"].clone();
    let mut seen = BTreeSet::new();
    for member in members.as_array().unwrap() {
        let manifest = manifest(&root().join(member.as_str().unwrap()).join("Cargo.toml"));
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("new crate {name}"));
        for dependency in dependencies(&manifest) {
            let ours = ALLOWED.iter().any(|(name, _)| *name == dependency);
            assert!(
                !ours || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
        seen.insert(name);
    }
    assert_eq!(
        seen.len(),
        ALLOWED.len(),
        "every crate of the list is a member"
    );
}

#[test]
fn neither_a_checker_nor_a_fault_links_a_plot_or_a_web_server() {
    for name in ["results", "checkers", "nemesis"] {
        let dependencies = dependencies(&manifest(&root().join(name).join("Cargo.toml")));
        for heavy in ["plotters", "axum", "askama", "tower-http"] {
            assert!(!dependencies.contains(heavy), "{name} depends on {heavy}");
        }
    }
}
