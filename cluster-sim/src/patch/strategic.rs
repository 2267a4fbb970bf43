use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::object::object_mut;

/// How the value at a path takes a patch, where JSON merge patch would do otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strategy {
    /// A list of objects merges, by this field of theirs.
    ByKey(&'static str),
    /// A list of plain values merges as a set.
    Set,
    /// An object is replaced.
    Replace,
}

impl Strategy {
    /// `retainKeys` is left out: a patch says by itself where keys are to be retained.
    fn parse(strategy: &str, key: &'static str) -> Option<Self> {
        match (strategy, key) {
            ("merge" | "merge,retainKeys", "-") => Some(Self::Set),
            ("merge" | "merge,retainKeys", key) => Some(Self::ByKey(key)),
            ("replace", _) => Some(Self::Replace),
            _ => None,
        }
    }
}

/// Strategies by kind and path.
type Table = BTreeMap<&'static str, BTreeMap<&'static str, Strategy>>;

/// `merge-keys.txt`, which is made from the real server's OpenAPI: derived once in a process from a constant.
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table::new();
        for line in include_str!("merge-keys.txt").lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            if let (Some(kind), Some(path), Some(strategy), Some(key)) =
                (words.next(), words.next(), words.next(), words.next())
            {
                let fields = table.entry(kind).or_default();
                fields.extend(Strategy::parse(strategy, key).map(|strategy| (path, strategy)));
            }
        }
        table
    })
}

/// The strategy at a path of field names from the object's root; elements of lists add nothing to the path.
fn strategy(kind: &str, path: &str) -> Option<Strategy> {
    table().get(kind)?.get(path).copied()
}

/// Applies a strategic merge patch to an object of a built-in kind.
pub(crate) fn apply(target: &mut Value, patch: &Value, kind: &str) -> Result<(), ApiError> {
    let Some(patch) = patch.as_object() else {
        return Err(ApiError::bad_request("the patch must be a JSON object"));
    };
    merge_map(object_mut(target), patch, kind, "")
}

fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// An object of a patch without the directives in it.
fn plain(patch: &Map<String, Value>) -> Map<String, Value> {
    let fields = patch.iter().filter(|(key, _)| !key.starts_with('$'));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kind: &str,
    path: &str,
) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = plain(patch);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    // Of a union only the member that the patch sets stays (a volume's source, a Deployment's strategy).
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_values(target.get_mut(field), value);
        } else if !key.starts_with('$') {
            merge_field(target, key, value, kind, &child(path, key))?;
        }
    }
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix("$setElementOrder/") {
            let merge_key = match strategy(kind, &child(path, field)) {
                Some(Strategy::ByKey(key)) => Some(key),
                _ => None,
            };
            reorder(target.get_mut(field), order, merge_key);
        }
    }
    Ok(())
}

/// One field of a patch; `path` is the field's.
fn merge_field(
    target: &mut Map<String, Value>,
    key: &str,
    patch: &Value,
    kind: &str,
    path: &str,
) -> Result<(), ApiError> {
    match (patch, strategy(kind, path)) {
        (Value::Null, _) => {
            target.remove(key);
        }
        (Value::Object(patch), Some(Strategy::Replace)) => {
            target.insert(key.to_owned(), Value::Object(plain(patch)));
        }
        (Value::Object(patch), _) => {
            let slot = target.entry(key).or_insert_with(|| Value::Object(Map::new()));
            merge_map(object_mut(slot), patch, kind, path)?;
        }
        (Value::Array(patch), Some(Strategy::ByKey(merge_key))) => {
            merge_list(list_mut(target, key), patch, Some(merge_key), kind, path)?;
        }
        (Value::Array(patch), Some(Strategy::Set)) => {
            merge_list(list_mut(target, key), patch, None, kind, path)?;
        }
        (plain, _) => {
            target.insert(key.to_owned(), plain.clone());
        }
    }
    Ok(())
}

/// The list in a field; made when there is none.
fn list_mut<'a>(target: &'a mut Map<String, Value>, key: &str) -> &'a mut Value {
    let slot = target.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot
}

fn delete_values(list: Option<&mut Value>, gone: &Value) {
    if let (Some(list), Some(gone)) = (list.and_then(Value::as_array_mut), gone.as_array()) {
        list.retain(|item| !gone.contains(item));
    }
}

