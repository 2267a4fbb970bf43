//! The merge patch between two versions of an object.

use serde_json::{Map, Value};

/// The JSON merge patch (RFC 7386) that makes `new` of `old`; `None` when they are equal. Lists are replaced whole.
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) => {
                if let Some(change) = merge_diff(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_holds_what_changed_and_nothing_else() {
        let old = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": true});
        let new = json!({"a": 1, "b": {"c": [1], "d": "x", "f": {}}});
        let patch = merge_diff(&old, &new).unwrap();
        assert_eq!(patch, json!({"b": {"c": [1], "f": {}}, "e": null}));
        let mut patched = old.clone();
        json_patch::merge(&mut patched, &patch);
        assert_eq!(patched, new);
        assert_eq!(merge_diff(&old, &old), None);
    }
}
