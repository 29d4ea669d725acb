//! Owns text that is kept once, however many events and lines name it: names of nodes, keys.
//! Never changes once it is made.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text whose clones are all the same one. Comparing two of them looks at the text only where they are
/// not.
#[derive(Clone)]
pub struct SharedText(Text);

#[derive(Clone)]
enum Text {
    /// A place in [`USUAL`]: said by almost every event, so that counting who shares it would be a good part of the
    /// work.
    Usual(u8),
    Other(Arc<str>),
}

/// What the nodes of most clusters are called.
const USUAL: [&str; 9] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];

fn usual(text: &str) -> Option<Text> {
    match text.as_bytes() {
        [b'n', digit @ b'1'..=b'9'] => Some(Text::Usual(digit - b'1')),
        _ => None,
    }
}

/// Whether two texts are equal. Told without reading them if they are the same.
pub fn same(left: &str, right: &str) -> bool {
    std::ptr::eq(left, right) || left == right
}

/// Where a text stands among a few. The same text is found without reading any.
pub fn position<'a>(
    mut known: impl Iterator<Item = &'a SharedText> + Clone,
    text: &str,
) -> Option<usize> {
    let mut all = known.clone();
    all.position(|known| std::ptr::eq(known.as_str(), text))
        .or_else(|| known.position(|known| known == text))
}

impl SharedText {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Usual(place) => USUAL[usize::from(*place)],
            Text::Other(text) => text,
        }
    }
}

impl PartialOrd for SharedText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedText {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Eq for SharedText {}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        same(self, other)
    }
}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        same(self, other)
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        same(self, other)
    }
}

impl PartialEq<String> for SharedText {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<SharedText> for String {
    fn eq(&self, other: &SharedText) -> bool {
        self == other.as_str()
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for SharedText {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self(usual(text).unwrap_or_else(|| Text::Other(text.into())))
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for SharedText {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_that_of_the_texts_whether_they_are_shared_or_not() {
        let name = SharedText::from("n1");
        assert_eq!(name, name.clone());
        assert_eq!(name, SharedText::from(String::from("n1")));
        assert_ne!(name, SharedText::from("n2"));
        assert!(name == "n1" && *name == *"n1");
        let text = "n1n1n";
        assert!(same(&text[..2], &text[2..4]) && !same(&text[..2], &text[..3]));
        assert!(!same(&text[..2], &text[1..3]));
    }

    #[test]
    fn usual_names_are_all_one_and_stand_in_order_among_others() {
        for (name, number) in USUAL.into_iter().zip(1..) {
            let made = SharedText::from(format!("n{number}"));
            assert!(made == name && std::ptr::eq(made.as_str(), SharedText::from(name).as_str()));
        }
        assert_eq!(
            size_of::<SharedText>(),
            size_of::<&str>(),
            "histories are long"
        );
        for other in ["n0", "n", "n12", "m1", ""] {
            assert_eq!(SharedText::from(other).as_str(), other);
        }
        let mut names = ["n2", "n10", "", "n1", "m"].map(SharedText::from);
        names.sort();
        assert_eq!(names, ["", "m", "n1", "n10", "n2"].map(SharedText::from));
    }

    #[test]
    fn a_text_is_found_among_others_whether_it_is_shared_or_not() {
        let known = ["n1", "n2", "n3"].map(SharedText::from);
        assert_eq!(position(known.iter(), &known[1]), Some(1));
        assert_eq!(position(known.iter(), "n3"), Some(2));
        assert_eq!(position(known.iter(), "n4"), None);
    }

    #[test]
    fn it_is_written_and_read_as_text() {
        let written = serde_json::to_string(&SharedText::from("a\"b")).unwrap();
        assert_eq!(written, r#""a\"b""#);
        let read: SharedText = serde_json::from_str(&written).unwrap();
        assert_eq!(read, "a\"b");
        assert_eq!(format!("{read} {read:?}"), r#"a"b "a\"b""#);
    }
}
