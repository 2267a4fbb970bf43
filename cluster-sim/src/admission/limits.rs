//! LimitRange and ResourceQuota, for pods: defaults of containers, and how much a namespace may ask for.
//!
//! Quotas know `pods`, `count/pods`, and requests of any resource; scopes, limits and the bounds of LimitRanges are not
//! enforced.

use std::str::FromStr;

use model::pod::PodResources;
use model::quantity::Quantity;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::object::{Object, at, entry, items, name, namespace, object_mut, text};
use crate::resources::{GroupResource, Resource};

/// Sets what a LimitRange says containers ask for when they do not say it themselves.
pub(super) fn default(cluster: &Cluster, pod: &mut Value) {
    let ranges = cluster.state().list(&GroupResource::core("limitranges"), Some(namespace(pod)));
    for range in ranges {
        for limit in
            items(range.value(), &["spec", "limits"]).iter().filter(|l| text(l, &["type"]) == "Container")
        {
            for (key, given) in [("limits", "default"), ("requests", "defaultRequest")] {
                set_amounts(pod, key, at(limit, &[given]));
            }
        }
    }
}

fn set_amounts(pod: &mut Value, key: &str, amounts: &Value) {
    let Some(amounts) = amounts.as_object() else { return };
    let spec = entry(pod, "spec");
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let resources = entry(container, "resources");
        let list = object_mut(resources.entry(key).or_insert_with(|| json!({})));
        for (resource, amount) in amounts {
            list.entry(resource.as_str()).or_insert_with(|| amount.clone());
        }
    }
}

/// Refuses a pod that would exceed a quota of its namespace.
pub(super) fn check_quota(cluster: &Cluster, resource: &Resource, pod: &Value) -> Result<(), ApiError> {
    let (quotas, pods) = {
        let state = cluster.state();
        let quotas = state.list(&GroupResource::core("resourcequotas"), Some(namespace(pod)));
        if quotas.is_empty() {
            return Ok(());
        }
        (quotas, state.list(&resource.id, Some(namespace(pod))))
    };
    let counted = |p: &&std::sync::Arc<Object>| {
        !matches!(text(p.value(), &["status", "phase"]), "Succeeded" | "Failed")
    };
    for quota in quotas {
        for (key, hard) in at(quota.value(), &["spec", "hard"]).as_object().into_iter().flatten() {
            let (Some(asked), Some(limit)) = (amount(pod, key), hard_limit(key, hard)) else { continue };
            let used: i64 = pods.iter().filter(counted).filter_map(|p| amount(p.value(), key)).sum();
            if asked > 0 && used.saturating_add(asked) > limit {
                let why = format!(
                    "exceeded quota: {}, requested: {key}={}, used: {key}={}, limited: {key}={}",
                    quota.key().name,
                    shown(key, asked),
                    shown(key, used),
                    shown(key, limit)
                );
                return Err(ApiError::forbidden(&resource.id, name(pod), why));
            }
        }
    }
    Ok(())
}

/// The resource that a quota's key limits the requests of; cpu counts in thousandths.
fn requested(key: &str) -> Option<&str> {
    match key {
        "cpu" | "memory" | "ephemeral-storage" => Some(key),
        other => other.strip_prefix("requests."),
    }
}

fn amount(pod: &Value, key: &str) -> Option<i64> {
    if matches!(key, "pods" | "count/pods") {
        return Some(1);
    }
    let resource = requested(key)?;
    let resources: PodResources = serde_json::from_value(at(pod, &["spec"]).clone()).ok()?;
    let requests = resources.effective_requests().ok()?;
    requests.iter().find(|(name, _)| name.as_str() == resource).map(|(_, amount)| *amount).or(Some(0))
}

fn hard_limit(key: &str, hard: &Value) -> Option<i64> {
    let quantity = Quantity::from_str(hard.as_str()?).ok()?;
    if requested(key) == Some("cpu") { quantity.milli_value() } else { Some(quantity.value()) }
}

fn shown(key: &str, amount: i64) -> String {
    match requested(key) {
        Some("cpu") => Quantity::from_millis(amount).to_string(),
        Some("memory") => Quantity::from_bytes(amount).to_string(),
        _ => amount.to_string(),
    }
}