/// Without a key the elements are plain values.
fn merge_list(
    slot: &mut Value,
    patch: &[Value],
    key: Option<&str>,
    kind: &str,
    path: &str,
) -> Result<(), ApiError> {
    let Some(list) = slot.as_array_mut() else { return Ok(()) };
    if patch.iter().any(|p| p.get("$patch").and_then(Value::as_str) == Some("replace")) {
        *list = patch.iter().filter(|p| p.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in patch {
        let Some(key) = key else {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        };
        let Some(wanted) = item.get(key) else {
            return Err(ApiError::bad_request(format!(
                "error when patching {path}: map: {item} does not contain declared merge key: {key}"
            )));
        };
        let position = list.iter().position(|existing| existing.get(key) == Some(wanted));
        let deletes = item.get("$patch").and_then(Value::as_str) == Some("delete");
        match (position, item.as_object()) {
            (Some(i), _) if deletes => {
                list.remove(i);
            }
            (None, _) if deletes => {}
            (Some(i), Some(item)) => merge_map(object_mut(&mut list[i]), item, kind, path)?,
            (None, Some(item)) => {
                let mut new = Map::new();
                merge_map(&mut new, item, kind, path)?;
                list.push(Value::Object(new));
            }
            (_, None) => {}
        }
    }
    Ok(())
}

/// Puts the elements that `order` names in its order; those it does not name keep their place at the end.
fn reorder(list: Option<&mut Value>, order: &Value, key: Option<&str>) {
    let (Some(list), Some(order)) = (list.and_then(Value::as_array_mut), order.as_array()) else { return };
    let rank = |item: &Value| {
        let wanted = |o: &Value| key.map_or(o == item, |key| o.get(key) == item.get(key));
        order.iter().position(wanted).unwrap_or(order.len())
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(target: Value, patch: Value, kind: &str) -> Value {
        let mut value = target;
        apply(&mut value, &patch, kind).unwrap();
        value
    }

    #[test]
    fn lists_with_a_key_merge_and_others_are_replaced() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}], "tolerations": [{"key": "t"}]}});
        let patch =
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "args": ["y"]}], "tolerations": []}});
        assert_eq!(
            patched(pod, patch, "Pod"),
            json!({"spec": {
                "containers": [{"name": "a", "image": "1", "args": ["y"]}, {"name": "b"}], "tolerations": [],
            }})
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let job = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "b"},
        ]}}}});
        let patch = json!({"spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}],
        }}}});
        assert_eq!(
            patched(job, patch, "Job"),
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "b"}, {"name": "a", "env": [{"name": "Y", "value": "2"}]},
            ]}}}})
        );
        let labels = patched(
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            "Pod",
        );
        assert_eq!(labels, json!({"metadata": {"labels": {"b": "2"}}}));
        let finalizers = patched(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}),
            "Pod",
        );
        assert_eq!(finalizers, json!({"metadata": {"finalizers": ["b", "c"]}}));
    }

    #[test]
    fn of_a_union_only_the_named_members_stay() {
        let pod = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}});
        let wanted = json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}});
        assert_eq!(patched(pod, patch, "Pod"), wanted);
    }

    #[test]
    fn an_element_without_its_key_is_refused() {
        let mut pod = json!({"spec": {"containers": []}});
        assert!(apply(&mut pod, &json!({"spec": {"containers": [{"image": "x"}]}}), "Pod").is_err());
    }

    #[test]
    fn every_builtin_kind_that_is_stored_is_in_the_table() {
        use crate::resources::{BUILTINS, Feature};

        for builtin in BUILTINS.iter().filter(|builtin| !builtin.features.contains(&Feature::Review)) {
            let kind = builtin.kind;
            assert_eq!(strategy(kind, "metadata.finalizers"), Some(Strategy::Set), "{kind}");
            assert_eq!(strategy(kind, "metadata.ownerReferences"), Some(Strategy::ByKey("uid")), "{kind}");
        }
    }

    #[test]
    fn rows_of_every_strategy_are_read() {
        for (kind, path, wanted) in [
            ("Pod", "spec.ephemeralContainers.ports", Some(Strategy::ByKey("containerPort"))),
            ("Pod", "status.containerStatuses.volumeMounts", Some(Strategy::ByKey("mountPath"))),
            ("Pod", "spec.volumes", Some(Strategy::ByKey("name"))),
            ("Pod", "spec.tolerations", None),
            ("Job", "spec.template.metadata.finalizers", Some(Strategy::Set)),
            ("ValidatingWebhookConfiguration", "webhooks.matchConditions", Some(Strategy::ByKey("name"))),
            ("ValidatingAdmissionPolicy", "spec.variables", Some(Strategy::ByKey("name"))),
            ("PodDisruptionBudget", "spec.selector", Some(Strategy::Replace)),
            ("Deployment", "spec.strategy", None),
        ] {
            assert_eq!(strategy(kind, path), wanted, "{kind} {path}");
        }
    }
}
