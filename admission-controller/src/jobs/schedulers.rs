//! Who places a job's pods.

use std::collections::BTreeSet;

use super::table::Added;
use super::{JobKind, JobObject, templates};

/// Kubernetes' own scheduler, which places pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Whether nobody chose a scheduler: none is named, or Kubernetes' own, as the API server fills it in.
pub(crate) fn is_unchosen(scheduler: &str) -> bool {
    scheduler.is_empty() || scheduler == DEFAULT_SCHEDULER
}

/// The schedulers that the pods of a job are given to, other than the one of the name `ours`; none where `ours` is empty, since
/// jobs are left as they are then.
pub fn other_schedulers(kind: &JobKind, object: &JobObject, ours: &str) -> BTreeSet<String> {
    // These pods are named ours by the webhook that sees their label.
    let is_named_late = matches!(kind.added, Added::RuntimePatches);
    let other = |template: &String| match object.text(&format!("{template}/spec/schedulerName")) {
        name if is_named_late && is_unchosen(name) => None,
        name => other(name, ours),
    };
    templates(kind, object).iter().filter_map(other).collect()
}

/// The same of a pod.
pub fn other_scheduler(pod: &JobObject, ours: &str) -> Option<String> {
    other(pod.text("/spec/schedulerName"), ours)
}

fn other(name: &str, ours: &str) -> Option<String> {
    let name = if name.is_empty() { DEFAULT_SCHEDULER } else { name };
    (name != ours && !ours.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::TABLE;
    use super::*;

    #[test]
    fn templates_tell_who_places_their_pods() {
        let kind = |name: &str| TABLE.iter().find(|one| one.kind == name).unwrap();
        let pytorch = |master: &str, worker: &str| -> JobObject {
            let role = |scheduler: &str| json!({ "template": { "spec": { "schedulerName": scheduler } } });
            serde_json::from_value(json!({
                "spec": { "pytorchReplicaSpecs": { "Master": role(master), "Worker": role(worker) } },
            }))
            .unwrap()
        };
        for (master, worker, others) in [
            ("trireme", "trireme", vec![]),
            ("trireme", "volcano", vec!["volcano"]),
            ("", "", vec!["default-scheduler"]),
            ("volcano", "default-scheduler", vec!["default-scheduler", "volcano"]),
        ] {
            let object = pytorch(master, worker);
            let told = other_schedulers(kind("PyTorchJob"), &object, "trireme");
            assert!(told.iter().eq(others.iter()), "{master:?}, {worker:?}: {told:?}");
            assert!(other_schedulers(kind("PyTorchJob"), &object, "").is_empty(), "nobody is to be named");
        }
        let pod: JobObject =
            serde_json::from_value(json!({ "spec": { "schedulerName": "volcano" } })).unwrap();
        for (ours, wanted) in [("trireme", Some("volcano")), ("volcano", None), ("", None)] {
            assert_eq!(other_scheduler(&pod, ours).as_deref(), wanted, "{ours:?}");
        }
        let train = |scheduler: &str| -> JobObject {
            let template = json!({ "spec": { "schedulerName": scheduler } });
            let job = json!({ "name": "node", "template": { "spec": { "template": template } } });
            let mut object: JobObject = serde_json::from_value(json!({ "spec": {} })).unwrap();
            object.child = json!({ "replicatedJobs": [job] });
            object
        };
        for (scheduler, others) in [("", vec![]), ("default-scheduler", vec![]), ("volcano", vec!["volcano"])]
        {
            let told = other_schedulers(kind("TrainJob"), &train(scheduler), "trireme");
            assert!(told.iter().eq(others.iter()), "{scheduler:?}: {told:?}");
        }
    }
}
