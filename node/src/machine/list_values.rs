//! Owns the values of a list, in chunks that copies of the list share.
//! Never changes a full chunk: what is shared stays as it is.

use std::mem;
use std::sync::Arc;

use imbl::Vector;
use serde_json::Value;

/// Enough to make what a chunk costs small for each value; few enough to be copied quickly.
const CHUNK_COUNT: usize = 32;

/// A sequence that grows and shrinks at its end. Copying it copies less than a chunk of values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ListValues {
    /// Of `CHUNK_COUNT` values each.
    full: Vector<Arc<[Value]>>,
    /// Less than `CHUNK_COUNT` values.
    rest: Vec<Value>,
}

impl ListValues {
    pub(super) fn len(&self) -> usize {
        self.full.len() * CHUNK_COUNT + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, value: Value) {
        self.rest.push(value);
        if self.rest.len() == CHUNK_COUNT {
            let rest = mem::replace(&mut self.rest, Vec::with_capacity(CHUNK_COUNT));
            self.full.push_back(rest.into());
        }
    }

    pub(super) fn pop(&mut self) -> Option<Value> {
        if self.rest.is_empty()
            && let Some(last) = self.full.pop_back()
        {
            self.rest = last.to_vec();
        }
        self.rest.pop()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Value> {
        match self.full.get(index / CHUNK_COUNT) {
            Some(chunk) => chunk.get(index % CHUNK_COUNT),
            None => self.rest.get(index - self.full.len() * CHUNK_COUNT),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Value> {
        self.full
            .iter()
            .flat_map(|chunk| chunk.iter())
            .chain(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_a_vector_would_be_and_copies_stay_as_they_were(
            steps in proptest::collection::vec(0..5_u8, 0..200), copied_after in 0..200_usize
        ) {
            let (mut values, mut model) = (ListValues::default(), Vec::new());
            let mut copied = (values.clone(), model.clone());
            for (at, step) in steps.into_iter().enumerate() {
                if step == 0 {
                    prop_assert_eq!(values.pop(), model.pop());
                } else {
                    values.push(Value::from(at));
                    model.push(Value::from(at));
                }
                if at == copied_after {
                    copied = (values.clone(), model.clone());
                }
            }
            for (values, model) in [(values, model), copied] {
                prop_assert_eq!(values.len(), model.len());
                prop_assert_eq!(values.is_empty(), model.is_empty());
                prop_assert_eq!(values.iter().collect::<Vec<_>>(), model.iter().collect::<Vec<_>>());
                for index in 0..model.len() + 40 {
                    prop_assert_eq!(values.get(index), model.get(index));
                }
                let mut again = ListValues::default();
                model.into_iter().for_each(|value| again.push(value));
                prop_assert_eq!(values, again);
            }
        }
    }
}
