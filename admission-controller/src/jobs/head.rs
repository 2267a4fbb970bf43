//! What KubeRay adds to the head of a Ray cluster, so that it is counted.

use model::Quantity;
use serde_json::{Value, json};

use super::table::Submitter;
use super::{JobObject, submitter};
use crate::pods::Member;

/// The job keeps what the cluster knows in a Redis, unless that is described in the cluster.
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

/// The sidecar that changes the number of workers, unless more is said of it (`BuildAutoscalerContainer` of KubeRay's
/// `common/pod.go`).
fn autoscaler() -> Value {
    let amounts = json!({ "cpu": "500m", "memory": "512Mi" });
    json!({ "requests": amounts, "limits": amounts })
}

/// What the Job asks for that cleans a Redis up. It runs in the place of the head.
const CLEANUP: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "256Mi")];

/// The head's template with what is added to it; `None` where that is nothing. `cluster`: where the cluster is described.
pub(super) fn template(
    object: &JobObject,
    cluster: &str,
    head: &str,
    submitter: Option<&Submitter>,
) -> Option<Value> {
    let written = object.at(head)?;
    let mut template = written.clone();
    let containers = template.pointer_mut("/spec/containers")?.as_array_mut()?;
    let is_there =
        |field: &str| object.at(&format!("{cluster}{field}")).is_some_and(|there| !there.is_null());
    let keeps = object.annotation(FAULT_TOLERANT).eq_ignore_ascii_case("true");
    if let Some(ray) = containers.first_mut().filter(|_| keeps || is_there("/gcsFaultToleranceOptions")) {
        CLEANUP.iter().for_each(|(resource, amount)| at_least(ray, resource, amount));
    }
    if object.at(&format!("{cluster}/enableInTreeAutoscaling")) == Some(&Value::Bool(true)) {
        let said =
            object.at(&format!("{cluster}/autoscalerOptions/resources")).filter(|said| said.is_object());
        let resources = said.cloned().unwrap_or_else(autoscaler);
        containers.push(json!({ "name": "autoscaler", "resources": resources }));
    }
    if let Some(submitter) = submitter {
        submitter::beside_head(submitter, object, containers);
    }
    (template != *written).then_some(template)
}

/// Lets a container ask for as much as this. An amount that cannot be read stays, for the API server to refuse.
fn at_least(container: &mut Value, resource: &str, amount: &str) {
    let asked = container.pointer(&format!("/resources/requests/{resource}"));
    let asked = asked.map(|asked| asked.as_str().map_or_else(|| asked.to_string(), str::to_owned));
    let number = |text: &str| text.parse::<Quantity>().ok();
    let is_less = asked.is_none_or(|asked| number(&asked).is_some_and(|asked| Some(asked) < number(amount)));
    if is_less && container.is_object() {
        for part in ["resources", "requests"] {
            let parent = if part == "resources" { &mut *container } else { &mut container["resources"] };
            if !parent[part].is_object() {
                parent[part] = json!({});
            }
        }
        container["resources"]["requests"][resource] = json!(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_beside_ray_is_counted() {
        let head = |spec: Value, annotations: Value, requests: Value| {
            let mut spec = spec;
            let container = json!({ "name": "ray", "resources": { "requests": requests } });
            spec["headGroupSpec"] = json!({ "template": { "spec": { "containers": [container] } } });
            let object = json!({ "metadata": { "annotations": annotations }, "spec": spec });
            let object: JobObject = serde_json::from_value(object).unwrap();
            let made = template(&object, "/spec", "/spec/headGroupSpec/template", None)?;
            Some(made["spec"]["containers"].clone())
        };
        let none = || json!({});
        assert_eq!(head(none(), none(), none()), None);
        assert_eq!(head(json!({ "enableInTreeAutoscaling": false }), none(), none()), None);
        let scaled = head(json!({ "enableInTreeAutoscaling": true }), none(), none()).unwrap();
        assert_eq!(scaled[1], json!({ "name": "autoscaler", "resources": autoscaler() }));
        let resources = json!({ "requests": { "cpu": "2" } });
        let options =
            json!({ "enableInTreeAutoscaling": true, "autoscalerOptions": { "resources": resources } });
        assert_eq!(head(options, none(), none()).unwrap()[1]["resources"], resources);
        for (spec, annotations) in [
            (none(), json!({ FAULT_TOLERANT: "True" })),
            (json!({ "gcsFaultToleranceOptions": { "redisAddress": "redis:6379" } }), none()),
        ] {
            let made = head(spec.clone(), annotations.clone(), json!({ "cpu": "100m" })).unwrap();
            assert_eq!(made[0]["resources"]["requests"], json!({ "cpu": "200m", "memory": "256Mi" }));
            let enough = json!({ "cpu": 1, "memory": "1Gi" });
            assert_eq!(head(spec, annotations, enough), None, "it asks for as much already");
        }
    }
}
