//! Owns the hash that states of nodes are compared by: small, stable, the same on every machine.
//! Never withstands an attacker; it tells apart what differs by mistake.

use std::io;

use serde::Serialize;

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a with 64 bits over what is written to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn new() -> Self {
        Self(OFFSET_BASIS)
    }

    /// Adds bytes, with their length: `ab` and `c` differ from `a` and `bc`.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.update(bytes);
        self.number(bytes.len() as u64)
    }

    pub(super) fn number(mut self, number: u64) -> Self {
        self.update(&number.to_be_bytes());
        self
    }

    /// Adds something as its JSON text, which ends where it ends: no length is needed.
    pub(super) fn json(mut self, value: &impl Serialize) -> Self {
        serde_json::to_writer(&mut self, value).expect("hashing cannot fail, and JSON has a text");
        self.number(0)
    }

    pub(super) fn finish(self) -> u64 {
        mix(self.0)
    }

    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Spreads every bit over all others (the finalizer of MurmurHash3), so that sums of hashes, which
/// stand for collections without order, do not cancel out.
pub(super) fn mix(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of FNV-1a, 64 bits.
        let raw = |text: &str| {
            let mut digest = Digest::new();
            digest.update(text.as_bytes());
            digest.0
        };
        assert_eq!(raw(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(raw("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(raw("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn borders_between_parts_count() {
        let parts = |left: &[u8], right: &[u8]| Digest::new().bytes(left).bytes(right).finish();
        assert_ne!(parts(b"ab", b"c"), parts(b"a", b"bc"));
        let values = |left, right| Digest::new().json(&left).json(&right).finish();
        assert_ne!(values(json!(1), json!(12)), values(json!(11), json!(2)));
        assert_ne!(values(json!("1"), json!(1)), values(json!(1), json!("1")));
    }
}
