//! Owns the check that crates depend on each other only in the directions that were decided.
//! Never builds anything.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// All files below `folder` whose name ends with `ending`.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path, ending)),
            false if path.to_string_lossy().ends_with(ending) => found.push(path),
            false => {}
        }
    }
    found
}

const CRATES: [&str; 6] = [
    "node",
    "results",
    "results/report",
    "nemesis",
    "checkers",
    "harness",
];

#[test]
fn no_test_file_is_left_out_of_the_program_that_it_belongs_to() {
    let mut count = 0;
    for name in CRATES {
        for main in files(&root().join(name).join("tests"), "/main.rs") {
            let listed = std::fs::read_to_string(&main).unwrap();
            for entry in std::fs::read_dir(main.parent().unwrap()).unwrap().flatten() {
                let path = entry.path();
                let module = path.file_stem().unwrap().to_string_lossy().into_owned();
                let is_module = path.extension().is_some_and(|ending| ending == "rs")
                    || path.join("mod.rs").is_file();
                if !is_module || module == "main" {
                    continue;
                }
                count += 1;
                assert!(
                    listed.contains(&format!("\nmod {module};")),
                    "{} does not list {module}",
                    main.display()
                );
            }
        }
    }
    assert!(count > 60, "{count} modules");
}

#[test]
fn no_comment_holds_an_example_that_nobody_would_run() {
    let mut count = 0;
    for name in CRATES {
        for path in files(&root().join(name).join("src"), ".rs") {
            count += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let comments = text.lines().map(str::trim_start);
            let comments = comments.filter_map(|line| {
                line.strip_prefix("///")
                    .or_else(|| line.strip_prefix("//!"))
            });
            let fences = comments
                .map(str::trim)
                .filter(|line| line.starts_with("```"));
            for opening in fences.step_by(2) {
                assert_ne!(opening, "```", "{}", path.display());
                assert_ne!(opening, "```rust", "{}", path.display());
            }
        }
    }
    assert!(count > 300, "{count} files");
}
