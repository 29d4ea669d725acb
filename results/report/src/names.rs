//! Owns texts that many operations share: each is kept once and called by a number.
//! Never forgets or renumbers one.

use std::collections::HashMap;

/// Texts in order of first use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    list: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of `name`; it gets the next one when it is new.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// All in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(String::as_str)
    }
}

/// Many short texts, one after the other: a million of them need no million allocations.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    all: String,
}

/// The place of a text in [`Texts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    from: usize,
    to: usize,
}

impl Texts {
    /// Keeps `text`.
    pub(crate) fn add(&mut self, text: &str) -> Stretch {
        let from = self.all.len();
        self.all.push_str(text);
        Stretch {
            from,
            to: self.all.len(),
        }
    }

    /// The text at `stretch`; empty when it is from elsewhere.
    pub(crate) fn get(&self, stretch: Stretch) -> &str {
        self.all.get(stretch.from..stretch.to).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_a_text_its_place() {
        let mut names = Names::default();
        assert_eq!(["b", "a", "b"].map(|name| names.number(name)), [0, 1, 0]);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "a"]);
        let mut texts = Texts::default();
        let (first, second) = (texts.add("one"), texts.add("é"));
        assert_eq!((texts.get(first), texts.get(second)), ("one", "é"));
        assert_eq!(texts.get(Stretch { from: 4, to: 99 }), "");
    }
}
