//! What is refused of objects of `kueue.x-k8s.io`.

use crds::api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use crds::names::kueue;
use crds::validation::{self, FieldError, Gates, rules};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::review::{Request, Verdict};

/// Checks what the schema of `kueue.x-k8s.io` cannot.
pub(super) fn validate(gates: Gates, request: &Request<Box<RawValue>>) -> Verdict {
    let is_update = match request.operation.as_str() {
        "CREATE" => false,
        "UPDATE" => true,
        _ => return Verdict::Allow,
    };
    if request.group != kueue::GROUP {
        return Verdict::Allow;
    }
    let found = match request.kind.as_str() {
        "ClusterQueue" => judge::<ClusterQueue>(request, is_update, |old, new| match old {
            Some(old) => validation::cluster_queue_update(old, new, gates),
            None => validation::cluster_queue(new, gates),
        }),
        "Cohort" => judge::<Cohort>(request, false, |_, new| validation::cohort(new)),
        "ResourceFlavor" => judge::<ResourceFlavor>(request, is_update, |old, new| {
            let mut found = validation::resource_flavor(new);
            found.extend(rules::resource_flavor(old, new));
            found
        }),
        "Workload" => judge::<Workload>(request, is_update, |old, new| {
            let mut found = match old {
                Some(old) => validation::workload_update(old, new, gates),
                None => validation::workload(new, gates),
            };
            found.extend(rules::workload(old, new));
            found
        }),
        _ => return Verdict::Allow,
    };
    found.map_or_else(Verdict::Unreadable, Verdict::of)
}

fn judge<K: DeserializeOwned>(
    request: &Request<Box<RawValue>>,
    is_update: bool,
    check: impl FnOnce(Option<&K>, &K) -> Vec<FieldError>,
) -> Result<Vec<FieldError>, String> {
    let new = serde_json::from_str::<K>(request.object.get())
        .map_err(|error| format!("the {} cannot be read: {error}", request.kind))?;
    // What is stored may be older than today's types; then the new object is judged by itself.
    let old = is_update.then(|| serde_json::from_str::<K>(request.old.get()).ok()).flatten();
    Ok(check(old.as_ref(), &new))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn verdict(kind: &str, object: Value, old: Value) -> Verdict {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
                "kind": { "group": "kueue.x-k8s.io", "version": "v1beta2", "kind": kind },
                "object": object, "oldObject": old,
            },
        });
        validate(Gates::default(), &Request::parse(review.to_string().as_bytes()).unwrap())
    }

    fn queue(quota: Value) -> Value {
        json!({ "metadata": { "name": "q" }, "spec": { "cohortName": "pool", "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "f", "resources": [quota] }],
        }]}})
    }

    fn fields(verdict: Verdict) -> Vec<String> {
        match verdict {
            Verdict::Deny(errors) => errors.into_iter().map(|error| error.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wrong_queue_is_denied_by_field_and_a_right_one_is_not() {
        let negative =
            verdict("ClusterQueue", queue(json!({ "name": "cpu", "nominalQuota": "-1" })), Value::Null);
        assert_eq!(fields(negative), ["spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"]);
        let fine = queue(json!({ "name": "cpu", "nominalQuota": 1, "borrowingLimit": 2 }));
        assert_eq!(verdict("ClusterQueue", fine, Value::Null), Verdict::Allow);
        let text = verdict("ClusterQueue", json!("text"), Value::Null);
        assert!(matches!(text, Verdict::Unreadable(_)), "{text:?}");
    }

    #[test]
    fn an_update_is_held_against_what_was() {
        let workload = |queue: &str, count: i32| {
            let condition = json!({
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({
                "spec": { "queueName": queue, "podSets": [{ "name": "main", "count": count, "template": {} }] },
                "status": { "conditions": [condition], "admission": { "clusterQueue": "c" } },
            })
        };
        assert_eq!(verdict("Workload", workload("b", 1), workload("b", 1)), Verdict::Allow);
        let grown = verdict("Workload", workload("b", 2), workload("a", 1));
        assert_eq!(fields(grown), ["spec.podSets.0", "spec.queueName"]);
        // What was stored cannot be read: the new object is judged by itself.
        assert_eq!(verdict("Workload", workload("b", 2), json!("text")), Verdict::Allow);
    }

    #[test]
    fn a_flavor_is_held_to_what_its_schema_says_in_cel() {
        let flavor =
            json!({ "spec": { "topologyName": "racks", "nodeTaints": [{ "key": "a", "effect": "Never" }] } });
        let denied = verdict("ResourceFlavor", flavor, Value::Null);
        assert_eq!(fields(denied), ["spec.nodeLabels", "spec.nodeTaints[0].effect"]);
    }

    #[test]
    fn a_flavor_from_before_a_rule_can_lose_its_finalizer() {
        let flavor = |finalizers: Value| {
            json!({
                "metadata": { "name": "f", "finalizers": finalizers },
                "spec": { "tolerations": [{ "operator": "Equal" }] },
            })
        };
        let (held, free) = (flavor(json!(["kueue.x-k8s.io/resource-in-use"])), flavor(json!([])));
        assert_eq!(verdict("ResourceFlavor", free.clone(), held), Verdict::Allow);
        assert_eq!(fields(verdict("ResourceFlavor", free, Value::Null)), ["spec.tolerations[0].operator"]);
    }
}
