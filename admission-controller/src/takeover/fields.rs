//! Whose the fields of a Workload's status are.
//!
//! Kueue writes them by server-side apply, and withdraws a field (the admission of a Workload that it evicts, say) by applying without
//! it: that takes away only what it has applied itself. What was written here would stay, and be refused a change for ever. So the
//! API server is told that Kueue wrote it. Rules: Kueue `pkg/workload/patching`; `managedFields` in the Kubernetes API.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::reasons::workload as tokens;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kit::Context;
use kit::patch::{self, FIELD_MANAGER, Subresource, Target, WriteError, Written};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta};
use serde_json::{Map, Value, json};

use super::in_time;

/// As whom Kueue applies what belongs to an admission.
const OF_ADMISSION: &str = "kueue-admission";
/// As whom it applies `reclaimablePods`.
const OF_RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";
/// As whom it applies what it says of pods alone.
const OF_PODS: &str = "kueue-pod-controller";
/// Fields of a status that are applied with each admission: what belongs to another, or to nobody, would go with the next one.
const ADMISSION_FIELDS: [&str; 12] = [
    ".",
    "f:accumulatedPastExecutionTimeSeconds",
    "f:admission",
    "f:admissionChecks",
    "f:clusterName",
    "f:conditions",
    "f:nominatedClusterNames",
    "f:preemptionGates",
    "f:requeueState",
    "f:resourceRequests",
    "f:schedulingStats",
    "f:unhealthyNodes",
];
/// The conditions among them.
const ADMISSION_CONDITIONS: [&str; 9] = [
    tokens::QUOTA_RESERVED,
    tokens::BLOCKED_ON_PREEMPTION_GATES,
    tokens::EVICTED,
    tokens::ADMITTED,
    tokens::PREEMPTED,
    tokens::REQUEUED,
    tokens::DEACTIVATION_TARGET,
    tokens::FINISHED,
    tokens::PODS_READY,
];
/// Workloads in a page of a list.
const PAGE: u32 = 500;
/// Within this a page has to come.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Writes at a time.
const AT_ONCE: usize = 16;
/// Passes at the most: a leader that still runs writes meanwhile, and a write may fail.
const PASSES: usize = 4;
/// Between two passes of which the first failed in part.
const PAUSE: Duration = Duration::from_secs(1);
/// All of it ends within this: the command is part of the end of a release, for which somebody waits.
const LIMIT: Duration = Duration::from_secs(120);

/// So many of those that failed are named.
const NAMED: usize = 5;

/// What came of one pass.
#[derive(Default)]
struct Pass {
    done: usize,
    /// In words: what may succeed the next time.
    failed: Vec<String>,
    /// In words: what the API server, or Kueue's webhook, will answer for as long as the Workload is as it is.
    refused: Vec<String>,
}

/// Makes Kueue the one who wrote the status of every Workload. Returns what could not be done now, in words; what is refused is logged
/// only: nobody can do more, and Kueue runs such a Workload all the same.
pub(super) async fn give_back(ctx: &Context) -> Vec<String> {
    let mut last = Pass::default();
    let passes = async {
        for _ in 0..PASSES {
            last = pass(ctx).await;
            tracing::info!(workloads = last.done, "what was written to their status is Kueue's");
            match last.failed.is_empty() {
                true if last.done == 0 => break,
                true => {}
                false => ctx.clock.sleep(PAUSE).await,
            }
        }
    };
    let in_time = tokio::time::timeout(LIMIT, passes).await.is_ok();
    for refusal in &last.refused {
        tracing::warn!(
            "left under this program's name, {refusal}: Kueue cannot withdraw what was written there"
        );
    }
    let more = last.failed.len().saturating_sub(NAMED);
    last.failed.truncate(NAMED);
    if more > 0 {
        last.failed.push(format!("{more} more Workloads"));
    }
    if !in_time {
        last.failed.push(format!("Workloads: not all within {} s", LIMIT.as_secs()));
    }
    last.failed
}

