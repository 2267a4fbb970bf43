//! The status of PodDisruptionBudgets.

use serde_json::{Value, json};

use crate::Part;
use crate::cluster::Cluster;
use crate::object::{Object, at, entry, items, object_mut, text};
use crate::resources::GroupResource;
use crate::selectors::LabelFilter;
use crate::store::Verb;
use crate::write::{Caller, Subject};

const WRITER: &str = "disruption-controller";

fn budgets() -> GroupResource {
    GroupResource::new("policy", "poddisruptionbudgets")
}

/// Whether a write to this resource may change what a budget allows.
pub(super) fn concerns(cluster: &Cluster, resource: &GroupResource) -> bool {
    resource.is("policy", "poddisruptionbudgets")
        || (resource.is("", "pods") && !cluster.state().list(&budgets(), None).is_empty())
}

pub(super) async fn sweep(cluster: &Cluster) {
    let all = cluster.state().list(&budgets(), None);
    for budget in all {
        let Ok(resource) = cluster.resource(&budgets()) else { return };
        let status = status(cluster, &budget);
        let subject =
            Subject { resource, version: 0, key: budget.key().clone(), part: Part::Status, whole: false };
        let mut apply = |current: &Value| {
            let mut value = current.clone();
            let slot = entry(&mut value, "status");
            slot.extend(status.as_object().cloned().unwrap_or_default());
            Ok(value)
        };
        // A budget that vanished meanwhile needs no status.
        let _ = crate::write::update(cluster, &Caller::internal(WRITER, Verb::Update), &subject, &mut apply)
            .await;
    }
}

fn status(cluster: &Cluster, budget: &Object) -> Value {
    let selector = LabelFilter::from_object(at(budget.value(), &["spec", "selector"]));
    let pods: Vec<_> = cluster
        .state()
        .list(&GroupResource::core("pods"), Some(&budget.key().namespace))
        .into_iter()
        .filter(|p| selector.matches(p.value()))
        .filter(|p| !matches!(text(p.value(), &["status", "phase"]), "Succeeded" | "Failed"))
        .collect();
    let ready = |p: &Object| {
        !p.is_terminating()
            && items(p.value(), &["status", "conditions"])
                .iter()
                .any(|c| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True")
    };
    let expected = pods.len() as i64;
    let healthy = pods.iter().filter(|p| ready(p)).count() as i64;
    let spec = at(budget.value(), &["spec"]);
    let desired = match (at(spec, &["minAvailable"]), at(spec, &["maxUnavailable"])) {
        (Value::Null, Value::Null) => 0,
        (Value::Null, unavailable) => (expected - scaled(unavailable, expected)).max(0),
        (available, _) => scaled(available, expected),
    };
    // Pods whose eviction was granted and has not been seen yet count no longer.
    let mut disrupted = at(budget.value(), &["status", "disruptedPods"]).clone();
    object_mut(&mut disrupted)
        .retain(|name, _| pods.iter().any(|p| *p.key().name == **name && !p.is_terminating()));
    let granted = pods.iter().filter(|p| disrupted.get(&*p.key().name).is_some() && ready(p)).count() as i64;
    json!({
        "currentHealthy": healthy - granted, "desiredHealthy": desired, "expectedPods": expected,
        "disruptionsAllowed": if expected > 0 { (healthy - granted - desired).max(0) } else { 0 },
        "observedGeneration": at(budget.value(), &["metadata", "generation"]), "disruptedPods": disrupted,
    })
}

/// A number, or a percentage of `total` rounded up.
fn scaled(value: &Value, total: i64) -> i64 {
    match value {
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            percent.clamp(0, 100).saturating_mul(total).saturating_add(99) / 100
        }
        number => number.as_i64().unwrap_or(0),
    }
}
