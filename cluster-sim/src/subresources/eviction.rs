use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::delete::DeleteOptions;
use crate::error::ApiError;
use crate::object::{Object, ObjectKey, at, entry, text};
use crate::request::{Query, Target};
use crate::resources::GroupResource;
use crate::selectors::LabelFilter;
use crate::write::{Caller, Subject};
use crate::{Part, Verb};

/// Deletes a pod if the disruption budgets that cover it allow it, and counts it against them.
pub(super) async fn evict(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    body: &Value,
) -> Result<(), ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let namespace = target.namespace_or_empty();
    let key = ObjectKey::new(namespace, name);
    let pod = cluster.object(&target.resource.id, &key)?;
    let options = at(body, &["deleteOptions"]);
    let options = match options {
        Value::Null => DeleteOptions::default(),
        given => DeleteOptions::parse(given.to_string().as_bytes(), "application/json", &Query::default())?,
    };
    let phase = text(pod.value(), &["status", "phase"]);
    let counts = !matches!(phase, "Succeeded" | "Failed" | "Pending") && !pod.is_terminating();
    if counts {
        spend(cluster, caller, &pod).await?;
    }
    if caller.dry_run || options.dry_run {
        return Ok(());
    }
    if !text(pod.value(), &["spec", "nodeName"]).is_empty()
        && options.uid.as_deref().is_none_or(|u| u == &**pod.uid())
    {
        say_why(cluster, caller, target, &key).await?;
    }
    crate::delete::delete(cluster, caller, &target.resource, &key, &options).await.map(|_| ())
}

/// Puts the condition DisruptionTarget on the pod (KEP-3329).
async fn say_why(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    key: &ObjectKey,
) -> Result<(), ApiError> {
    let subject = Subject {
        resource: target.resource.clone(),
        version: target.version,
        key: key.clone(),
        part: Part::Status,
        whole: false,
    };
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": cluster.timestamp(),
    });
    let mut change = |pod: &Value| {
        let mut pod = pod.clone();
        let conditions = entry(&mut pod, "status").entry("conditions").or_insert_with(|| json!([]));
        if let Some(list) = conditions.as_array_mut() {
            list.retain(|c| text(c, &["type"]) != "DisruptionTarget");
            list.push(condition.clone());
        }
        Ok(pod)
    };
    let caller = Caller { verb: Verb::Patch, ..caller.clone() };
    crate::write::update(cluster, &caller, &subject, &mut change).await.map(|_| ())
}

async fn spend(cluster: &Cluster, caller: &Caller, pod: &Arc<Object>) -> Result<(), ApiError> {
    let id = GroupResource::new("policy", "poddisruptionbudgets");
    let covers = |budget: &Object| {
        let selector = at(budget.value(), &["spec", "selector"]);
        selector.is_object() && LabelFilter::from_object(selector).matches(pod.value())
    };
    let budgets: Vec<_> =
        cluster.state().list(&id, Some(&pod.key().namespace)).into_iter().filter(|b| covers(b)).collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            return Err(ApiError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let subject = Subject {
        resource: cluster.resource(&id)?,
        version: 0,
        key: budget.key().clone(),
        part: Part::Status,
        whole: false,
    };
    let name = budget.key().name.clone();
    let now = cluster.timestamp();
    let mut change = |value: &Value| {
        let allowed = at(value, &["status", "disruptionsAllowed"]).as_i64().unwrap_or(0);
        if allowed <= 0 {
            let needed = at(value, &["status", "desiredHealthy"]).as_i64().unwrap_or(0);
            let healthy = at(value, &["status", "currentHealthy"]).as_i64().unwrap_or(0);
            let message = format!(
                "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            );
            let mut error = ApiError::too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                10,
            );
            error.details = Some(Box::new(json!({})));
            error.retry_after = None;
            return Err(error.with_cause("DisruptionBudget", &message, ""));
        }
        let mut value = value.clone();
        let status = entry(&mut value, "status");
        status.insert("disruptionsAllowed".into(), (allowed - 1).into());
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        crate::object::object_mut(disrupted).insert(pod.key().name.to_string(), now.as_str().into());
        Ok(value)
    };
    let caller = Caller { verb: Verb::Patch, ..caller.clone() };
    crate::write::update(cluster, &caller, &subject, &mut change).await.map(|_| ())
}
