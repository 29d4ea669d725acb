//! Owns the check that no object of a JSON text has a key twice.
//! Never keeps anything of the text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Any JSON in which all keys of an object differ. Of two with the same key, a value keeps the last one, and
/// whoever wrote the first one would never know.
pub(super) struct DistinctKeys;

impl<'de> Deserialize<'de> for DistinctKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = DistinctKeys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DistinctKeys, A::Error> {
        let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Key(key)) = map.next_key()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} is twice in one object"
                )));
            }
            seen.insert(key);
            map.next_value::<DistinctKeys>()?;
        }
        Ok(DistinctKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DistinctKeys, A::Error> {
        while list.next_element::<DistinctKeys>()?.is_some() {}
        Ok(DistinctKeys)
    }

    fn visit_bool<E>(self, _: bool) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }

    fn visit_unit<E>(self) -> Result<DistinctKeys, E> {
        Ok(DistinctKeys)
    }
}

/// A key, borrowed from the text where it has no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_again_is_found_at_every_depth() {
        let check = |text: &str| {
            let looked = serde_json::from_str::<DistinctKeys>(text);
            looked.map(drop).map_err(|error| error.to_string())
        };
        let sound = r#"{"a":{"a":[1,-2,3.5,1e300,true,null,"x\n",{"a":{}}]},"b":{"a":1}}"#;
        assert_eq!(check(sound), Ok(()));
        for (text, key) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"x":[{"b":1,"c":2,"b":3}]}"#, "b"),
            (r#"{"x":{"y":{"q":1,"\u0071":2}}}"#, "q"),
            (r#"{"":1,"":2}"#, ""),
        ] {
            let error = check(text).unwrap_err();
            let words = format!("the key {key:?} is twice");
            assert!(error.contains(&words), "{text}: {error}");
        }
    }
}
