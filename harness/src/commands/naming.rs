//! Owns names of runs, and what is said to people about names that do not exist.
//! Never looks anything up.

use nemesis::tuning::family_name;

use crate::exit::Failure;

/// Most families that the name of a run names.
const FAMILIES_NAMED: usize = 4;
/// Longest beginning of a run's name.
const LABEL_LENGTH_MAX: usize = 60;

/// The end of a refusal: the known word that was probably meant, if one is near.
pub(super) fn did_you_mean(word: &str, known: &[&str]) -> String {
    nemesis::names::nearest(word, known)
        .map(|name| format!("; did you mean {name:?}?"))
        .unwrap_or_default()
}

/// What runs with these families of faults are called, each family with how it comes.
pub(super) fn of_families(words: &[String]) -> String {
    let names = words.iter().map(|word| family_name(word));
    match names.collect::<Vec<_>>().as_slice() {
        [] => "none".to_owned(),
        // Long names of folders are no help to anybody.
        names if names.len() > FAMILIES_NAMED => format!("{}-kinds", names.len()),
        names => names.join("+"),
    }
}

/// Refuses a beginning of a run's name that cannot be one: names of runs become names of folders and parts
/// of addresses.
///
/// # Errors
/// When it cannot be one.
pub(super) fn check_label(name: &str) -> Result<(), Failure> {
    if fits_a_folder(name, LABEL_LENGTH_MAX) {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "--name {name:?}: use up to {LABEL_LENGTH_MAX} letters, digits, and - _ . + between them"
    )))
}

/// Whether a name can be a folder in the store, a part of an address and a word of a command.
fn fits_a_folder(name: &str, length_max: usize) -> bool {
    !name.is_empty()
        && name.len() <= length_max
        && !name.starts_with(['.', '-'])
        && name.chars().all(fits)
}

fn fits(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.+".contains(letter)
}

/// The nearest beginning of a run's name: a folder may have been called anything since it was written.
pub(super) fn fitting(name: &str) -> String {
    let letters = name.chars().map(|letter| match fits(letter) {
        true => letter,
        false => '-',
    });
    let letters = letters.skip_while(|letter| ['.', '-'].contains(letter));
    let fitting: String = letters.take(LABEL_LENGTH_MAX).collect();
    match fitting.is_empty() {
        true => "run".to_owned(),
        false => fitting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_one_that_fits() {
        let long = "x".repeat(300);
        let names = ["my run (1)", "../../etc", "-x", "", "é", &long, "a+b_c.d-e"];
        for name in names {
            assert!(check_label(&fitting(name)).is_ok(), "{name}");
        }
        assert_eq!(fitting("my run (1)"), "my-run--1-");
        assert_eq!(fitting("a+b_c.d-e"), "a+b_c.d-e");
    }
}
