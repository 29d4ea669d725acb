//! Owns a map for a few things whose keys mostly ascend: requests by number, calls by id.
//! Never gives its room back while it is used: what comes and goes all the time asks for no memory.

/// Values by key, ascending. The same as a `BTreeMap`, which asks for a node and gives it back again whenever a
/// single entry comes and goes; of many entries, taking out the first ones would be dear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedList<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for OrderedList<K, V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<K: Ord, V> OrderedList<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        match self.entries.last() {
            None => Err(0),
            Some((last, _)) if last < key => Err(self.entries.len()),
            Some((last, _)) if last == key => Ok(self.entries.len() - 1),
            Some(_) => self.entries.binary_search_by(|(known, _)| known.cmp(key)),
        }
    }

    /// Puts a value under a key; returns the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// Takes out the value under a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).ok()?;
        Some(self.entries.remove(at).1)
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Everything, by ascending key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// All values, by ascending key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// All values, by ascending key.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_does_what_a_map_does() {
        let mut list = OrderedList::default();
        let mut map = BTreeMap::new();
        // Keys ascend, with some that come late, come twice, or are not there when they are taken out.
        for step in 0_u64..500 {
            let key = if step % 7 == 0 { step / 2 } else { step };
            assert_eq!(list.insert(key, step), map.insert(key, step));
            let gone = (step * 31) % (step + 1);
            assert_eq!(list.remove(&gone), map.remove(&gone));
            assert!(list.iter().eq(map.iter()) && list.values().eq(map.values()));
        }
        assert!(map.len() > 20);
        assert!(list.clone().into_values().eq(map.into_values()));
        list.clear();
        assert_eq!(list, OrderedList::default());
    }
}
