//! Owns the words of schedules: each closed list of choices, and how a choice is written.
//! Never guesses; a word that is not in the list is an error that names the list.

use super::FaultError;
use crate::names::nearest;

/// A choice among few, written as one word.
pub trait Word: Copy + PartialEq + Sized + 'static {
    /// What the word names, for error messages.
    const WHAT: &'static str;
    /// Every choice with its word.
    const WORDS: &'static [(Self, &'static str)];

    /// The word in schedules and records.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(choice, _)| *choice == self);
        found.map_or("", |(_, word)| word)
    }

    /// The choice that a word stands for.
    fn from_word(word: &str) -> Result<Self, FaultError> {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        let known = || Self::WORDS.iter().map(|(_, known)| *known).collect();
        found.map_or_else(
            || Err(unknown_word(Self::WHAT, word, known())),
            |(choice, _)| Ok(*choice),
        )
    }
}

/// The error for a word that is not in `known`.
pub(crate) fn unknown_word(what: &'static str, word: &str, known: Vec<&'static str>) -> FaultError {
    FaultError::UnknownWord {
        what,
        word: word.to_owned(),
        nearest: nearest(word, &known),
        known,
    }
}

/// Writes a [`Word`] as itself in records.
macro_rules! word_in_records {
    ($($type:ty),* $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::fault::words::Word::word(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                $crate::fault::words::Word::from_word(&word).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use word_in_records;
