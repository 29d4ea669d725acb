//! Owns tables on a terminal: aligned columns of plain text.
//! Never decides what is in them.

/// The rows as lines, with columns that begin at one place, two spaces apart.
pub(super) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_at_one_place_and_lines_end_with_their_last_word() {
        let rows = [["a", "b", "c"], ["für", "", "long"], ["x", "yy", ""]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "a    b   c\nfür      long\nx    yy");
        assert_eq!(aligned::<2>(&[]), "");
    }
}
