//! Owns the table of what faults hit: a row for what they did, a column for every role and phase.
//! Never knows which faults, roles and phases there are; it shows those that the checker names.

use results::verdict::Verdict;
use serde_json::Value;

use crate::linked::Linked;
use crate::text::{self, printable};

/// The table, with what was left out of it.
#[derive(Debug)]
pub(crate) struct CoverageTable {
    /// In a sentence.
    pub(crate) summary: String,
    /// Roles, each with how many columns it has.
    pub(crate) roles: Vec<(String, usize)>,
    /// Phases, one for every column.
    pub(crate) phases: Vec<String>,
    pub(crate) rows: Vec<CoverageRow>,
}

/// What one kind of fault hit.
#[derive(Debug)]
pub(crate) struct CoverageRow {
    pub(crate) fault: String,
    pub(crate) cells: Vec<CoverageCell>,
}

/// One cell.
#[derive(Debug)]
pub(crate) struct CoverageCell {
    /// Class of the style sheet.
    pub(crate) class: &'static str,
    /// How often it was hit, which leads to the faults that did; empty where that could not be.
    pub(crate) count: Linked,
    /// The name of the cell.
    pub(crate) name: String,
}

/// The table of a verdict; `None` where it tells of none.
pub(crate) fn of_verdict(verdict: Option<&Verdict>) -> Option<CoverageTable> {
    let result = verdict?.checkers.get("coverage")?;
    let hits = &result.evidence["faults"];
    let linked = |cell: &str, count: String| {
        Linked::faults(count, &numbers(&hits[cell])).titled(printable(cell))
    };
    table(&result.summary, &result.evidence["table"], linked)
}

/// The numbers of a list, in its order.
pub(crate) fn numbers(list: &Value) -> Vec<u64> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_u64).collect()
}

/// A table, with what is said of it in a sentence; `None` where it is empty. `linked` says for the name of a cell
/// where its count leads.
pub(crate) fn table(
    summary: &str,
    told: &Value,
    linked: impl Fn(&str, String) -> Linked,
) -> Option<CoverageTable> {
    let columns: Vec<(&str, &str)> = told["columns"]
        .as_array()?
        .iter()
        .filter_map(|column| Some((column.get(0)?.as_str()?, column.get(1)?.as_str()?)))
        .collect();
    let rows: Vec<CoverageRow> = told["rows"]
        .as_array()?
        .iter()
        .map(|told| row(told, &columns, &linked))
        .collect();
    if columns.is_empty() || rows.is_empty() {
        return None;
    }
    let mut roles: Vec<(String, usize)> = Vec::new();
    for (role, _) in &columns {
        let role = words(role);
        match roles.last_mut() {
            Some((last, count)) if *last == role => *count += 1,
            _ => roles.push((role, 1)),
        }
    }
    Some(CoverageTable {
        summary: printable(summary),
        roles,
        phases: columns.iter().map(|(_, phase)| words(phase)).collect(),
        rows,
    })
}

fn row(
    told: &Value,
    columns: &[(&str, &str)],
    linked: &impl Fn(&str, String) -> Linked,
) -> CoverageRow {
    let fault = told["fault"].as_str().unwrap_or("?");
    let cells = columns.iter().enumerate().map(|(at, (role, phase))| {
        let name = format!("{role}-{fault}-{phase}");
        let (class, count) = match told["counts"][at].as_u64() {
            None => ("beyond", Linked::default()),
            Some(0) => ("never", "0".into()),
            Some(count) => ("hit", linked(&name, text::count(count))),
        };
        CoverageCell {
            class,
            count,
            name: printable(&name),
        }
    });
    CoverageRow {
        fault: words(fault),
        cells: cells.collect(),
    }
}

fn words(name: &str) -> String {
    printable(&text::shortened(name, 60).replace('-', " "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(table: Value) -> Verdict {
        serde_json::from_value(json!({
            "valid": true, "checkers": {"coverage": {
                "valid": true, "summary": "2 of 3 cells", "evidence": {
                    "table": table, "faults": {"leader-killed-while-steady": [3, 8]}}
            }}
        }))
        .unwrap()
    }

    #[test]
    fn roles_span_their_phases_and_every_cell_has_its_name() {
        let told = verdict(json!({
            "columns": [["leader", "while-steady"], ["leader", "during-election"], ["follower", "while-steady"]],
            "rows": [{"fault": "killed", "counts": [1200, 0, null]}]
        }));
        let table = of_verdict(Some(&told)).unwrap();
        assert_eq!(
            table.roles,
            [("leader".to_owned(), 2), ("follower".to_owned(), 1)]
        );
        assert_eq!(
            table.phases,
            ["while steady", "during election", "while steady"]
        );
        let cells: Vec<_> = table.rows[0]
            .cells
            .iter()
            .map(|cell| (cell.class, cell.count.text.as_str()))
            .collect();
        assert_eq!(
            cells,
            [("hit", "1\u{202f}200"), ("never", "0"), ("beyond", "")]
        );
        assert_eq!(table.rows[0].cells[1].name, "leader-killed-during-election");
        let hits = Linked::faults("1\u{202f}200", &[3, 8]).titled("leader-killed-while-steady");
        assert_eq!(table.rows[0].cells[0].count, hits);
    }

    #[test]
    fn what_is_not_a_table_is_not_shown() {
        assert!(of_verdict(None).is_none());
        for odd in [
            json!(null),
            json!({"columns": [], "rows": []}),
            json!({"columns": [1], "rows": 7}),
        ] {
            assert!(of_verdict(Some(&verdict(odd))).is_none());
        }
        let short = json!({"columns": [["leader", "while-steady"]], "rows": [{"fault": 3}]});
        let shown = of_verdict(Some(&verdict(short))).unwrap();
        assert_eq!(shown.rows[0].cells[0].class, "beyond");
    }
}
