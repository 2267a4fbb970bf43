use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::quota::ResourceGroup;
use crds::view::workload::Workload;
use model::ResourceName;
use model::node::TaintEffect;
use serde::de::DeserializeOwned;

use super::review::{Request, Verdict};

/// Bounds over all resource groups (Kueue's ClusterQueue webhook).
const MAX_FLAVORS: usize = 256;
const MAX_RESOURCES: usize = 256;

/// Checks what schema and CEL rules of `kueue.x-k8s.io` cannot.
pub(super) fn validate(request: &Request) -> Verdict {
    if request.group != kueue::GROUP || request.operation == "DELETE" {
        return Verdict::Allow;
    }
    let reasons = match request.kind.as_str() {
        "ClusterQueue" => with::<ClusterQueue>(request, |queue| {
            groups(&queue.spec.resource_groups, queue.spec.cohort_name.is_some(), true)
        }),
        "Cohort" => with::<Cohort>(request, |cohort| {
            groups(&cohort.spec.resource_groups, cohort.spec.parent_name.is_some(), false)
        }),
        "ResourceFlavor" => with::<ResourceFlavor>(request, flavor),
        "Workload" => with::<Workload>(request, |workload| self::workload(request, workload)),
        _ => Vec::new(),
    };
    Verdict::of(reasons)
}

fn with<V: DeserializeOwned>(request: &Request, check: impl FnOnce(&V) -> Vec<String>) -> Vec<String> {
    match serde_json::from_value::<V>(request.object.clone()) {
        Ok(view) => check(&view),
        Err(error) => vec![format!("the {} cannot be read: {error}", request.kind)],
    }
}

fn groups(groups: &[ResourceGroup], has_parent: bool, lending_is_bounded: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        let place = format!("spec.resourceGroups[{index}]");
        for resource in &group.covered_resources {
            if !resources.insert(resource.clone()) {
                reasons.push(format!("{place}.coveredResources: {resource} is covered twice"));
            }
        }
        for (at, one) in group.flavors.iter().enumerate() {
            let place = format!("{place}.flavors[{at}]");
            if !flavors.insert(one.name.clone()) {
                reasons.push(format!("{place}.name: {} is listed twice", one.name));
            }
            let listed: Vec<&ResourceName> = one.resources.iter().map(|quota| &quota.name).collect();
            if listed != group.covered_resources.iter().collect::<Vec<_>>() {
                reasons.push(format!(
                    "{place}.resources: must match the name in coveredResources, in the same order"
                ));
            }
            for (at, quota) in one.resources.iter().enumerate() {
                let place = format!("{place}.resources[{at}]");
                reasons.extend(quota_reasons(&place, quota, has_parent, lending_is_bounded));
            }
        }
    }
    if flavors.len() > MAX_FLAVORS {
        reasons.push(format!("spec.resourceGroups: at most {MAX_FLAVORS} flavors in all"));
    }
    if resources.len() > MAX_RESOURCES {
        reasons.push(format!("spec.resourceGroups: at most {MAX_RESOURCES} covered resources in all"));
    }
    reasons
}

fn quota_reasons(
    place: &str,
    quota: &crds::view::quota::ResourceQuota,
    has_parent: bool,
    lending_is_bounded: bool,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut amounts = BTreeMap::new();
    let fields = [
        ("nominalQuota", Some(&quota.nominal_quota)),
        ("borrowingLimit", quota.borrowing_limit.as_ref()),
        ("lendingLimit", quota.lending_limit.as_ref()),
    ];
    for (field, written) in fields {
        let Some(written) = written else { continue };
        match written.quantity() {
            Err(text) => reasons.push(format!("{place}.{field}: {text:?} is no quantity")),
            Ok(amount) if amount.is_negative() => {
                reasons.push(format!("{place}.{field}: {amount} is negative; must be 0 or more"));
            }
            Ok(amount) if quota.name.amount(&amount).is_none() => {
                reasons.push(format!("{place}.{field}: {amount} exceeds 64 bits"));
            }
            Ok(amount) => {
                amounts.insert(field, amount);
            }
        }
        if field != "nominalQuota" && !has_parent {
            reasons.push(format!("{place}.{field}: must be nil when cohort is empty"));
        }
    }
    if let (true, Some(lending), Some(nominal)) =
        (lending_is_bounded, amounts.get("lendingLimit"), amounts.get("nominalQuota"))
        && lending > nominal
    {
        reasons.push(format!("{place}.lendingLimit: {lending} is more than the nominalQuota {nominal}"));
    }
    reasons
}

