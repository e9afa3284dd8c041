//! What a change is about, as names and values, of which the differences are noted.

use ciborium::Value;
use serde::Serialize;

/// Names and values.
pub type Fields = Vec<(String, String)>;

/// One of them.
pub fn field(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// The fields of a structure, those of one within it as `outer.inner`.
pub fn fields(of: &impl Serialize) -> Fields {
    let mut all = Fields::new();
    match Value::serialized(of) {
        Ok(value) => flatten(String::new(), &value, &mut all),
        Err(error) => all.push(("unreadable".into(), error.to_string())),
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
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match value {
        Value::Null => "none".into(),
        Value::Bool(is) => is.to_string(),
        Value::Integer(number) => i128::from(*number).to_string(),
        Value::Text(text) => text.clone(),
        // What is above 64 bits.
        Value::Tag(2, bytes) if bytes.as_bytes().is_some_and(|bytes| bytes.len() <= 16) => {
            let bytes = bytes.as_bytes().map_or(&[][..], Vec::as_slice);
            bytes.iter().fold(0u128, |number, &byte| number << 8 | u128::from(byte)).to_string()
        }
        Value::Bytes(bytes) => hex(bytes),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

/// What has changed, before and after.
pub(super) fn differences(before: &Fields, after: &Fields) -> (String, String) {
    let only = |these: &Fields, those: &Fields| {
        let new = these.iter().filter(|field| !those.contains(field));
        new.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("; ")
    };
    (only(before, after), only(after, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_interface::{Config, PrunePolicy};

    #[test]
    fn only_what_has_changed_is_told() {
        let config = Config::default();
        let mut changed = config.clone();
        changed.min_liquid_cycles = u128::MAX;
        changed.open_queries = true;
        changed.utxo.block_height_retention = 7;
        let (before, after) = differences(&fields(&config), &fields(&changed));
        assert_eq!(before, "min_liquid_cycles = 100000000000; open_queries = false; utxo.block_height_retention = 288");
        let most = u128::MAX;
        assert_eq!(after, format!("min_liquid_cycles = {most}; open_queries = true; utxo.block_height_retention = 7"));
        assert_eq!(differences(&fields(&config), &fields(&config)), (String::new(), String::new()));
        // What was not there at all.
        let (before, after) = differences(&fields(&None::<PrunePolicy>), &fields(&Some(PrunePolicy::default())));
        assert_eq!(before, "value = none");
        assert!(after.starts_with("target_bytes = 0; retain_days = 0; "), "{after}");
    }
}
