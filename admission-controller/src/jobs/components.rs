//! The pods of what is wrapped: whole objects, each with pods of its own.

use serde_json::{Map, Value, json};

use super::read::{self, MAX_POD_SETS, count};
use super::table::{self, PodSets};
use super::{JobKind, JobObject, JobPodSet, group_of};
use crate::pods;

/// The pod sets of all components, in order, called after the job and numbered through.
pub(super) fn pod_sets(kind: &JobKind, object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    let PodSets::Components { at, template, pod_sets } = &kind.pod_sets else { return Ok(Vec::new()) };
    let name = object.metadata.name.as_deref().unwrap_or_default().to_lowercase();
    let mut sets: Vec<JobPodSet> = Vec::new();
    for index in 0..object.length(at) {
        // Each is a whole template, and a Workload cannot hold more.
        if sets.len() > MAX_POD_SETS {
            break;
        }
        let here = format!("{at}/{index}");
        let declared = format!("{here}{pod_sets}");
        let of_component = match object.length(&declared) {
            0 => inferred(object, &format!("{here}{template}"))?,
            length => (0..length.min(MAX_POD_SETS + 1))
                .map(|set| described(object, &here, &format!("{declared}/{set}")))
                .collect::<Result<_, _>>()?,
        };
        sets.extend(of_component);
    }
    for (index, set) in sets.iter_mut().enumerate() {
        set.name = format!("{name}-{index}");
        set.given = object.at(&set.template).map(as_counted);
    }
    Ok(sets)
}

/// Where the template is of a pod set that the component describes at `at`, as in `template.spec.tasks[0].template`.
pub(super) fn place(object: &JobObject, component: &str, at: &str) -> String {
    let path = object.text(&format!("{at}/path"));
    let path = path.replace('[', ".").replace(']', "");
    let pointer: String =
        path.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect();
    format!("{component}{pointer}")
}

/// One that the component describes: where its template is, and how many pods there are.
fn described(object: &JobObject, component: &str, at: &str) -> Result<JobPodSet, String> {
    let count = count(object, &format!("{at}/replicas"))?.unwrap_or(1);
    Ok(JobPodSet { count, template: place(object, component, at), ..JobPodSet::default() })
}

/// Whose pods the AppWrappers' operator finds by itself (`InferPodSets` of its `pkg/utils`). Of any other kind it knows of no pods
/// where `podSets` does not tell it, and a Workload that had some would describe another job.
const INFERRED: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
];

/// Those of an object whose component describes none.
fn inferred(object: &JobObject, at: &str) -> Result<Vec<JobPodSet>, String> {
    let text = |field: &str| object.text(&format!("{at}/{field}"));
    let (version, name) = (text("apiVersion"), text("kind"));
    let group = group_of(version);
    if !INFERRED.contains(&(version, name)) {
        return Ok(Vec::new());
    }
    if (version, name) == ("v1", "Pod") {
        return Ok(vec![JobPodSet { count: 1, template: at.to_owned(), ..JobPodSet::default() }]);
    }
    if let Some(kind) = table::of_owner(version, name) {
        let mut spec = object.at(&format!("{at}/spec")).cloned().unwrap_or_default();
        one_host_each(kind, &mut spec);
        let wrapped = JobObject { spec, ..JobObject::default() };
        let mut sets = read::described(kind, &wrapped)?;
        // The operator knows nothing of a RayJob's submitter. Others' pods may have its name.
        if let PodSets::HeadAndGroups { submitter: Some(submitter), .. } = &kind.pod_sets {
            sets.retain(|set| set.template != submitter.template);
        }
        sets.iter_mut().for_each(|set| set.template = format!("{at}{}", set.template));
        return Ok(sets);
    }
    if let Some(owner) = pods::of_kind(group, name) {
        let count = count(object, &format!("{at}/spec/replicas"))?.unwrap_or(1);
        let template = format!("{at}{}", owner.templates[0]);
        return Ok(vec![JobPodSet { count, template, ..JobPodSet::default() }]);
    }
    Ok(Vec::new())
}

/// Of Ray's groups the operator counts `replicas`, however many hosts each has.
fn one_host_each(kind: &JobKind, spec: &mut Value) {
    let PodSets::HeadAndGroups { at, pods_each, .. } = &kind.pod_sets else { return };
    let groups = at.strip_prefix("/spec").and_then(|at| spec.pointer_mut(at)).and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten().filter_map(Value::as_object_mut) {
        group.remove(pods_each.trim_start_matches('/'));
    }
}