fn flavor(view: &ResourceFlavor) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in view.spec.node_taints.iter().enumerate() {
        let place = format!("spec.nodeTaints[{index}]");
        if taint.effect == TaintEffect::Unknown {
            reasons.push(format!("{place}.effect: must be NoSchedule, PreferNoSchedule or NoExecute"));
        }
        if taint.key.is_empty() {
            reasons.push(format!("{place}.key: must not be empty"));
        }
        if !seen.insert((taint.key.clone(), taint.effect)) {
            reasons.push(format!("{place}: key {} with this effect is listed twice", taint.key));
        }
    }
    if view.spec.topology_name.is_some() && view.spec.node_labels.is_empty() {
        reasons.push("spec.nodeLabels: at least one is needed with topologyName".to_owned());
    }
    reasons
}

fn workload(request: &Request, view: &Workload) -> Vec<String> {
    let mut reasons = Vec::new();
    if request.subresource.is_empty() {
        for (index, set) in view.spec.pod_sets.iter().enumerate() {
            let place = format!("spec.podSets[{index}]");
            match set.template.spec.resources.effective_requests() {
                Err(error) => reasons.push(format!("{place}.template.spec: {error}")),
                Ok(requests) if requests.contains_key(ResourceName::PODS) => {
                    reasons.push(format!("{place}.template.spec: the resource \"pods\" is reserved"));
                }
                Ok(_) => {}
            }
        }
    }
    if let Ok(old) = serde_json::from_value::<Workload>(request.old.clone())
        && request.operation == "UPDATE"
        && old.holds(tokens::QUOTA_RESERVED)
        && view.holds(tokens::QUOTA_RESERVED)
    {
        if old.spec.pod_sets != view.spec.pod_sets {
            reasons.push("spec.podSets: field is immutable while quota is reserved".to_owned());
        }
        if old.spec.queue_name != view.spec.queue_name {
            reasons.push("spec.queueName: field is immutable while quota is reserved".to_owned());
        }
        let admitted = |view: &Workload| view.status.admission.clone();
        if admitted(&old).is_some() && admitted(view).is_some() && admitted(&old) != admitted(view) {
            reasons.push("status.admission: can be set or unset, not changed".to_owned());
        }
    }
    reasons
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
        validate(&Request::parse(review.to_string().as_bytes()).unwrap())
    }

    fn queue(quota: Value) -> Value {
        json!({ "metadata": { "name": "q" }, "spec": { "cohortName": "pool", "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "f", "resources": [quota] }],
        }]}})
    }

    #[test]
    fn quotas_are_checked_by_field() {
        for (quota, field) in [
            (json!({ "name": "cpu", "nominalQuota": "-1" }), "nominalQuota"),
            (json!({ "name": "cpu", "nominalQuota": "one" }), "nominalQuota"),
            (json!({ "name": "cpu", "nominalQuota": "9e18" }), "nominalQuota"),
            (json!({ "name": "cpu", "nominalQuota": 1, "lendingLimit": 2 }), "lendingLimit"),
            (json!({ "name": "memory", "nominalQuota": 1 }), "resources"),
        ] {
            let Verdict::Deny(reasons) = verdict("ClusterQueue", queue(quota), Value::Null) else {
                panic!("{field}")
            };
            assert!(reasons.iter().any(|reason| reason.contains(field)), "{reasons:?}");
        }
        let fine = queue(json!({ "name": "cpu", "nominalQuota": 1, "borrowingLimit": 2 }));
        assert_eq!(verdict("ClusterQueue", fine.clone(), Value::Null), Verdict::Allow);
        let mut alone = fine;
        alone["spec"].as_object_mut().unwrap().remove("cohortName");
        assert_ne!(verdict("ClusterQueue", alone, Value::Null), Verdict::Allow);
    }

    #[test]
    fn an_admitted_workload_keeps_its_pod_sets() {
        let workload = |count: i64, reserved: &str| {
            json!({
                "metadata": { "name": "w" },
                "spec": { "podSets": [{ "name": "main", "count": count, "template": { "spec": {} } }] },
                "status": { "conditions": [{
                    "type": "QuotaReserved", "status": reserved, "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            })
        };
        assert_ne!(verdict("Workload", workload(2, "True"), workload(1, "True")), Verdict::Allow);
        assert_eq!(verdict("Workload", workload(2, "False"), workload(1, "False")), Verdict::Allow);
    }

    #[test]
    fn taints_are_known_and_listed_once() {
        let flavor = |taints: Value| json!({ "metadata": { "name": "f" }, "spec": { "nodeTaints": taints } });
        let taint = json!({ "key": "k", "value": "v", "effect": "NoSchedule" });
        assert_eq!(verdict("ResourceFlavor", flavor(json!([taint])), Value::Null), Verdict::Allow);
        assert_ne!(verdict("ResourceFlavor", flavor(json!([taint, taint])), Value::Null), Verdict::Allow);
        let odd = json!([{ "key": "k", "effect": "Sometimes" }]);
        assert_ne!(verdict("ResourceFlavor", flavor(odd), Value::Null), Verdict::Allow);
    }
}
