//! Kinds that are told of an admission elsewhere than in their pod templates.

use crds::names::trireme;
use serde_json::{Value, json};

/// The manager under whose name a TrainJob's patches are: Kueue's, so that it finds them after a change of programs.
const MANAGER: &str = "kueue.x-k8s.io/manager";
const PATCHES: &str = "runtimePatches";
const RUNTIME_SPEC: &str = "trainingRuntimeSpec";

/// What an admission adds to the pods of a set.
pub(super) struct Addition {
    /// The pod set's name.
    pub(super) name: String,
    /// Where its template is, as a JSON pointer.
    pub(super) template: String,
    /// Labels of its pods.
    pub(super) labels: Value,
    /// Annotations of its pods.
    pub(super) annotations: Value,
    /// Node labels.
    pub(super) selector: Value,
    /// Tolerations.
    pub(super) tolerations: Value,
    /// Scheduling gates; null where there are none.
    pub(super) gates: Value,
}

impl Addition {
    /// What is added to a pod's spec.
    fn spec(&self) -> Value {
        let mut spec = json!({ "nodeSelector": self.selector, "tolerations": self.tolerations });
        if !self.gates.is_null() {
            spec["schedulingGates"] = self.gates.clone();
        }
        spec
    }
}

/// Writes the additions beside the components that the pod sets belong to, in their order.
pub(super) fn pod_set_infos(root: &mut Value, additions: &[Addition]) {
    clear_pod_set_infos(root);
    for one in additions {
        // `/spec/components/0/…`
        let component: Vec<&str> = one.template.splitn(5, '/').take(4).collect();
        let Some(Value::Object(component)) = root.pointer_mut(&component.join("/")) else { continue };
        let infos = component.entry("podSetInfos").or_insert_with(|| json!([]));
        if let Value::Array(infos) = infos {
            let mut info = one.spec();
            (info["labels"], info["annotations"]) = (one.labels.clone(), one.annotations.clone());
            infos.push(info);
        }
    }
}

/// Takes all of them away.
pub(super) fn clear_pod_set_infos(root: &mut Value) {
    let components = root.pointer_mut("/spec/components").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten().filter_map(Value::as_object_mut) {
        component.remove("podSetInfos");
    }
}

/// Writes the additions as patches of the Jobs that the runtime makes. Its pods' scheduler is named by a webhook that looks for
/// the label: there is no place for it here.
pub(super) fn runtime_patches(root: &mut Value, additions: &[Addition]) {
    let patch = |one: &Addition| {
        let mut labels = one.labels.clone();
        labels[trireme::SCHEDULED_BY] = json!(trireme::SCHEDULER_NAME);
        let template = json!({
            "metadata": { "labels": labels, "annotations": one.annotations },
            "spec": one.spec(),
        });
        json!({ "name": one.name, "template": { "spec": { "template": template } } })
    };
    let jobs: Vec<Value> = additions.iter().map(patch).collect();
    write_patches(root, Some(json!(jobs)));
}

/// Takes them away. The patch itself stays, without content: Kueue starts no job that lacks it.
pub(super) fn clear_runtime_patches(root: &mut Value) {
    if root.pointer("/spec/runtimePatches").is_some_and(has_patch) {
        write_patches(root, None);
    }
}

/// Makes room for them in a new job, as Kueue does.
pub(crate) fn begin_runtime_patches(root: &mut Value) {
    if !root.pointer("/spec/runtimePatches").is_some_and(has_patch) {
        write_patches(root, None);
    }
}

fn has_patch(patches: &Value) -> bool {
    patches.as_array().is_some_and(|patches| patches.iter().any(|patch| patch["manager"] == MANAGER))
}

fn write_patches(root: &mut Value, jobs: Option<Value>) {
    let Some(Value::Object(spec)) = root.get_mut("spec") else { return };
    let mut patches = spec.get(PATCHES).and_then(Value::as_array).cloned().unwrap_or_default();
    let of_jobs = jobs.map_or_else(|| json!({}), |jobs| json!({ "replicatedJobs": jobs }));
    let wanted = json!({ "template": { "spec": of_jobs } });
    // The trainer adds `time`, and leaves out what is empty: what it wrote of ours is not written again.
    match patches.iter_mut().find(|patch| patch["manager"] == MANAGER) {
        Some(ours) if stated(&ours[RUNTIME_SPEC]) == stated(&wanted) => return,
        Some(ours) => ours[RUNTIME_SPEC] = wanted,
        None => patches.push(json!({ "manager": MANAGER, RUNTIME_SPEC: wanted })),
    }
    spec.insert(PATCHES.to_owned(), json!(patches));
}

/// Without what is null or empty, which says nothing.
fn stated(value: &Value) -> Value {
    let says = |value: &Value| !matches!(value, Value::Null) && *value != json!({}) && *value != json!([]);
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), stated(value)));
            Value::Object(fields.filter(|(_, value)| says(value)).collect())
        }
        Value::Array(all) => all.iter().map(stated).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Since v2.2 the trainer's webhook notes when each patch was last changed, and its types leave out what is empty.
    #[test]
    fn what_the_trainer_adds_to_a_patch_stays_and_is_no_reason_to_write_again() {
        let addition = Addition {
            name: "node".to_owned(),
            template: "/unused".to_owned(),
            labels: json!({ "kueue.x-k8s.io/podset": "node" }),
            annotations: json!({}),
            selector: json!({ "gpu": "a100" }),
            tolerations: json!([]),
            gates: Value::Null,
        };
        let mut job = json!({ "spec": { "runtimePatches": [{ "manager": "somebody", "time": "2026-01-01T00:00:00Z" }] } });
        runtime_patches(&mut job, std::slice::from_ref(&addition));
        let ours = &mut job["spec"]["runtimePatches"][1];
        ours["time"] = json!("2026-01-01T00:00:01Z");
        ours["trainingRuntimeSpec"] = stated(&ours["trainingRuntimeSpec"]);
        let seen = job.clone();
        runtime_patches(&mut job, &[addition]);
        assert_eq!(job, seen);
        clear_runtime_patches(&mut job);
        let ours = &job["spec"]["runtimePatches"][1];
        assert_eq!(
            (&ours["time"], &ours["trainingRuntimeSpec"]),
            (&json!("2026-01-01T00:00:01Z"), &json!({ "template": { "spec": {} } }))
        );
        let seen = job.clone();
        clear_runtime_patches(&mut job);
        assert_eq!(job, seen);
    }
}
