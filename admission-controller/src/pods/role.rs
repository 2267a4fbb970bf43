//! The role hash: pods of a group with the same hash are one pod set of its Workload.
//!
//! The hash is Kueue's (`pkg/util/pod/pod.go`): the first eight hex digits of the SHA-256 of what decides about quota and
//! nodes, as Go writes it in JSON: maps by key, structs in the order of `k8s.io/api/core/v1`, absent lists as null.

use std::collections::BTreeSet;

use model::Quantity;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Digits of the hash that are used.
const DIGITS: usize = 8;

/// Fields of the API's structs that are part of a shape, in the order in which they are declared. No two structs disagree.
const DECLARED: &[&str] = &[
    // Affinity, NodeAffinity, PodAffinity.
    "nodeAffinity",
    "podAffinity",
    "podAntiAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
    "weight",
    "preference",
    "podAffinityTerm",
    // TopologySpreadConstraint and PodAffinityTerm.
    "maxSkew",
    "whenUnsatisfiable",
    // LabelSelector and NodeSelectorTerm.
    "matchLabels",
    "matchExpressions",
    "matchFields",
    // Toleration and the selectors' requirements.
    "key",
    "operator",
    "value",
    "values",
    "effect",
    "tolerationSeconds",
    // ContainerPort and PodResourceClaim.
    "name",
    "hostPort",
    "containerPort",
    "protocol",
    "hostIP",
    "resourceClaimName",
    "resourceClaimTemplateName",
];

/// Where `topologyKey` and `labelSelector` stand differs between the two structs that have both.
const SPREAD: &[&str] = &[
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "labelSelector",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "matchLabelKeys",
];
const AFFINITY_TERM: &[&str] = &[
    "labelSelector",
    "namespaces",
    "topologyKey",
    "namespaceSelector",
    "matchLabelKeys",
    "mismatchLabelKeys",
];

/// Fields whose content is a map that its user named.
const MAPS: &[&str] = &["matchLabels", "nodeSelector", "requests", "overhead"];

/// Those whose values are amounts. A pod's own requests are its `resources` here.
const AMOUNTS: &[&str] = &["requests", "overhead", "resources"];

/// The hash of a pod's spec.
pub fn hash(spec: &Value) -> String {
    let digest = Sha256::digest(shape(spec));
    let hex: String = digest.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
    hex
}

/// The fields of a pod's spec in which two shapes differ, as paths from the spec, and what they are now.
pub fn changed_shape(old: &Value, new: &Value) -> Vec<(String, Value)> {
    let (old, new) = (fields(old), fields(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let at = |shape: &Map<String, Value>, name: &str| shape.get(name).cloned().unwrap_or(Value::Null);
    let mut changed = Vec::new();
    for name in names {
        match (at(&old, name), at(&new, name)) {
            (Value::Array(old), Value::Array(new))
                if name.ends_with("ontainers") && old.len() == new.len() =>
            {
                for (index, (old, new)) in old.iter().zip(&new).enumerate() {
                    let requests = |one: &Value| one["resources"]["requests"].clone();
                    if !alike("requests", &requests(old), &requests(new)) {
                        changed.push((format!("{name}[{index}].resources.requests"), requests(new)));
                    }
                    if !alike("ports", &old["ports"], &new["ports"]) {
                        changed.push((format!("{name}[{index}].ports"), new["ports"].clone()));
                    }
                }
            }
            (old, new) if !alike(name, &old, &new) => changed.push((name.clone(), new)),
            _ => {}
        }
    }
    changed
}

/// Whether two values of a field mean the same, as to Go's `equality.Semantic`: amounts are what they are worth, and an empty list,
/// map or text is none.
fn alike(field: &str, old: &Value, new: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && (MAPS.contains(&field) || AMOUNTS.contains(&field)),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if AMOUNTS.contains(&field) => {
            let worth = |amount: &Value| amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
            let same =
                |old: &Value, new: &Value| old == new || (worth(old).is_some() && worth(old) == worth(new));
            old.len() == new.len()
                && old.iter().all(|(name, old)| new.get(name).is_some_and(|new| same(old, new)))
        }
        (Value::Object(old), Value::Object(new)) if !MAPS.contains(&field) => {
            let at =
                |object: &Map<String, Value>, name: &str| object.get(name).cloned().unwrap_or(Value::Null);
            old.keys().chain(new.keys()).all(|name| alike(name, &at(old, name), &at(new, name)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| alike(field, old, new))
        }
        _ => old == new || (is_empty(old) && is_empty(new)),
    }
}

/// What is hashed, as Go writes it.
fn shape(spec: &Value) -> String {
    let mut text = String::new();
    // The outermost two levels are maps in Go, too.
    write(&json!({ "spec": fields(spec) }), Order::Map, &mut text);
    text
}

fn fields(spec: &Value) -> Map<String, Value> {
    let field = |name: &str| spec.get(name).cloned().unwrap_or(Value::Null);
    let mut shape = Map::new();
    for name in [
        "nodeSelector",
        "affinity",
        "tolerations",
        "runtimeClassName",
        "priority",
        "topologySpreadConstraints",
        "resourceClaims",
    ] {
        shape.insert(name.to_owned(), field(name));
    }
    shape.insert("overhead".to_owned(), amounts(spec.get("overhead")));
    for list in ["containers", "initContainers"] {
        shape.insert(list.to_owned(), containers(&field(list)));
    }
    if let Some(resources) = spec.get("resources").filter(|resources| !resources.is_null()) {
        shape.insert("resources".to_owned(), amounts(resources.get("requests")));
    }
    shape
}

/// Quantities as the API server writes them: a CRD's are kept as somebody wrote them.
fn amounts(list: Option<&Value>) -> Value {
    let Some(Value::Object(list)) = list else { return Value::Null };
    let canonical = |amount: &Value| {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        text.parse::<Quantity>().map_or_else(|_| amount.clone(), |amount| json!(amount.to_string()))
    };
    list.iter().map(|(name, amount)| (name.clone(), canonical(amount))).collect()
}

fn containers(list: &Value) -> Value {
    let Some(list) = list.as_array().filter(|list| !list.is_empty()) else { return Value::Null };
    let shape = |container: &Value| {
        let requests = amounts(container.pointer("/resources/requests"));
        let ports = container.get("ports").cloned().unwrap_or(Value::Null);
        json!({ "resources": { "requests": requests }, "ports": ports })
    };
    list.iter().map(shape).collect()
}

#[derive(Clone, Copy)]
enum Order {
    Map,
    Struct,
}

fn write(value: &Value, order: Order, text: &mut String) {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<(&String, &Value)> = object.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name, object, order));
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&escaped(name));
                text.push(':');
                write(value, of_field(name, order), text);
            }
            text.push('}');
        }
        Value::Array(list) => {
            text.push('[');
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(value, order, text);
            }
            text.push(']');
        }
        Value::String(one) => text.push_str(&escaped(one)),
        other => text.push_str(&other.to_string()),
    }
}