/// What of a container counts, and is compared: what the AppWrappers' operator hands to Kueue of one (`GetPodTemplateSpec` of its
/// `pkg/utils`). Kueue stops a job whose Workload has more, or other defaults.
const COUNTED: [&str; 9] = [
    "name",
    "image",
    "command",
    "args",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
];

/// The template of what may be a whole pod, as the AppWrappers' operator reads it.
fn as_counted(template: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["labels", "annotations"] {
        if let Some(map) = template.pointer(&format!("/metadata/{field}")).filter(|map| map.is_object()) {
            metadata[field] = map.clone();
        }
    }
    let mut spec = template.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(keep_counted);
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("resources");
    }
    json!({ "metadata": metadata, "spec": spec })
}

fn keep_counted(container: &mut Map<String, Value>) {
    container.retain(|field, _| COUNTED.contains(&field.as_str()));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull = if is_latest(image) { "Always" } else { "IfNotPresent" };
    for (field, default) in [
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("imagePullPolicy", pull),
    ] {
        let value = container.entry(field).or_insert(Value::Null);
        if value.as_str().is_none_or(str::is_empty) {
            *value = json!(default);
        }
    }
}

/// Whether an image is pulled each time unless somebody says otherwise: it has neither another tag nor a digest.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    !image.is_empty() && !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (image, latest) in [
            ("trainer", true),
            ("registry.example.com:5000/team/trainer", true),
            ("trainer:latest", true),
            ("trainer:1.2", false),
            ("registry.example.com:5000/team/trainer:1.2", false),
            ("trainer@sha256:0123", false),
            ("", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    /// Pods are counted whatever their set is called.
    #[test]
    fn only_the_pod_that_submits_a_ray_job_is_unknown_to_the_operator() {
        let pods = || json!({ "spec": { "containers": [{ "name": "c" }] } });
        let job = |name: &str| json!({ "name": name, "replicas": 4, "template": { "spec": { "template": pods() } } });
        let cluster = || {
            json!({
                "headGroupSpec": { "template": pods() },
                "workerGroupSpecs": [{ "groupName": "submitter", "replicas": 3, "template": pods() }],
            })
        };
        let jobs = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "spec": { "replicatedJobs": [job("submitter"), job("w")] },
        });
        let ray = json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster() });
        let submitted = json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob",
            "spec": { "submissionMode": "K8sJobMode", "rayClusterSpec": cluster(), "submitterPodTemplate": pods() },
        });
        let kind = table::TABLE.iter().find(|kind| kind.kind == "AppWrapper").unwrap();
        for (wrapped, counts) in [(jobs, [4, 4]), (ray, [1, 3]), (submitted, [1, 3])] {
            let job = JobObject {
                spec: json!({ "components": [{ "template": wrapped }] }),
                ..JobObject::default()
            };
            let sets = pod_sets(kind, &job).unwrap();
            assert_eq!(sets.iter().map(|set| set.count).collect::<Vec<_>>(), counts, "{wrapped}");
        }
    }

    #[test]
    fn of_a_container_counts_what_the_operator_tells_of_it() {
        let pod = json!({ "metadata": { "name": "p", "labels": { "a": "b" } }, "spec": {
            "restartPolicy": "Never",
            "resources": { "requests": { "cpu": "4" } },
            "initContainers": [{ "name": "i", "image": "x:1", "restartPolicy": "Always" }],
            "containers": [{ "name": "c", "image": "x", "env": [{ "name": "A", "value": "b" }],
                "resources": { "requests": { "cpu": "1" } }, "terminationMessagePolicy": "" }],
        }});
        let filled = |name: &str, image: &str, pull: &str| {
            json!({ "name": name, "image": image, "imagePullPolicy": pull,
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" })
        };
        let mut main = filled("c", "x", "Always");
        main["resources"] = json!({ "requests": { "cpu": "1" } });
        let spec = json!({ "restartPolicy": "Never", "containers": [main],
            "initContainers": [filled("i", "x:1", "IfNotPresent")] });
        assert_eq!(as_counted(&pod), json!({ "metadata": { "labels": { "a": "b" } }, "spec": spec }));
    }
}
