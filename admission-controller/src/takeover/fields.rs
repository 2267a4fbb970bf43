//! Whose the fields of a Workload's status are.
//!
//! Kueue writes them by server-side apply, and withdraws a field (the admission of a Workload that it evicts, say) by applying without
//! it: that takes away only what it has applied itself. What was written here would stay, and be refused a change for ever. So the
//! API server is told that Kueue wrote it. Rules: Kueue `pkg/workload/patching`; `managedFields` in the Kubernetes API.

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kit::Context;
use kit::patch::{self, FIELD_MANAGER, Subresource, Target, WriteError, Written};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Map, Value, json};

use super::{Problem, in_time};

/// As whom Kueue applies a status.
const OF_ADMISSION: &str = "kueue-admission";
/// As whom it applies `reclaimablePods`, alone.
const OF_RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";
const RECLAIMABLE_PODS: &str = "f:reclaimablePods";
/// Workloads in a page of a list.
const PAGE: u32 = 500;
/// Writes at a time.
const AT_ONCE: usize = 16;

/// What came of it.
#[derive(Default)]
pub(super) struct GivenBack {
    pub(super) done: usize,
    /// By namespace and name.
    pub(super) failed: Vec<(String, Problem)>,
}

/// Makes Kueue the one who wrote the status of every Workload.
///
/// # Errors
/// When they could not be listed.
pub(super) async fn give_back(ctx: &Context) -> Result<GivenBack, Problem> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload"));
    let all: Api<DynamicObject> = Api::all_with(ctx.clients.write.clone(), &resource);
    let mut outcome = GivenBack::default();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = in_time(async { all.list(&params).await.map_err(WriteError::from) }).await?;
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        let writes = stream::iter(page.items).map(|object| {
            let resource = &resource;
            async move {
                let (namespace, name) = (object.metadata.namespace.clone(), object.metadata.name.clone());
                let name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
                (name, give_back_one(ctx, resource, object).await)
            }
        });
        let mut writes = writes.buffer_unordered(AT_ONCE);
        while let Some((name, written)) = writes.next().await {
            match written {
                Ok(true) => outcome.done += 1,
                Ok(false) | Err(Problem::Write(WriteError::Gone)) => {}
                Err(problem) => outcome.failed.push((name, problem)),
            }
        }
        match next {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(outcome),
        }
    }
}

/// Whether anything of it was ours; on a conflict what was written meanwhile is looked at once more.
async fn give_back_one(
    ctx: &Context,
    resource: &ApiResource,
    mut object: DynamicObject,
) -> Result<bool, Problem> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.clients.write.clone(), &namespace, resource);
    let Some(fields) = given_back(object.metadata.managed_fields.as_deref().unwrap_or_default()) else {
        return Ok(false);
    };
    match write(&api, &object, &fields).await {
        Err(WriteError::Conflict(_)) => {}
        written => return written.map(|()| true).map_err(Problem::from),
    }
    let name = object.metadata.name.clone().unwrap_or_default();
    object = in_time(async { api.get(&name).await.map_err(WriteError::from) }).await?;
    match given_back(object.metadata.managed_fields.as_deref().unwrap_or_default()) {
        Some(fields) => Ok(write(&api, &object, &fields).await.map(|()| true)?),
        None => Ok(false),
    }
}

async fn write(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    fields: &[ManagedFieldsEntry],
) -> Result<(), WriteError> {
    let body = json!({ "metadata": { "managedFields": fields } });
    let target = Target::of(object);
    in_time(patch::merge::<_, Written>(api, &target, body, Subresource::Main)).await.map(|_| ())
}

/// `metadata.managedFields` in which Kueue has applied what this program wrote to the status; `None` where that is nothing.
fn given_back(seen: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.subresource.as_deref() == Some("status")
    };
    let (ours, others): (Vec<_>, Vec<_>) = seen.iter().partition(is_ours);
    if ours.is_empty() {
        return None;
    }
    let mut all: Vec<ManagedFieldsEntry> = others.into_iter().cloned().collect();
    for entry in ours {
        let mut fields = entry.fields_v1.clone().unwrap_or_default();
        let status = fields.0.get_mut("f:status").and_then(Value::as_object_mut);
        let reclaimable = status.and_then(|status| status.remove(RECLAIMABLE_PODS));
        if let Some(field) = reclaimable {
            let fields = json!({ "f:status": { RECLAIMABLE_PODS: field } });
            apply(&mut all, OF_RECLAIMABLE_PODS, entry, fields);
        }
        apply(&mut all, OF_ADMISSION, entry, fields.0);
    }
    Some(all)
}

/// Adds fields to those that a manager has applied to the status.
fn apply(all: &mut Vec<ManagedFieldsEntry>, manager: &str, of: &ManagedFieldsEntry, fields: Value) {
    let is_its = |entry: &&mut ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    };
    if let Some(entry) = all.iter_mut().find(is_its) {
        unite(&mut entry.fields_v1.get_or_insert_default().0, fields);
        return;
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
        there.insert(".".to_owned(), Value::Object(Map::new()));
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

    #[test]
    fn what_was_written_to_the_status_is_kueues_and_nothing_else_is() {
        let main = entry("trireme", "Update", "", json!({ "f:metadata": { "f:labels": {} } }));
        let users = entry("kubectl", "Update", "status", json!({ "f:status": { "f:clusterName": {} } }));
        let before = entry(
            "kueue-admission",
            "Apply",
            "status",
            json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Admitted\"}": {} }, "f:requeueState": {} } }),
        );
        let ours = entry(
            "trireme",
            "Update",
            "status",
            json!({ "f:status": {
                ".": {}, "f:admission": {}, "f:conditions": { ".": {}, "k:{\"type\":\"Evicted\"}": {} },
                "f:requeueState": { "f:count": {} }, "f:reclaimablePods": { "k:{\"name\":\"main\"}": {} },
            } }),
        );
        let after = json!({ "f:status": {
            ".": {}, "f:admission": {},
            "f:conditions": { ".": {}, "k:{\"type\":\"Admitted\"}": {}, "k:{\"type\":\"Evicted\"}": {} },
            "f:requeueState": { ".": {}, "f:count": {} },
        } });
        let pods = json!({ "f:status": { "f:reclaimablePods": { "k:{\"name\":\"main\"}": {} } } });
        let wanted = [
            main.clone(),
            entry("kueue-admission", "Apply", "status", after),
            users.clone(),
            entry("kueue-reclaimable-pods", "Apply", "status", pods),
        ];
        assert_eq!(given_back(&[main.clone(), before, users.clone(), ours]).as_deref(), Some(&wanted[..]));
        assert_eq!(given_back(&[main, users]), None);
    }

    #[test]
    fn where_kueue_wrote_nothing_all_becomes_its() {
        let fields = json!({ "f:status": { "f:admission": {} } });
        let wanted = vec![entry("kueue-admission", "Apply", "status", fields.clone())];
        assert_eq!(given_back(&[entry("trireme", "Update", "status", fields)]), Some(wanted));
    }
}
