//! Named values of the state. The differences between two readings are a call's changes.

use ic_coppice_interface::text::hex;
use ic_coppice_storage::cbor::{self, Value};
use serde::{Deserialize, Serialize};

/// Names with values.
pub type Fields = Vec<(String, String)>;

/// Makes a field.
pub fn field(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// Fields of values with fixed names.
pub fn named(values: Vec<(&'static str, String)>) -> Fields {
    values.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// The fields of a structure; fields of nested structures are named `outer.inner`.
pub fn fields(of: &impl Serialize) -> Fields {
    let mut all = Fields::new();
    match cbor::value_of(of) {
        Ok(value) => flatten(String::new(), &value, &mut all),
        Err(why) => all.push(("unreadable".into(), why)),
    }
    all
}

fn flatten(name: String, value: &Value, all: &mut Fields) {
    let Value::Map(fields) = value else {
        return all.push((if name.is_empty() { "value".into() } else { name }, shown(value)));
    };
    for (key, value) in fields {
        let inner = if name.is_empty() { shown(key) } else { format!("{name}.{}", shown(key)) };
        flatten(inner, value, all);
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(is) => is.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        // Integers above 64 bits.
        Value::Tag(2, bytes) => match &**bytes {
            Value::Bytes(bytes) if bytes.len() <= 16 => {
                bytes.iter().fold(0u128, |number, &byte| number << 8 | u128::from(byte)).to_string()
            }
            other => format!("{other:?}"),
        },
        Value::Bytes(bytes) => hex(bytes),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

/// A field that a call changed. `before` is `None` for a new field, `after` for a removed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The field's name.
    pub name: String,
    /// The value before.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

/// The fields that differ, in the order of the readings.
pub fn changes(before: Fields, mut after: Fields) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, before) in before {
        let now = after.iter().position(|(other, _)| *other == name).map(|at| after.remove(at).1);
        if now.as_ref() != Some(&before) {
            changes.push(Change { name, before: Some(before), after: now });
        }
    }
    changes.extend(after.into_iter().map(|(name, after)| Change { name, before: None, after: Some(after) }));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::{Config, PrunePolicy, UtxoSettings};

    fn change(name: &str, before: Option<&str>, after: Option<&str>) -> Change {
        Change { name: name.into(), before: before.map(Into::into), after: after.map(Into::into) }
    }

    #[test]
    fn changes_are_the_fields_that_differ() {
        let config = Config { utxo: Some(UtxoSettings::default()), ..Config::default() };
        let mut changed = config.clone();
        changed.min_liquid_cycles = u128::MAX;
        changed.open_queries = true;
        changed.utxo.as_mut().unwrap().block_height_retention = 7;
        let expected = [
            change("min_liquid_cycles", Some("400000000000"), Some(&u128::MAX.to_string())),
            change("open_queries", Some("false"), Some("true")),
            change("utxo.block_height_retention", Some("288"), Some("7")),
        ];
        assert_eq!(changes(fields(&config), fields(&changed)), expected);
        assert_eq!(changes(fields(&config), fields(&config)), []);
        // A structure that is new, and one that is removed.
        let policy = PrunePolicy::default();
        let first = changes(fields(&None::<PrunePolicy>), fields(&Some(policy.clone())));
        assert_eq!(first[..2], [change("value", Some("none"), None), change("pruning_enabled", None, Some("true"))]);
        let last = changes(fields(&Some(policy)), fields(&None::<PrunePolicy>));
        assert_eq!(last[0], change("pruning_enabled", Some("true"), None));
        assert_eq!(last.last(), Some(&change("value", None, Some("none"))));
    }
}