async fn pass(ctx: &Context) -> Pass {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk(crds::names::kueue::GROUP, "v1beta2", "Workload"));
    let all: Api<DynamicObject> = Api::all_with(ctx.clients.write.clone(), &resource);
    let mut outcome = Pass::default();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match tokio::time::timeout(PAGE_TIMEOUT, all.list_metadata(&params)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                outcome.failed.push(format!("the list of Workloads: {error}"));
                return outcome;
            }
            Err(_elapsed) => {
                outcome.failed.push(format!("the list of Workloads: no answer within {PAGE_TIMEOUT:?}"));
                return outcome;
            }
        };
        let writes = page.items.into_iter().filter_map(|object| {
            let fields = given_back(object.metadata.managed_fields.as_deref().unwrap_or_default())?;
            Some(write(ctx, &resource, object, fields))
        });
        let mut writes = stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some((name, written)) = writes.next().await {
            match written {
                Ok(()) => outcome.done += 1,
                Err(WriteError::Gone) => {}
                Err(error @ WriteError::Refused(_)) => {
                    outcome.refused.push(format!("Workload {name}: {error}"));
                }
                Err(error) => outcome.failed.push(format!("Workload {name}: {error}")),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return outcome,
        }
    }
}

/// Returns which Workload that was, by namespace and name.
async fn write(
    ctx: &Context,
    resource: &ApiResource,
    object: PartialObjectMeta<DynamicObject>,
    fields: Vec<ManagedFieldsEntry>,
) -> (String, Result<(), WriteError>) {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", object.metadata.name.as_deref().unwrap_or_default());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.clients.write.clone(), namespace, resource);
    let body = json!({ "metadata": { "managedFields": fields } });
    let target = Target::of(&object);
    let written = in_time(patch::merge::<_, Written>(&api, &target, body, Subresource::Main)).await;
    (name, written.map(|_| ()))
}

/// `metadata.managedFields` in which Kueue has applied what this program wrote to the status; `None` where that is nothing.
fn given_back(seen: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.subresource.as_deref() == Some("status")
    };
    let (ours, others): (Vec<_>, Vec<_>) = seen.iter().partition(is_ours);
    let mut all: Vec<ManagedFieldsEntry> = others.into_iter().cloned().collect();
    let mut is_changed = false;
    for entry in ours {
        for (applier, status) in parts(entry) {
            let fields = json!({ "f:status": status });
            match applier {
                Some(applier) => {
                    apply(&mut all, applier, entry, fields);
                    is_changed = true;
                }
                None => all.push(ManagedFieldsEntry { fields_v1: Some(FieldsV1(fields)), ..entry.clone() }),
            }
        }
    }
    is_changed.then_some(all)
}

/// What an entry has of the status, by who of Kueue's applies it.
fn parts(entry: &ManagedFieldsEntry) -> BTreeMap<Option<&'static str>, Map<String, Value>> {
    let mut parts: BTreeMap<_, Map<String, Value>> = BTreeMap::new();
    let status = entry.fields_v1.as_ref().and_then(|fields| fields.0["f:status"].as_object());
    for (field, below) in status.into_iter().flatten() {
        match below.as_object().filter(|items| field == "f:conditions" && !items.is_empty()) {
            Some(items) => {
                for (item, below) in items {
                    let conditions = parts.entry(applier_of_condition(item)).or_default();
                    let conditions = conditions.entry(field.clone()).or_insert_with(|| json!({}));
                    conditions[item] = below.clone();
                }
            }
            None => {
                parts.entry(applier_of(field)).or_default().insert(field.clone(), below.clone());
            }
        }
    }
    parts
}

fn applier_of(field: &str) -> Option<&'static str> {
    match field {
        "f:reclaimablePods" => Some(OF_RECLAIMABLE_PODS),
        field => ADMISSION_FIELDS.contains(&field).then_some(OF_ADMISSION),
    }
}

/// Of an item of the list of conditions, as `managedFields` names it, or the list itself.
fn applier_of_condition(item: &str) -> Option<&'static str> {
    let Some(key) = item.strip_prefix("k:") else { return Some(OF_ADMISSION) };
    let key: Value = serde_json::from_str(key).ok()?;
    match key["type"].as_str()? {
        tokens::WAITING_FOR_REPLACEMENT_PODS => Some(OF_PODS),
        kind => ADMISSION_CONDITIONS.contains(&kind).then_some(OF_ADMISSION),
    }
}

/// Adds fields to those that a manager has applied to the status.
fn apply(all: &mut Vec<ManagedFieldsEntry>, manager: &str, of: &ManagedFieldsEntry, fields: Value) {
    let is_its = |entry: &&mut ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    };
    if let Some(entry) = all.iter_mut().find(is_its) {
        // A manager applies in one version: what a newer one does not know any more is nobody's.
        entry.api_version.clone_from(&of.api_version);
        let FieldsV1(there) = entry.fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
        return unite(there, fields);
    }
    all.push(ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Apply".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..of.clone()
    });
}

