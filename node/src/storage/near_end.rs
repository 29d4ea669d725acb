//! Owns finding a place in a long ascending list that is mostly asked about its end.
//! Never looks at more than a few items.

/// How many items before the end are looked at.
const NEAR_END_COUNT: usize = 8;

/// How many items `is_below` holds for, given that it holds for the first ones and for none after them;
/// `None` if that does not show near the end, and takes a search through all of them.
pub(super) fn count_near_end<'a, T: 'a>(
    items: impl DoubleEndedIterator<Item = &'a T> + ExactSizeIterator,
    is_below: impl Fn(&T) -> bool,
) -> Option<usize> {
    let count = items.len();
    let near_end = items.rev().take(NEAR_END_COUNT);
    let above = near_end.take_while(|item| !is_below(item)).count();
    (above < NEAR_END_COUNT).then(|| count - above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_near_the_end_is_the_one_that_a_search_finds() {
        for length in [0, 3, 8, 40] {
            let items: Vec<i32> = (0..length).collect();
            for limit in 0..=length {
                let expected = items.partition_point(|item| *item < limit);
                let found = count_near_end(items.iter(), |item| *item < limit);
                let is_near = items.len() - expected < NEAR_END_COUNT;
                assert_eq!(found, is_near.then_some(expected), "{limit} of {length}");
            }
        }
    }
}
