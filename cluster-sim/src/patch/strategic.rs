use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::object::object_mut;

/// Lists that merge by a key, by the path of field names from the object's root (list elements add nothing to the
/// path). From the `x-kubernetes-patch-merge-key` of the built-in types' OpenAPI. A pod template's rows are found below
/// any prefix that ends in `template`, `podTemplate` or the pod itself.
const POD_SPEC_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("topologySpreadConstraints", "topologyKey"),
    ("containers.env", "name"),
    ("containers.ports", "containerPort"),
    ("containers.volumeMounts", "mountPath"),
    ("containers.volumeDevices", "devicePath"),
    ("initContainers.env", "name"),
    ("initContainers.ports", "containerPort"),
    ("initContainers.volumeMounts", "mountPath"),
    ("initContainers.volumeDevices", "devicePath"),
    ("ephemeralContainers.env", "name"),
    ("ephemeralContainers.volumeMounts", "mountPath"),
    ("ephemeralContainers.volumeDevices", "devicePath"),
];

/// The other kinds' rows: kind (empty for every kind), path, key. An empty key marks a list of plain values that merges
/// as a set.
const KEYS: &[(&str, &str, &str)] = &[
    ("", "metadata.ownerReferences", "uid"),
    ("", "metadata.finalizers", ""),
    ("Pod", "status.conditions", "type"),
    ("Pod", "status.podIPs", "ip"),
    ("Pod", "status.resourceClaimStatuses", "name"),
    ("CSINode", "spec.drivers", "name"),
    ("Pod", "status.hostIPs", "ip"),
    ("Node", "status.conditions", "type"),
    ("Node", "status.addresses", "type"),
    ("Node", "spec.podCIDRs", ""),
    ("Namespace", "status.conditions", "type"),
    ("Service", "spec.ports", "port"),
    ("Service", "status.conditions", "type"),
    ("ServiceAccount", "secrets", "name"),
    ("Job", "status.conditions", "type"),
    ("Deployment", "status.conditions", "type"),
    ("StatefulSet", "status.conditions", "type"),
    ("DaemonSet", "status.conditions", "type"),
    ("ReplicaSet", "status.conditions", "type"),
    ("ReplicationController", "status.conditions", "type"),
    ("PersistentVolumeClaim", "status.conditions", "type"),
    ("PodDisruptionBudget", "status.conditions", "type"),
    ("ValidatingWebhookConfiguration", "webhooks", "name"),
    ("MutatingWebhookConfiguration", "webhooks", "name"),
    ("HorizontalPodAutoscaler", "status.conditions", "type"),
    ("APIService", "status.conditions", "type"),
];

/// Prefixes below which a pod's spec lies.
const POD_SPECS: &[(&str, &str)] = &[
    ("Pod", "spec."),
    ("PodTemplate", "template.spec."),
    ("Job", "spec.template.spec."),
    ("CronJob", "spec.jobTemplate.spec.template.spec."),
    ("Deployment", "spec.template.spec."),
    ("StatefulSet", "spec.template.spec."),
    ("DaemonSet", "spec.template.spec."),
    ("ReplicaSet", "spec.template.spec."),
    ("ReplicationController", "spec.template.spec."),
];

/// The merge key of the list at a path: `Some("")` for sets of plain values, `None` for lists that are replaced.
fn merge_key(kind: &str, path: &str) -> Option<&'static str> {
    let own =
        KEYS.iter().find(|(k, p, _)| (k.is_empty() || *k == kind) && *p == path).map(|(_, _, key)| *key);
    own.or_else(|| {
        POD_SPECS.iter().filter(|(k, _)| *k == kind).find_map(|(_, prefix)| {
            let rest = path.strip_prefix(prefix)?;
            POD_SPEC_KEYS.iter().find(|(p, _)| *p == rest).map(|(_, key)| *key)
        })
    })
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

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kind: &str,
    path: &str,
) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = patch
                .iter()
                .filter(|(k, _)| !k.starts_with('$'))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
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
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        let path = child(path, key);
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(patch) => {
                let slot = target.entry(key.as_str()).or_insert_with(|| Value::Object(Map::new()));
                merge_map(object_mut(slot), patch, kind, &path)?;
            }
            Value::Array(patch) => match merge_key(kind, &path) {
                Some(merge_key) => {
                    let slot = target.entry(key.as_str()).or_insert_with(|| Value::Array(Vec::new()));
                    merge_list(slot, patch, merge_key, kind, &path)?;
                }
                None => {
                    target.insert(key.clone(), value.clone());
                }
            },
            plain => {
                target.insert(key.clone(), plain.clone());
            }
        }
    }
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix("$setElementOrder/") {
            let merge_key = merge_key(kind, &child(path, field)).unwrap_or_default();
            reorder(target.get_mut(field), order, merge_key);
        }
    }
    Ok(())
}

fn delete_values(list: Option<&mut Value>, gone: &Value) {
    if let (Some(list), Some(gone)) = (list.and_then(Value::as_array_mut), gone.as_array()) {
        list.retain(|item| !gone.contains(item));
    }
}

fn merge_list(slot: &mut Value, patch: &[Value], key: &str, kind: &str, path: &str) -> Result<(), ApiError> {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Some(list) = slot.as_array_mut() else { return Ok(()) };
    if patch.iter().any(|p| p.get("$patch").and_then(Value::as_str) == Some("replace")) {
        *list = patch.iter().filter(|p| p.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in patch {
        if key.is_empty() {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        }
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
fn reorder(list: Option<&mut Value>, order: &Value, key: &str) {
    let (Some(list), Some(order)) = (list.and_then(Value::as_array_mut), order.as_array()) else { return };
    let rank = |item: &Value| {
        let wanted = |o: &Value| if key.is_empty() { o == item } else { o.get(key) == item.get(key) };
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
}
