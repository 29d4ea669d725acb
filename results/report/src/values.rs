//! Owns how the values of operations are told: what was asked for, or what was answered.
//! Never tells all of a long one; the whole ones are in `history.jsonl`.

use serde_json::Value;

use crate::text;

/// Values are told in as many characters at most.
const VALUE_LENGTH_MAX: usize = 80;
/// Transactions have several steps, and a value in each.
const TRANSACTION_LENGTH_MAX: usize = 160;
/// Of a list that is too long, as many elements are told from its beginning, and from its end.
const ENDS: (usize, usize) = (2, 6);

/// A value in one line; empty for none, which is what calls without argument have.
pub(crate) fn told(value: &Value) -> String {
    if let Some(steps) = steps(value) {
        return text::shortened(&steps.join(", "), TRANSACTION_LENGTH_MAX);
    }
    match value {
        Value::Null => String::new(),
        Value::String(text) => text::shortened(&one_line(text), VALUE_LENGTH_MAX),
        Value::Array(elements) => text::shortened(&list(elements), VALUE_LENGTH_MAX),
        other => text::shortened(&one_line(&other.to_string()), VALUE_LENGTH_MAX),
    }
}

/// The steps of a transaction: `append 8=3377, read 9=[1,2]`; `None` for what is no transaction. The script of the
/// page finds a key by the blank before it and the sign behind it.
fn steps(value: &Value) -> Option<Vec<String>> {
    let steps = value.as_array().filter(|steps| !steps.is_empty())?;
    let told = steps.iter().map(|step| match step.as_array()?.as_slice() {
        [verb, key, value] => {
            let verb = match verb.as_str()? {
                "r" => "read",
                "append" => "append",
                _ => return None,
            };
            let key = one_line(&plain(key));
            Some(match value {
                Value::Null => format!("{verb} {key}="),
                Value::Array(elements) => format!("{verb} {key}={}", list(elements)),
                value => format!("{verb} {key}={}", one_line(&plain(value))),
            })
        }
        _ => None,
    });
    told.collect()
}

/// What was read last stands at the end of a list, so its end is told rather than its middle.
fn list(elements: &[Value]) -> String {
    let (first, last) = ENDS;
    let told = |elements: &[Value]| {
        let told: Vec<String> = elements.iter().map(Value::to_string).collect();
        one_line(&told.join(","))
    };
    let whole = told(elements);
    if elements.len() <= first + last || whole.len() < VALUE_LENGTH_MAX / 2 {
        return format!("[{whole}]");
    }
    let (beginning, end) = (&elements[..first], &elements[elements.len() - last..]);
    format!("[{},…,{}]", told(beginning), told(end))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn one_line(text: &str) -> String {
    text::printable(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_told_in_one_line() {
        assert_eq!(told(&Value::Null), "");
        assert_eq!(told(&json!(7)), "7");
        assert_eq!(told(&json!([1, 2])), "[1,2]");
        assert_eq!(told(&json!("a\nb")), "a b");
    }

    #[test]
    fn a_long_list_is_told_by_its_ends() {
        let elements: Vec<u64> = (1000..1050).collect();
        let expected = "[1000,1001,…,1044,1045,1046,1047,1048,1049]";
        assert_eq!(told(&json!(elements)), expected);
    }

    #[test]
    fn a_transaction_is_told_step_by_step() {
        let steps = json!([["append", "8", 3377], ["r", "9", null], ["r", 5, [1, 2]]]);
        assert_eq!(told(&steps), "append 8=3377, read 9=, read 5=[1,2]");
        let other = json!([["w", "8", 3377]]);
        assert_eq!(told(&other), r#"[["w","8",3377]]"#);
        assert_eq!(told(&json!([])), "[]");
    }
}
