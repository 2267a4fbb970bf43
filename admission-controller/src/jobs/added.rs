//! Kinds that are told of an admission elsewhere than in their pod templates.

use crds::names::trireme;
use serde_json::{Value, json};

/// The manager under whose name a TrainJob's patches are: Kueue's, so that it finds them after a change of programs.
const MANAGER: &str = "kueue.x-k8s.io/manager";
const PATCHES: &str = "runtimePatches";

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
    patches.retain(|patch| patch["manager"] != MANAGER);
    let of_jobs = jobs.map_or_else(|| json!({}), |jobs| json!({ "replicatedJobs": jobs }));
    let template = json!({ "spec": of_jobs });
    patches.push(json!({ "manager": MANAGER, "trainingRuntimeSpec": { "template": template } }));
    spec.insert(PATCHES.to_owned(), json!(patches));
}
