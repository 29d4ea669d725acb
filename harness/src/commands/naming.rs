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
pub(super) fn fits_a_folder(name: &str, length_max: usize) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
    !name.is_empty()
        && name.len() <= length_max
        && !name.starts_with(['.', '-'])
        && name.chars().all(fits)
}
