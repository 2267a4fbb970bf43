//! What the pods of a kind carry that tells their order, for placing neighbours next to one another.

use serde_json::Value;

use super::table::PodSets;
use super::{JobKind, JobObject, JobPodSet};

/// Of a pod of an indexed Job, and so of a JobSet.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Of a pod of a JobSet: which of the Jobs of its template.
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// Of a pod of a role of Kubeflow's kinds.
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// Pod labels that tell the order of a pod set's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The label with a pod's number.
    pub pod_index: Option<&'static str>,
    /// The label with the number of its part of the pod set, and how many parts there are.
    pub sub_group: Option<(&'static str, i64)>,
}

/// The labels of a pod set.
pub fn ranks(kind: &JobKind, job: &JobObject, set: &JobPodSet) -> Ranks {
    match &kind.pod_sets {
        PodSets::Single { .. } => Ranks { pod_index: Some(COMPLETION_INDEX), sub_group: None },
        PodSets::Jobs { template, replicas, .. } => {
            let entry = set.template.strip_suffix(template).unwrap_or_default();
            let jobs = job.at(&format!("{entry}{replicas}")).and_then(Value::as_i64).unwrap_or(1);
            Ranks { pod_index: Some(COMPLETION_INDEX), sub_group: Some((JOB_INDEX, jobs)) }
        }
        PodSets::Roles { .. } => Ranks { pod_index: Some(REPLICA_INDEX), sub_group: None },
        PodSets::HeadAndGroups { .. } | PodSets::Components { .. } | PodSets::Declared(_) => Ranks::default(),
    }
}
