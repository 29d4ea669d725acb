//! Owns the guess at what a mistyped name was meant to be.
//! Never accepts a guess in place of the name.

/// The name in `known` that `word` was probably meant to be, if any is close enough to be worth saying.
///
/// A name that `word` abbreviates or extends counts as close; otherwise at most a third of the letters,
/// and one more, may differ (Levenshtein distance). Ties go to the earlier name.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.trim().to_lowercase();
    if word.is_empty() {
        return None;
    }
    let extended = known
        .iter()
        .find(|name| name.starts_with(&word) || word.starts_with(**name));
    if let Some(name) = extended {
        return Some(name);
    }
    known
        .iter()
        .map(|name| (edit_distance(&word, name), *name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `; did you mean "..."?` or nothing: the tail of an error message.
pub(crate) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshtein() {
        assert_eq!(edit_distance("", ""), 0);
        assert_eq!(edit_distance("kill", ""), 4);
        assert_eq!(edit_distance("", "kill"), 4);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("pause", "pause"), 0);
    }

    #[test]
    fn a_slip_is_recognised_and_nonsense_is_not() {
        let known = ["partition-random", "kill", "pause", "clock-skew"];
        assert_eq!(nearest("kil", &known), Some("kill"));
        assert_eq!(nearest("puase", &known), Some("pause"));
        assert_eq!(nearest("partition", &known), Some("partition-random"));
        assert_eq!(nearest("clock_skew", &known), Some("clock-skew"));
        assert_eq!(nearest("Kill", &known), Some("kill"));
        assert_eq!(nearest("earthquake", &known), None);
        assert_eq!(nearest("", &known), None);
    }
}
