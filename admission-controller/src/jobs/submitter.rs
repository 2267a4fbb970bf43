//! The pod that submits a Ray job to its cluster.

use serde_json::{Value, json};

use super::read::one_pod;
use super::table::Submitter;
use super::{JobObject, JobPodSet};

/// The name of its pod set, and (KubeRay's) of its container.
const NAME: &str = "submitter";
const CONTAINER: &str = "ray-job-submitter";

/// What KubeRay gives the submitter (`GetDefaultSubmitterContainer` of its `common/job.go`).
fn resources() -> Value {
    json!({
        "limits": { "cpu": "1", "memory": "1Gi" },
        "requests": { "cpu": "500m", "memory": "200Mi" },
    })
}

/// Its pod set, where it is a pod by itself. KubeRay makes one of the head's image where none is described.
pub(super) fn pod_set(submitter: &Submitter, object: &JobObject, head: &str) -> Option<JobPodSet> {
    if object.text(submitter.mode) != "K8sJobMode" {
        return None;
    }
    let mut set = one_pod(NAME, submitter.template);
    if !object.at(submitter.template).is_some_and(Value::is_object) {
        let image = object.text(&format!("{head}/spec/containers/0/image"));
        let container = json!({ "name": CONTAINER, "image": image, "resources": resources() });
        set.given = Some(json!({ "spec": { "containers": [container], "restartPolicy": "Never" } }));
    }
    Some(set)
}

/// Adds the container that submits to the head's, where it does so from there.
pub(super) fn beside_head(submitter: &Submitter, object: &JobObject, containers: &mut Vec<Value>) {
    if object.text(submitter.mode) == "SidecarMode" {
        containers.push(json!({ "name": CONTAINER, "resources": resources() }));
    }
}
