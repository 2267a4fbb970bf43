//! Workloads that somebody else makes for a job (`kueue.x-k8s.io/prebuilt-workload-name`).

use crds::validation::same_template;
use crds::view::workload::Workload;
use serde_json::{Value, json};

use crate::compose;
use crate::jobs::{Added, JobView};
use crate::pods::prebuilt;
use crate::reconcile::Job;

/// Calls the pod sets of a job as they are called in the Workload that somebody else made for it: which is which is said by their
/// order alone (Kueue's `ComparePodSetSlices`). Not where what an admission adds goes to the parts of a job by their names.
pub(crate) fn take_names(job: &mut Job, workload: &Workload) {
    let written = &workload.spec.pod_sets;
    let JobView { pod_sets: Ok(sets), reclaimable, .. } = &mut job.view else { return };
    let goes_by_name = matches!(job.kind.added, Added::RuntimePatches);
    if goes_by_name || prebuilt(&job.object).is_none() || sets.len() != written.len() {
        return;
    }
    for ended in reclaimable.iter_mut().flatten() {
        let place = sets.iter().position(|set| set.name == ended.name);
        if let Some(named) = place.and_then(|place| written.get(place)) {
            ended.name.clone_from(&named.name);
        }
    }
    for (set, named) in sets.iter_mut().zip(written.iter()) {
        set.name.clone_from(&named.name);
    }
}

/// Whether a job runs what a Workload describes that somebody else made for it, both as they were when they were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    of: (Option<i64>, Option<String>, Option<i64>),
    is_same: bool,
}

impl Compared {
    /// What came of it; `None` where one of them was edited since.
    pub fn holds_for(&self, job: &Job, workload: &Workload) -> Option<bool> {
        (self.of == generations(job, workload)).then_some(self.is_same)
    }
}

/// Compares the containers of a job with those that its Workload describes, whose spec is `spec` as it was written: all that is
/// said of them counts, as the API server has it. Whether they have as many pod sets is told by what is kept of the Workload.
pub fn compare(job: &Job, workload: &Workload, spec: &Value) -> Compared {
    let none = Vec::new();
    let written = spec["podSets"].as_array().unwrap_or(&none);
    let sets = job.view.pod_sets.as_deref().unwrap_or_default();
    let mut pairs = written.iter().zip(sets);
    let is_same = pairs.all(|(written, set)| {
        let mut described = json!({ "template": set.template_in(&job.object) });
        compose::drop_hidden_variables(&mut described);
        same_template(&containers(&described), &containers(written))
    });
    Compared { of: generations(job, workload), is_same }
}

fn generations(job: &Job, workload: &Workload) -> (Option<i64>, Option<String>, Option<i64>) {
    let metadata = &workload.metadata;
    (job.object.metadata.generation, metadata.uid.clone(), metadata.generation)
}

/// The template of a pod set with nothing but its containers and the claims that they may name.
fn containers(pod_set: &Value) -> Value {
    let spec = &pod_set["template"]["spec"];
    let (containers, initial) = (&spec["containers"], &spec["initContainers"]);
    json!({ "spec": { "containers": containers, "initContainers": initial, "resourceClaims": spec["resourceClaims"] } })
}

#[cfg(test)]
mod tests {
    use crds::view::workload::ReclaimablePod;

    use super::*;
    use crate::jobs::{JobObject, TABLE, read};

    fn job(object: Value) -> Job {
        let kind = TABLE.iter().find(|kind| kind.kind == "JobSet").unwrap();
        let mut object: JobObject = serde_json::from_value(object).unwrap();
        let annotations = [("kueue.x-k8s.io/prebuilt-workload-name".to_owned(), "w".to_owned())];
        object.metadata.annotations = Some(annotations.into());
        let view = read(kind, &object);
        Job { kind, object, view }
    }

    fn job_set(names: &[&str], container: &Value) -> Value {
        let set = |name: &&str| {
            let template = json!({ "spec": { "containers": [container] } });
            json!({ "name": name, "replicas": 2, "template": { "spec": { "template": template } } })
        };
        let sets: Vec<Value> = names.iter().map(set).collect();
        let status = json!([{ "name": names[0], "succeeded": 1 }]);
        json!({ "spec": { "replicatedJobs": sets }, "status": { "replicatedJobsStatus": status } })
    }

    #[test]
    fn pod_sets_have_the_names_that_they_have_in_the_workload() {
        let workload = |names: &[&str]| -> Workload {
            let sets: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
            serde_json::from_value(json!({ "metadata": {}, "spec": { "podSets": sets } })).unwrap()
        };
        let given = ["a", "b"];
        let cases = [(vec!["b", "a"], ["b", "a"]), (vec!["x", "y"], ["x", "y"]), (vec!["x"], given)];
        for (written, wanted) in cases {
            let mut job = job(job_set(&given, &json!({})));
            take_names(&mut job, &workload(&written));
            let names: Vec<String> = job.view.pod_sets.unwrap().into_iter().map(|set| set.name).collect();
            assert_eq!(names, wanted);
            let ended = ReclaimablePod { name: wanted[0].to_owned(), count: 1 };
            assert_eq!(job.view.reclaimable, Some(vec![ended]), "{written:?}");
        }
        let mut own = job(job_set(&given, &json!({})));
        own.object.metadata.annotations = None;
        take_names(&mut own, &workload(&["x", "y"]));
        assert_eq!(own.view.pod_sets.unwrap()[0].name, "a", "its own Workload is called as it is");
    }

    #[test]
    fn containers_are_compared_in_full_by_what_they_mean() {
        let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
        let container = |image: &str, cpu: &str, env: Value| {
            let resources = json!({ "requests": { "cpu": cpu } });
            json!({ "name": "c", "image": image, "env": env, "resources": resources })
        };
        let twice = json!([variable("A", "0"), variable("A", "1")]);
        let job = job(job_set(&["a"], &container("x", "1", twice)));
        let once = |image: &str, cpu: &str| container(image, cpu, json!([variable("A", "1")]));
        let workload = |template: Value| json!({ "podSets": [{ "name": "other", "template": template }] });
        for (spec, wanted) in [
            (json!({ "containers": [once("x", "1000m")], "initContainers": [] }), true),
            (json!({ "containers": [once("x", "1")], "nodeSelector": { "disk": "ssd" } }), true),
            (json!({ "containers": [once("y", "1")] }), false),
            (json!({ "containers": [once("x", "2")] }), false),
            (json!({ "containers": [container("x", "1", json!([]))] }), false),
            (json!({ "containers": [once("x", "1")], "initContainers": [{ "name": "i" }] }), false),
        ] {
            let view = Workload::default();
            let compared = compare(&job, &view, &workload(json!({ "spec": spec })));
            assert_eq!(compared.holds_for(&job, &view), Some(wanted), "{spec}");
            let (mut edited, mut other) = (job.clone(), view.clone());
            edited.object.metadata.generation = Some(2);
            other.metadata.generation = Some(2);
            assert_eq!((compared.holds_for(&edited, &view), compared.holds_for(&job, &other)), (None, None));
        }
    }
}
