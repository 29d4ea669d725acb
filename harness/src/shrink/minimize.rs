//! Owns delta debugging: the smaller list that still has a property.
//! Never knows what the items are or what the property is.

/// Removes items as long as `still_fails` holds for the rest (ddmin, Zeller & Hildebrandt 2002): first in
/// large chunks, then in smaller ones. The result has the property if `items` has.
pub(super) fn minimize<T: Clone>(
    mut items: Vec<T>,
    mut still_fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    if !items.is_empty() && still_fails(&[]) {
        return Vec::new();
    }
    let mut chunk_count = 2;
    while items.len() > 1 {
        let length = items.len().div_ceil(chunk_count);
        let mut smaller = None;
        for start in (0..items.len()).step_by(length) {
            let mut rest = items.clone();
            rest.drain(start..(start + length).min(items.len()));
            if !rest.is_empty() && still_fails(&rest) {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => {
                items = rest;
                chunk_count = (chunk_count - 1).max(2);
            }
            None if length == 1 => break,
            None => chunk_count = (2 * chunk_count).min(items.len()),
        }
    }
    items
}

/// The smallest number from `low..=high` that `still_fails` holds for, if it holds from some number on;
/// otherwise one that it does hold for. `high` is taken for granted.
pub(super) fn smallest(
    mut low: u64,
    mut high: u64,
    precision: u64,
    mut still_fails: impl FnMut(u64) -> bool,
) -> u64 {
    while low.saturating_add(precision) < high {
        let middle = low + (high - low) / 2;
        if still_fails(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left_wherever_it_is() {
        for needed in [vec![0], vec![99], vec![3, 57], vec![10, 11, 90]] {
            let mut tried = 0;
            let left = minimize((0..100).collect(), |items| {
                tried += 1;
                needed.iter().all(|needed| items.contains(needed))
            });
            assert_eq!(left, needed);
            assert!(tried < 200, "{tried}");
        }
    }

    #[test]
    fn nothing_is_left_of_what_does_not_matter() {
        assert_eq!(minimize(vec![1, 2, 3], |_| true), Vec::<i32>::new());
        assert_eq!(minimize(vec![1, 2, 3], |_| false), [1, 2, 3]);
        assert!(minimize(Vec::<i32>::new(), |_| true).is_empty());
    }

    #[test]
    fn the_smallest_number_is_found_to_the_precision_asked_for() {
        assert_eq!(smallest(0, 1000, 1, |number| number >= 617), 617);
        let near = smallest(0, 1000, 50, |number| number >= 617);
        assert!((617..=667).contains(&near), "{near}");
        assert_eq!(smallest(0, 1000, 1, |_| false), 1000);
    }
}
