//! Owns which numbers a recording can hold: what is read stays so far from the ends of its type that nobody who adds one
//! to it, or takes one position from another, leaves that.
//! Never changes a number: what is out of range is damage.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Largest offset, in either direction: more records than anything writes in a thousand years.
const OFFSET_MAX: i64 = 1 << 60;
/// Largest epoch, in either direction.
const EPOCH_MAX: i32 = 1 << 30;
/// Latest time in nanoseconds, and highest number of a line or an event: a hundred years after the start.
const COUNT_MAX: u64 = 1 << 61;

fn checked_offset<E: Error>(offset: i64) -> Result<i64, E> {
    match offset.unsigned_abs() <= OFFSET_MAX as u64 {
        true => Ok(offset),
        false => Err(E::custom(format!("offset {offset} is out of range"))),
    }
}

fn checked_epoch<E: Error>(epoch: i32) -> Result<i32, E> {
    match epoch.unsigned_abs() <= EPOCH_MAX as u32 {
        true => Ok(epoch),
        false => Err(E::custom(format!("epoch {epoch} is out of range"))),
    }
}

pub(crate) fn offset<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    checked_offset(i64::deserialize(from)?)
}

pub(crate) fn optional_offset<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let offset: Option<i64> = Option::deserialize(from)?;
    offset.map(checked_offset).transpose()
}

pub(crate) fn epoch<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    checked_epoch(i32::deserialize(from)?)
}

pub(crate) fn optional_epoch<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    let epoch: Option<i32> = Option::deserialize(from)?;
    epoch.map(checked_epoch).transpose()
}

pub(crate) fn optional_place<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<(i32, i64)>, D::Error> {
    let place: Option<(i32, i64)> = Option::deserialize(from)?;
    let checked = place.map(|(epoch, offset)| {
        Ok((
            checked_epoch::<D::Error>(epoch)?,
            checked_offset::<D::Error>(offset)?,
        ))
    });
    checked.transpose()
}

/// A batch as base offset, last offset, epoch and checksum.
pub(crate) fn batch<'de, D: Deserializer<'de>>(from: D) -> Result<(i64, i64, i32, u32), D::Error> {
    let (base, last, epoch, crc) = Deserialize::deserialize(from)?;
    Ok((
        checked_offset::<D::Error>(base)?,
        checked_offset::<D::Error>(last)?,
        checked_epoch::<D::Error>(epoch)?,
        crc,
    ))
}

pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(from)?;
    match count <= COUNT_MAX {
        true => Ok(count),
        false => Err(D::Error::custom(format!("{count} is out of range"))),
    }
}

/// What people write as a time or a duration.
struct Milliseconds;

impl Visitor<'_> for Milliseconds {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number of milliseconds that is not negative")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }
}

pub(crate) fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_u64(Milliseconds)
}

pub(crate) fn optional_milliseconds<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    milliseconds(from).map(Some)
}

#[cfg(test)]
mod tests {
    use crate::disk_image::DiskImage;
    use crate::history::Operation;
    use crate::trace::TraceEvent;

    #[test]
    fn numbers_near_the_ends_of_their_types_are_damage() {
        let event = |members: &str| {
            let text = format!(r#"{{"node":"n1","incarnation":1,{members}}}"#);
            serde_json::from_str::<TraceEvent>(&text).map_err(|error| error.to_string())
        };
        let fine = r#""time":5,"seq":1,"epoch":1,"event":"flush","log_end":7"#;
        assert!(event(fine).is_ok());
        for (from, to, part) in [
            (
                r#""log_end":7"#,
                r#""log_end":9223372036854775807"#,
                "offset 9223372036854775807",
            ),
            (
                r#""log_end":7"#,
                r#""log_end":-9223372036854775808"#,
                "out of range",
            ),
            (r#""epoch":1"#, r#""epoch":2147483647"#, "epoch 2147483647"),
            (
                r#""time":5"#,
                r#""time":18446744073709551615"#,
                "out of range",
            ),
            (
                r#""seq":1"#,
                r#""seq":18446744073709551615"#,
                "out of range",
            ),
        ] {
            let said = event(&fine.replace(from, to)).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        let image = r#"{"log_start":0,"batches":[[0,9223372036854775807,1,0]]}"#;
        let said = serde_json::from_str::<DiskImage>(image).unwrap_err();
        assert!(said.to_string().contains("out of range"), "{said}");
        let operation =
            r#"{"index":18446744073709551615,"time":0,"process":1,"type":"ok","f":"read"}"#;
        assert!(serde_json::from_str::<Operation>(operation).is_err());
    }
}
