//! Whether two pod templates mean the same.

use model::Quantity;
use serde_json::{Map, Value};

/// Structs that clients written in Go write out even where they say nothing.
const ALWAYS_WRITTEN: [&str; 2] = ["metadata", "resources"];
/// Maps: without entries they say nothing, and their keys are names, not fields.
const MAPS: [&str; 7] =
    ["labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead"];
/// Texts, numbers and switches that Go's clients do not write where they are empty, 0 or false. Of any other, absent and zero differ.
const DROPPED: [&str; 23] = [
    "containerPort",
    "dnsPolicy",
    "effect",
    "hostIP",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "hostname",
    "image",
    "imagePullPolicy",
    "key",
    "nodeName",
    "operator",
    "protocol",
    "restartPolicy",
    "serviceAccountName",
    "stdin",
    "subPath",
    "tty",
    "value",
    "workingDir",
    "priorityClassName",
];
/// Maps of quantities.
const AMOUNTS: [&str; 3] = ["limits", "requests", "overhead"];

/// Whether Kubernetes' types would be equal (`equality.Semantic`): an absent field is like one that says nothing, and amounts are
/// compared as such, so that "1" and "1000m" are the same.
pub(super) fn same_template(a: &Value, b: &Value) -> bool {
    // What a pod asks for as a whole: written without content, it is there.
    let is_whole = |template: &Value| template.pointer("/spec/resources").is_some_and(Value::is_object);
    is_whole(a) == is_whole(b) && same("template", a, b)
}

fn same(field: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if AMOUNTS.contains(&field) => same_amounts(a, b),
        (Value::Object(a), Value::Object(b)) if MAPS.contains(&field) => a == b,
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(field, value)| match b.get(field) {
                Some(other) => same(field, value, other),
                None => says_nothing(field, value),
            }) && b.iter().all(|(field, value)| a.contains_key(field) || says_nothing(field, value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same("", a, b))
        }
        _ => a == b || (says_nothing(field, a) && says_nothing(field, b)),
    }
}

fn says_nothing(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) if ALWAYS_WRITTEN.contains(&field) => {
            map.iter().all(|(field, value)| says_nothing(field, value))
        }
        Value::Object(map) => map.is_empty() && MAPS.contains(&field),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            DROPPED.contains(&field) && (*value == false || *value == 0 || *value == "")
        }
    }
}

fn same_amounts(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let amount = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        other => other.to_string().parse().ok(),
    };
    a.len() == b.len()
        && a.iter().all(|(name, value)| {
            b.get(name).is_some_and(|other| {
                value == other || amount(value).is_some_and(|value| Some(value) == amount(other))
            })
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(container: Value) -> Value {
        json!({ "spec": { "containers": [container] } })
    }

    #[test]
    fn a_template_written_by_another_client_is_the_same() {
        let cpu = |cpu: Value| template(json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } }));
        let plain = template(json!({ "name": "c" }));
        let empty = json!({ "metadata": { "creationTimestamp": null, "labels": {} }, "spec": {
            "containers": [{ "name": "c", "resources": { "limits": {} }, "env": [] }], "nodeSelector": {}, "tolerations": null,
        }});
        for (a, b, wanted) in [
            (cpu(json!("1")), cpu(json!("1000m")), true),
            (cpu(json!("1")), cpu(json!(1)), true),
            (cpu(json!("1")), cpu(json!("2")), false),
            (plain.clone(), empty.clone(), true),
            (empty, plain.clone(), true),
            (plain.clone(), cpu(json!("1")), false),
            (plain.clone(), template(json!({ "name": "c", "securityContext": {} })), false),
            (
                json!({ "metadata": { "labels": { "limits": "1" } } }),
                json!({ "metadata": { "labels": { "limits": "1000m" } } }),
                false,
            ),
            (json!({}), json!(null), false),
            (plain.clone(), template(json!({ "name": "c", "tty": false, "workingDir": "" })), true),
            (plain.clone(), template(json!({ "name": "c", "tty": true })), false),
            (json!({ "spec": {} }), json!({ "spec": { "resources": {} } }), false),
            (json!({ "spec": {} }), json!({ "spec": { "automountServiceAccountToken": false } }), false),
        ] {
            assert_eq!(same_template(&a, &b), wanted, "{a} {b}");
        }
    }
}
