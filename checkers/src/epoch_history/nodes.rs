//! Owns finding the model of a node by its name, and that of the node that speaks at once.
//! Never knows what a model holds.

use results::shared_text::{SharedText, position};

/// A few things with names. Every event is about one of them, and is asked for it often: the one that was
/// found last is found again without a search.
#[derive(Debug)]
pub(crate) struct Nodes<T> {
    all: Vec<(SharedText, T)>,
    speaking: usize,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            speaking: 0,
        }
    }
}

impl<T> Nodes<T> {
    fn position(&self, name: &str) -> Option<usize> {
        match self.all.get(self.speaking) {
            Some((known, _)) if std::ptr::eq(known.as_str(), name) => Some(self.speaking),
            _ => position(self.all.iter().map(|(known, _)| known), name),
        }
    }

    /// The one with this name, which is likely to be asked for again. Made by `new` if it is not there.
    pub(crate) fn enter(&mut self, name: &SharedText, new: impl FnOnce() -> T) -> &mut T {
        self.speaking = self.position(name).unwrap_or_else(|| {
            self.all.push((name.clone(), new()));
            self.all.len() - 1
        });
        &mut self.all[self.speaking].1
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.position(name).map(|position| &self.all[position].1)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.position(name)
            .map(|position| &mut self.all[position].1)
    }

    /// All of them, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.all.iter().map(|(name, node)| (name.as_str(), node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_whoever_spoke_last() {
        let mut nodes = Nodes::default();
        let [first, second] = ["n1", "n2"].map(SharedText::from);
        *nodes.enter(&first, || 1) += 10;
        *nodes.enter(&second, || 2) += 10;
        *nodes.enter(&"n1".into(), || 1) += 10;
        assert_eq!((nodes.get("n1"), nodes.get("n2")), (Some(&21), Some(&12)));
        assert_eq!(nodes.get_mut("n3"), None);
        assert_eq!(nodes.iter().count(), 2);
    }
}
