//! What new objects of `kueue.x-k8s.io` get.

use crds::names::kueue;
use crds::validation::Gates;
use serde_json::{Value, json};

use super::review::{Request, Verdict};

/// What a new object of `kueue.x-k8s.io` gets before it is stored: the finalizer that keeps a ClusterQueue or ResourceFlavor while it
/// is in use, so that there is no moment without it; and a Workload loses `minCount` where partial admission is switched off.
pub(super) fn default(gates: Gates, request: &Request) -> Verdict {
    if request.operation != "CREATE" || request.group != kueue::GROUP {
        return Verdict::Allow;
    }
    let mut changed = request.object.clone();
    match request.kind.as_str() {
        "ClusterQueue" | "ResourceFlavor" => protect(&mut changed),
        "Workload" if !gates.partial_admission => drop_min_counts(&mut changed),
        _ => {}
    }
    Verdict::becoming(&request.object, changed)
}

fn protect(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let finalizers = metadata.entry("finalizers").or_insert(Value::Null);
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Value::Array(names) = finalizers
        && !names.iter().any(|name| name == kueue::FINALIZER_RESOURCE_IN_USE)
    {
        names.push(json!(kueue::FINALIZER_RESOURCE_IN_USE));
    }
}

fn drop_min_counts(workload: &mut Value) {
    let sets = workload.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for set in sets.into_iter().flatten().filter_map(Value::as_object_mut) {
        set.remove("minCount");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(gates: Gates, kind: &str, object: Value) -> Option<Value> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE",
                "kind": { "group": "kueue.x-k8s.io", "version": "v1beta2", "kind": kind }, "object": object,
            },
        });
        match default(gates, &Request::parse(review.to_string().as_bytes()).unwrap()) {
            Verdict::Change(object) => Some(object),
            Verdict::Allow => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_can_be_in_use_is_protected_from_the_start() {
        let protected = json!({ "metadata": { "finalizers": ["a.b/c", kueue::FINALIZER_RESOURCE_IN_USE] } });
        for kind in ["ClusterQueue", "ResourceFlavor"] {
            let object = json!({ "metadata": { "finalizers": ["a.b/c"] } });
            assert_eq!(defaulted(Gates::default(), kind, object), Some(protected.clone()));
            let alone = json!({ "metadata": { "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE] } });
            for finalizers in [json!({}), json!({ "finalizers": null })] {
                assert_eq!(
                    defaulted(Gates::default(), kind, json!({ "metadata": finalizers })),
                    Some(alone.clone())
                );
            }
            assert_eq!(defaulted(Gates::default(), kind, protected.clone()), None);
            assert_eq!(defaulted(Gates::default(), kind, json!({ "metadata": 7 })), None);
        }
        assert_eq!(defaulted(Gates::default(), "Cohort", json!({ "metadata": {} })), None);
    }

    #[test]
    fn min_count_goes_where_partial_admission_is_off() {
        let workload = json!({ "spec": { "podSets": [{ "count": 3, "minCount": 1 }, { "count": 1 }] } });
        assert_eq!(defaulted(Gates::default(), "Workload", workload.clone()), None);
        let off = Gates { partial_admission: false, ..Gates::default() };
        let wanted = json!({ "spec": { "podSets": [{ "count": 3 }, { "count": 1 }] } });
        assert_eq!(defaulted(off, "Workload", workload), Some(wanted));
    }
}
