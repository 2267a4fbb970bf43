use crds::api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use crds::names::kueue;
use crds::validation::{self, FieldError, Gates};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::review::{Request, Verdict};

/// Checks what schema and CEL rules of `kueue.x-k8s.io` cannot.
pub(super) fn validate(request: &Request) -> Verdict {
    if request.group != kueue::GROUP || request.operation == "DELETE" {
        return Verdict::Allow;
    }
    let gates = Gates::default();
    let found = match request.kind.as_str() {
        "ClusterQueue" => judge::<ClusterQueue>(request, |old, new| match old {
            Some(old) => validation::cluster_queue_update(old, new, gates),
            None => validation::cluster_queue(new, gates),
        }),
        "Cohort" => judge::<Cohort>(request, |_, new| validation::cohort(new)),
        "ResourceFlavor" => judge::<ResourceFlavor>(request, |_, new| validation::resource_flavor(new)),
        "Workload" => judge::<Workload>(request, |old, new| match old {
            Some(old) => validation::workload_update(old, new, gates),
            None => validation::workload(new, gates),
        }),
        _ => Ok(Vec::new()),
    };
    match found {
        Ok(errors) => Verdict::of(errors.iter().map(ToString::to_string).collect()),
        Err(words) => Verdict::Deny(vec![words]),
    }
}

fn judge<K: DeserializeOwned>(
    request: &Request,
    check: impl FnOnce(Option<&K>, &K) -> Vec<FieldError>,
) -> Result<Vec<FieldError>, String> {
    let read = |value: &Value| {
        serde_json::from_value::<K>(value.clone())
            .map_err(|error| format!("the {} cannot be read: {error}", request.kind))
    };
    let new = read(&request.object)?;
    // What is stored may be older than today's types; then the new object is judged by itself.
    let old = (request.operation == "UPDATE").then(|| read(&request.old).ok()).flatten();
    Ok(check(old.as_ref(), &new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        validate(&Request::parse(review.to_string().as_bytes()).unwrap())
    }

    fn queue(quota: Value) -> Value {
        json!({ "metadata": { "name": "q" }, "spec": { "cohortName": "pool", "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "f", "resources": [quota] }],
        }]}})
    }

    #[test]
    fn a_wrong_queue_is_denied_by_field_and_a_right_one_is_not() {
        let negative =
            verdict("ClusterQueue", queue(json!({ "name": "cpu", "nominalQuota": "-1" })), Value::Null);
        let Verdict::Deny(reasons) = negative else { panic!("{negative:?}") };
        assert!(reasons[0].contains("nominalQuota"), "{reasons:?}");
        let fine = queue(json!({ "name": "cpu", "nominalQuota": 1, "borrowingLimit": 2 }));
        assert_eq!(verdict("ClusterQueue", fine, Value::Null), Verdict::Allow);
        let text = verdict("ClusterQueue", json!("text"), Value::Null);
        assert!(matches!(text, Verdict::Deny(_)), "{text:?}");
    }
}