/// The union of two sets of fields. One without members is the field itself, which beside members is written `.`.
fn unite(into: &mut Value, more: Value) {
    let (Value::Object(there), Value::Object(more)) = (into, more) else { return };
    if there.is_empty() != more.is_empty() {
        there.insert(".".to_owned(), json!({}));
    }
    for (key, value) in more {
        match there.get_mut(&key) {
            Some(field) => unite(field, value),
            None => {
                there.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.into()),
            operation: Some(operation.into()),
            subresource: Some(subresource.into()).filter(|name: &String| !name.is_empty()),
            api_version: Some("kueue.x-k8s.io/v1beta2".into()),
            fields_type: Some("FieldsV1".into()),
            fields_v1: Some(FieldsV1(fields)),
            time: None,
        }
    }

    fn applied(manager: &str, status: Value) -> ManagedFieldsEntry {
        entry(manager, "Apply", "status", json!({ "f:status": status }))
    }

    fn ours(status: Value) -> ManagedFieldsEntry {
        entry("trireme", "Update", "status", json!({ "f:status": status }))
    }

    #[test]
    fn what_was_written_to_the_status_is_kueues_and_nothing_else_is() {
        let main = entry("trireme", "Update", "", json!({ "f:metadata": { "f:labels": {} } }));
        let users = entry("kubectl", "Update", "status", json!({ "f:status": { "f:clusterName": {} } }));
        let mut before = applied(
            "kueue-admission",
            json!({ "f:conditions": { "k:{\"type\":\"Admitted\"}": {} }, "f:requeueState": {}, "f:admission": { "f:a": {} } }),
        );
        before.api_version = Some("kueue.x-k8s.io/v1beta1".into());
        let written = ours(json!({
            ".": {}, "f:admission": {}, "f:conditions": { ".": {}, "k:{\"type\":\"Evicted\"}": {} },
            "f:requeueState": { "f:count": {} }, "f:reclaimablePods": { "k:{\"name\":\"main\"}": {} },
        }));
        let after = json!({
            ".": {}, "f:admission": { ".": {}, "f:a": {} },
            "f:conditions": { ".": {}, "k:{\"type\":\"Admitted\"}": {}, "k:{\"type\":\"Evicted\"}": {} },
            "f:requeueState": { ".": {}, "f:count": {} },
        });
        let pods = json!({ "f:reclaimablePods": { "k:{\"name\":\"main\"}": {} } });
        let wanted = [
            main.clone(),
            applied("kueue-admission", after),
            users.clone(),
            applied("kueue-reclaimable-pods", pods),
        ];
        assert_eq!(given_back(&[main.clone(), before, users.clone(), written]).as_deref(), Some(&wanted[..]));
        assert_eq!(given_back(&[main, users]), None);
    }

    /// Kueue applies that condition with others' name, and an admission without it: as the latter's it would go with the next one, or leave
    /// an item that is nothing but its type.
    #[test]
    fn what_kueue_says_of_pods_alone_is_not_its_admissions() {
        let pods =
            json!({ "f:conditions": { "k:{\"type\":\"WaitingForReplacementPods\"}": { "f:status": {} } } });
        let before = applied(
            "kueue-pod-controller",
            json!({ "f:conditions": { "k:{\"type\":\"WaitingForReplacementPods\"}": { ".": {}, "f:type": {} } } }),
        );
        let after = json!({ "f:conditions": {
            "k:{\"type\":\"WaitingForReplacementPods\"}": { ".": {}, "f:type": {}, "f:status": {} }
        } });
        let wanted = vec![applied("kueue-pod-controller", after)];
        assert_eq!(given_back(&[before, ours(pods)]), Some(wanted));
    }

    #[test]
    fn what_kueue_does_not_apply_stays() {
        let strange = json!({ "f:strange": {}, "f:conditions": { "k:{\"type\":\"Strange\"}": {} } });
        assert_eq!(given_back(&[ours(strange.clone())]), None);
        let mut both = strange.clone();
        both["f:admission"] = json!({});
        let wanted = vec![ours(strange), applied("kueue-admission", json!({ "f:admission": {} }))];
        assert_eq!(given_back(&[ours(both)]), Some(wanted));
    }
}
