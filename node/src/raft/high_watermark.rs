//! Owns the rule by which a leader's high watermark moves (KIP-595; KAFKA-12619).
//! Never counts a record that is not durable: callers hand in durable end offsets only.

use crate::ids::Offset;

/// Whether records of earlier epochs may be counted on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EpochStartRule {
    /// A majority must hold the leader's first own record. Without this, records that a majority
    /// has may still be overwritten by a later leader (Raft paper, 5.4.2 and Figure 8).
    Required,
    /// The seeded bug B05: a majority must hold everything before that record.
    OffByOne,
    /// The seeded bug B06.
    Ignored,
}

/// The new high watermark, if it moves.
///
/// `durable_ends` has one entry per voter, `None` where the leader does not know it yet. The leader is
/// among them only if it is a voter (KAFKA-16530).
pub(crate) fn advance(
    mut durable_ends: Vec<Option<Offset>>,
    voter_count: usize,
    epoch_start: Offset,
    known: Option<Offset>,
    rule: EpochStartRule,
) -> Option<Offset> {
    // `None` sorts below every offset, hence last once descending.
    durable_ends.sort_unstable_by(|left, right| right.cmp(left));
    let candidate = (*durable_ends.get(voter_count / 2)?)?;
    let allowed = match rule {
        EpochStartRule::Required => candidate > epoch_start,
        EpochStartRule::OffByOne => candidate >= epoch_start,
        EpochStartRule::Ignored => true,
    };
    if !allowed {
        return None;
    }
    (known.is_none_or(|known| candidate > known)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(ends: &[i64], epoch_start: i64, known: Option<i64>) -> Option<i64> {
        moved_by(ends, epoch_start, known, EpochStartRule::Required)
    }

    /// Negative numbers stand for unknown ends.
    fn moved_by(
        ends: &[i64],
        epoch_start: i64,
        known: Option<i64>,
        rule: EpochStartRule,
    ) -> Option<i64> {
        let ends: Vec<_> = ends
            .iter()
            .map(|&end| (end >= 0).then_some(Offset(end)))
            .collect();
        let (voter_count, known) = (ends.len(), known.map(Offset));
        advance(ends, voter_count, Offset(epoch_start), known, rule).map(|offset| offset.0)
    }

    #[test]
    fn it_is_what_a_majority_holds() {
        assert_eq!(moved(&[9], 0, None), Some(9));
        assert_eq!(moved(&[9, 5], 0, None), Some(5));
        assert_eq!(moved(&[9, 5, 3], 0, None), Some(5));
        assert_eq!(moved(&[3, 9, 5], 0, None), Some(5));
        assert_eq!(moved(&[9, 8, 5, 3], 0, None), Some(5));
        assert_eq!(moved(&[9, 8, 7, 5, 3], 0, None), Some(7));
    }

    #[test]
    fn unknown_ends_count_as_nothing() {
        assert_eq!(moved(&[9, -1, -1], 0, None), None);
        assert_eq!(moved(&[9, -1, 4], 0, None), Some(4));
        assert_eq!(moved(&[9, -1], 0, None), None);
        assert_eq!(moved(&[], 0, None), None);
    }

    #[test]
    fn the_leaders_own_first_record_must_be_on_a_majority() {
        assert_eq!(moved(&[9, 5, 3], 5, None), None);
        assert_eq!(moved(&[9, 6, 3], 5, None), Some(6));
        assert_eq!(
            moved_by(&[9, 5, 3], 5, None, EpochStartRule::Ignored),
            Some(5)
        );
        assert_eq!(
            moved_by(&[9, 2, 2], 5, None, EpochStartRule::Ignored),
            Some(2)
        );
    }

    #[test]
    fn it_never_goes_back() {
        assert_eq!(moved(&[9, 6, 3], 2, Some(6)), None);
        assert_eq!(moved(&[9, 6, 3], 2, Some(7)), None);
        assert_eq!(moved(&[9, 8, 3], 2, Some(7)), Some(8));
    }
}
