//! What the pods of a kind carry that tells their order, for placing neighbours next to one another.

use serde_json::Value;

use super::table::{self, PodSets};
use super::{JobKind, JobObject, JobPodSet, components};

/// Of a pod of an indexed Job, and so of a JobSet.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Of a pod of a JobSet: which of the Jobs of its template.
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// Of a pod of a role of Kubeflow's kinds.
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// Annotations of what an AppWrapper says of pods of a component: the label with their number, the label with the number of their
/// part, and how many parts there are.
const SAID: [&str; 3] = [
    "workload.codeflare.dev.appwrapper/tas-pod-index-label",
    "workload.codeflare.dev.appwrapper/tas-sub-group-index-label",
    "workload.codeflare.dev.appwrapper/tas-sub-group-count",
];

/// Pod labels that tell the order of a pod set's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks<'a> {
    /// The label with a pod's number.
    pub pod_index: Option<&'a str>,
    /// The label with the number of its part of the pod set.
    pub sub_group: Option<&'a str>,
    /// How many parts there are.
    pub sub_groups: Option<i64>,
}

/// The labels of a pod set.
pub fn ranks<'a>(kind: &JobKind, job: &'a JobObject, set: &JobPodSet) -> Ranks<'a> {
    of_pods(kind, job, &set.template).unwrap_or_default()
}

/// Those of the pods that are described at this place, by an object of this kind.
fn of_pods<'a>(kind: &JobKind, job: &'a JobObject, pods: &str) -> Option<Ranks<'a>> {
    let by = |label: &'static str| Ranks { pod_index: Some(label), ..Ranks::default() };
    match &kind.pod_sets {
        PodSets::Single { .. } => Some(by(COMPLETION_INDEX)),
        PodSets::Roles { .. } => Some(by(REPLICA_INDEX)),
        PodSets::Jobs { template, replicas, .. } => {
            let entry = pods.strip_suffix(template)?;
            let jobs = job.at(&format!("{entry}{replicas}")).and_then(Value::as_i64).unwrap_or(1);
            Some(Ranks { sub_group: Some(JOB_INDEX), sub_groups: Some(jobs), ..by(COMPLETION_INDEX) })
        }
        PodSets::Components { at, template, pod_sets } => of_component(job, pods, [at, template, pod_sets]),
        PodSets::HeadAndGroups { .. } | PodSets::Declared(_) => None,
    }
}

/// Those of pods within a component: what is said of them there or, where they follow from what it wraps, what that says.
fn of_component<'a>(job: &'a JobObject, pods: &str, [at, template, said]: [&str; 3]) -> Option<Ranks<'a>> {
    let index = pods.strip_prefix(at)?.split('/').nth(1)?;
    let component = format!("{at}/{index}");
    let declared = format!("{component}{said}");
    if job.length(&declared) == 0 {
        let wrapped = format!("{component}{template}");
        let text = |field: &str| job.text(&format!("{wrapped}/{field}"));
        let kind = table::of_owner(text("apiVersion"), text("kind"))?;
        // What is wrapped twice is not looked into.
        let is_wrapper = matches!(kind.pod_sets, PodSets::Components { .. });
        return if is_wrapper { None } else { of_pods(kind, job, pods) };
    }
    let mut places = (0..job.length(&declared)).map(|set| format!("{declared}/{set}"));
    let entry = places.find(|entry| components::place(job, &component, entry) == pods)?;
    let annotations = job.at(&format!("{entry}/annotations"))?;
    let [pod_index, sub_group, count] = SAID.map(|key| annotations.get(key).and_then(Value::as_str));
    Some(Ranks { pod_index, sub_group, sub_groups: count.and_then(|count| count.parse().ok()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobs::{TABLE, read};

    fn told(components: Value) -> Vec<(Option<String>, Option<String>, Option<i64>)> {
        let kind = TABLE.iter().find(|kind| kind.kind == "AppWrapper").unwrap();
        let job: JobObject = serde_json::from_value(
            json!({ "metadata": { "name": "w" }, "spec": { "components": components } }),
        )
        .unwrap();
        let sets = read(kind, &job).pod_sets.unwrap();
        let of = |set| {
            let ranks = ranks(kind, &job, set);
            (ranks.pod_index.map(str::to_owned), ranks.sub_group.map(str::to_owned), ranks.sub_groups)
        };
        sets.iter().map(of).collect()
    }

    #[test]
    fn what_is_wrapped_has_the_order_that_it_has_alone_or_that_is_said_of_it() {
        let pods = || json!({ "spec": { "containers": [] } });
        let set = |replicas: i64| json!({ "name": "n", "replicas": replicas, "template": { "spec": { "template": pods() } } });
        let jobs = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": { "replicatedJobs": [set(1), set(3)] },
        });
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "template": pods() } });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] } });
        let index = || Some(COMPLETION_INDEX.to_owned());
        let part = || Some(JOB_INDEX.to_owned());
        assert_eq!(
            told(json!([{ "template": job }, { "template": jobs }, { "template": pod }])),
            [
                (index(), None, None),
                (index(), part(), Some(1)),
                (index(), part(), Some(3)),
                (None, None, None)
            ]
        );
        let said = |annotations: Value| {
            let declared = json!({ "path": "template.spec.template", "annotations": annotations });
            told(json!([{ "template": job, "podSets": [declared] }])).remove(0)
        };
        assert_eq!(said(json!({})), (None, None, None), "what is said counts, and nothing is");
        let all = said(json!({ SAID[0]: "a", SAID[1]: "b", SAID[2]: "2" }));
        assert_eq!(all, (Some("a".to_owned()), Some("b".to_owned()), Some(2)));
        assert_eq!(said(json!({ SAID[2]: "two" })), (None, None, None));
    }
}
