//! Owns how many bytes tables occupy, approximately.
//! Never looks into what is in them.

/// What an allocation costs besides what was asked for.
pub(super) const ALLOCATION_BYTES: usize = 16;

/// Bytes of a hash table with room for `capacity` entries of `entry_bytes`: an eighth of its places stays free, and
/// every place has a byte to tell what is in it.
pub(super) fn table_bytes(capacity: usize, entry_bytes: usize) -> u64 {
    (capacity.div_ceil(7) * 8 * (entry_bytes + 1)) as u64
}