/// Whether what a field holds is a map or a struct. The shape itself, down to a container's, is made of maps.
fn of_field(name: &str, above: Order) -> Order {
    match (above, name) {
        (
            Order::Map,
            "affinity" | "tolerations" | "topologySpreadConstraints" | "resourceClaims" | "ports",
        ) => Order::Struct,
        (Order::Struct, name) if !MAPS.contains(&name) => Order::Struct,
        _ => Order::Map,
    }
}

fn rank<'a>(name: &'a str, object: &Map<String, Value>, order: Order) -> (usize, &'a str) {
    let declared: &[&str] = match order {
        Order::Map => &[],
        Order::Struct if object.contains_key("maxSkew") => SPREAD,
        Order::Struct if object.contains_key("topologyKey") => AFFINITY_TERM,
        Order::Struct => DECLARED,
    };
    (declared.iter().position(|one| *one == name).unwrap_or(declared.len()), name)
}

/// A JSON string as Go writes it: what HTML could take for markup is escaped.
fn escaped(text: &str) -> String {
    let written = Value::from(text).to_string();
    written
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_written_as_go_writes_it() {
        let spec = json!({
            "containers": [{
                "name": "c", "image": "i",
                "resources": { "requests": { "nvidia.com/gpu": "1", "cpu": "1" } },
                "ports": [{ "protocol": "TCP", "containerPort": 80 }],
            }],
            "tolerations": [{ "value": "v", "key": "k", "operator": "Equal" }],
            "nodeSelector": { "value": "a", "key": "<b>" },
            "priority": 0,
        });
        let wanted = concat!(
            r#"{"spec":{"affinity":null,"containers":[{"ports":[{"containerPort":80,"protocol":"TCP"}],"#,
            r#""resources":{"requests":{"cpu":"1","nvidia.com/gpu":"1"}}}],"initContainers":null,"#,
            r#""nodeSelector":{"key":"\u003cb\u003e","value":"a"},"overhead":null,"priority":0,"#,
            r#""resourceClaims":null,"runtimeClassName":null,"#,
            r#""tolerations":[{"key":"k","operator":"Equal","value":"v"}],"topologySpreadConstraints":null}}"#,
        );
        assert_eq!(shape(&spec), wanted);
        assert_eq!(hash(&spec).len(), DIGITS);
    }

    #[test]
    fn who_asks_for_the_same_has_the_same_role() {
        let pod = |image: &str, cpu: &str| json!({ "containers": [{ "image": image, "resources": { "requests": { "cpu": cpu } } }] });
        assert_eq!(hash(&pod("a", "1")), hash(&pod("b", "1")));
        assert_ne!(hash(&pod("a", "1")), hash(&pod("a", "2")));
    }
}
