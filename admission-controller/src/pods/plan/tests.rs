//! What follows for pods and their Workload.

use crds::view::workload::WorkloadSpec;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::compose::Priority;
use crate::pods::PodsKey;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const TIME: &str = "1970-01-01T00:00:00Z";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod behind its gate that may run for so many seconds, in a group of one if it is to be in a group.
fn gated(seconds: &str) -> JobObject {
    read(json!({
        "metadata": {
            "name": "p", "uid": "p",
            "labels": { kueue::MAX_EXEC_TIME_SECONDS: seconds },
            "annotations": { kueue::ROLE_HASH: "main", kueue::POD_GROUP_TOTAL_COUNT: "1" },
        },
        "spec": { "schedulingGates": [{ "name": kueue::ADMISSION_GATE }] },
    }))
}

/// A Workload of such a pod that may run for a minute, of which this is true.
fn of_a_minute(holds: &[&str]) -> Workload {
    let said = |kind: &&str| {
        let (status, reason) = ("True", "Test");
        json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": TIME })
    };
    let conditions: Vec<Value> = holds.iter().map(said).collect();
    read(json!({
        "metadata": { "name": "w", "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE] },
        "spec": {
            "maximumExecutionTimeSeconds": 60,
            "podSets": [{ "name": "main", "count": 1, "template": { "spec": {} } }],
        },
        "status": { "conditions": conditions },
    }))
}

fn known() -> Known<'static> {
    Known {
        priority: None,
        is_name_taken: false,
        prebuilt: None,
        compared: None,
        reclaims: true,
        is_unqueued: false,
        ends_orphans: true,
        gates: Gates::default(),
        is_outlived: false,
        now: NOW,
    }
}

fn planned(key: PodsKey, pod: &JobObject, workload: &Workload) -> Plan {
    plan(&Group::new(key, [pod]).unwrap(), Some(workload), known())
}

#[test]
fn an_edit_behind_the_gate_is_followed_before_the_pod_is_let_go() {
    const RESERVED: &str = tokens::QUOTA_RESERVED;
    for (seconds, holds, wanted) in [
        ("60", &[][..], Step::Nothing),
        ("60", &[RESERVED], Step::Nothing),
        ("90", &[], Step::UpdateWorkload),
        ("90", &[tokens::EVICTED], Step::UpdateWorkload),
        ("90", &[RESERVED], Step::DeleteWorkload),
        ("90", &[RESERVED, tokens::EVICTED], Step::Release),
        ("90", &[RESERVED, tokens::ADMITTED], Step::Nothing),
        ("90", &[tokens::FINISHED], Step::Nothing),
    ] {
        let plan = planned(PodsKey::One("p".into()), &gated(seconds), &of_a_minute(holds));
        assert_eq!(plan.workload, PodsStep::Job(wanted), "{seconds} {holds:?}");
        let stays = plan.pods.iter().all(|(_, step)| *step == PodStep::Start);
        assert!(stays, "{seconds} {holds:?}: {:?}", plan.pods);
    }
}

#[test]
fn a_pod_that_names_no_queue_any_more_waits_for_one_where_it_may() {
    let mut workload = of_a_minute(&[]);
    workload.spec.queue_name = Some("a".to_owned());
    for (is_unqueued, wanted) in [(false, Step::ChangeQueue(None)), (true, Step::Nothing)] {
        let known = Known { is_unqueued, ..known() };
        let pod = gated("60");
        let group = Group::new(PodsKey::One("p".into()), [&pod]).unwrap();
        assert_eq!(plan(&group, Some(&workload), known).workload, PodsStep::Job(wanted));
    }
}

/// What was evicted says so until it has quota again.
#[test]
fn a_pod_that_waits_again_is_worth_what_its_class_says_now() {
    let class = Some((kueue::GROUP, kueue::WORKLOAD_PRIORITY_CLASS, "high".to_owned()));
    let high = Priority { value: 100, class };
    for (holds, wanted) in [
        (&[tokens::EVICTED][..], Step::ChangePriority),
        (&[tokens::EVICTED, tokens::QUOTA_RESERVED], Step::Release),
    ] {
        let known = Known { priority: Some(&high), ..known() };
        let pod = gated("60");
        let group = Group::new(PodsKey::One("p".into()), [&pod]).unwrap();
        assert_eq!(plan(&group, Some(&of_a_minute(holds)), known).workload, PodsStep::Job(wanted));
    }
}

#[test]
fn a_pod_does_not_go_with_a_workload_that_was_deleted_for_an_edit() {
    let mut workload = of_a_minute(&[tokens::QUOTA_RESERVED]);
    workload.metadata.deletion_timestamp = Some(read(json!(TIME)));
    // With one that goes, the Workload is kept until it has gone.
    for (seconds, goes, wanted) in [("60", true, Step::Nothing), ("90", false, Step::RemoveFinalizer)] {
        let plan = planned(PodsKey::One("p".into()), &gated(seconds), &workload);
        assert_eq!(plan.workload, PodsStep::Job(wanted));
        assert_eq!(!plan.pods.is_empty(), goes, "{:?}", plan.pods);
    }
}

#[test]
fn a_group_that_waits_keeps_its_workload_when_it_changes() {
    for (holds, wanted) in [
        (&[][..], Step::UpdateWorkload),
        (&[tokens::EVICTED], Step::UpdateWorkload),
        (&[tokens::QUOTA_RESERVED], Step::DeleteWorkload),
        (&[tokens::FINISHED], Step::DeleteWorkload),
    ] {
        let plan = planned(PodsKey::group("team", "ring"), &gated("90"), &of_a_minute(holds));
        assert_eq!(plan.workload, PodsStep::Job(wanted), "{holds:?}");
    }
}

/// Its node may be lost, and the object stay for as long.
#[test]
fn a_deleted_pod_keeps_its_quota_while_it_can_still_run() {
    const ADMITTED: &[&str] = &[tokens::QUOTA_RESERVED, tokens::ADMITTED];
    let ends = || {
        let message = "the job that it was made for is gone".to_owned();
        Step::Finish { reason: tokens::finished::OWNER_NOT_FOUND, message }
    };
    for (phase, deleted, holds, wanted) in [
        ("Running", "1969-12-31T23:59:31Z", ADMITTED, Step::Nothing),
        ("Running", "1969-12-31T23:59:30Z", ADMITTED, ends()),
        ("Pending", TIME, ADMITTED, ends()),
        ("Failed", TIME, ADMITTED, ends()),
        ("Running", TIME, &[], ends()),
        ("Pending", TIME, &[], ends()),
        ("Failed", TIME, &[tokens::FINISHED], Step::Nothing),
    ] {
        let mut pod = gated("60");
        pod.metadata.deletion_timestamp = Some(read(json!(deleted)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        pod.status = json!({ "phase": phase });
        let group = Group::new(PodsKey::One("p".into()), [&pod]).unwrap();
        let step = |ends_orphans| {
            plan(&group, Some(&of_a_minute(holds)), Known { ends_orphans, ..known() }).workload
        };
        assert_eq!(step(true), PodsStep::Job(wanted), "{phase} {deleted} {holds:?}");
        assert_eq!(step(false), PodsStep::Job(Step::Nothing), "FinishOrphanedWorkloads closed");
    }
}

/// As in Kueue, whose Workload would be another: it is for so many pods.
#[test]
fn a_pod_does_not_go_by_a_workload_for_several() {
    const RUNS: &[&str] = &[tokens::QUOTA_RESERVED, tokens::ADMITTED];
    let set = |name: &str, count: i64| json!({ "name": name, "count": count, "template": { "spec": {} } });
    let fewer = json!({ "name": "main", "count": 1, "minCount": 1, "template": { "spec": {} } });
    for (sets, is_its) in [
        (json!([set("main", 1)]), true),
        (json!([{ "name": "main", "template": { "spec": {} } }]), true),
        (json!([set("main", 2)]), false),
        (json!([set("main", 1), set("other", 1)]), false),
        (json!([fewer]), false),
    ] {
        let with = |holds: &[&str]| Workload {
            spec: WorkloadSpec { pod_sets: read(sets.clone()), ..of_a_minute(holds).spec },
            ..of_a_minute(holds)
        };
        let waiting = planned(PodsKey::One("p".into()), &gated("60"), &with(&[]));
        let wanted = if is_its { Step::Nothing } else { Step::UpdateWorkload };
        assert_eq!(waiting.workload, PodsStep::Job(wanted), "{sets}");
        let mut running = gated("60");
        (running.spec, running.status) = (json!({}), json!({ "phase": "Running" }));
        let running = planned(PodsKey::One("p".into()), &running, &with(RUNS));
        assert_eq!(running.pods.is_empty(), is_its, "{sets}: {:?}", running.pods);
    }
}

/// Nobody else would let go of it.
#[test]
fn a_pod_that_fits_no_role_is_let_go_with_its_group() {
    let member = |name: &str, role: &str, phase: &str| -> JobObject {
        let annotations = json!({ kueue::ROLE_HASH: role, kueue::POD_GROUP_TOTAL_COUNT: "1" });
        read(json!({
            "metadata": {
                "name": name, "uid": name, "annotations": annotations, "finalizers": [kueue::MANAGED],
                "creationTimestamp": TIME,
            },
            "spec": {}, "status": { "phase": phase },
        }))
    };
    for (phase, holds, fits, strange) in [
        ("Running", &[tokens::QUOTA_RESERVED, tokens::ADMITTED][..], false, false),
        // What has succeeded stays until that is said.
        ("Succeeded", &[tokens::QUOTA_RESERVED, tokens::ADMITTED], false, true),
        ("Succeeded", &[tokens::FINISHED], true, true),
    ] {
        let pods = [member("fits", "main", phase), member("strange", "other", "Pending")];
        let mut workload = of_a_minute(holds);
        workload.spec.maximum_execution_time_seconds = None;
        workload.metadata.annotations = read(json!({ kueue::IS_GROUP_WORKLOAD: "true" }));
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "fits", "uid": "fits" });
        workload.metadata.owner_references = read(json!([owner]));
        let group = Group::new(PodsKey::group("team", "ring"), &pods).unwrap();
        let steps = plan(&group, Some(&workload), known()).pods;
        let let_go = |name: &str| steps.contains(&(name.into(), PodStep::LetGo));
        assert_eq!((let_go("fits"), let_go("strange")), (fits, strange), "{phase} {holds:?}: {steps:?}");
    }
}

/// One that has not come to run would run on the next admission of its group, where the one before sent it.
#[test]
fn an_evicted_group_keeps_its_quota_until_its_pods_are_told_to_go() {
    let pod = |marked: bool, leaves: bool| -> JobObject {
        let target = json!([{ "type": "TerminationTarget", "status": "True" }]);
        read(json!({
            "metadata": {
                "name": "p", "uid": "p", "creationTimestamp": TIME, "finalizers": [kueue::MANAGED],
                "annotations": { kueue::ROLE_HASH: "main", kueue::POD_GROUP_TOTAL_COUNT: "1" },
                "deletionTimestamp": leaves.then_some(TIME),
            },
            "spec": {}, "status": { "phase": "Pending", "conditions": if marked { target } else { json!([]) } },
        }))
    };
    for (marked, leaves, wanted) in
        [(false, false, Step::Nothing), (true, false, Step::Nothing), (true, true, Step::Release)]
    {
        let mut holds = vec![tokens::QUOTA_RESERVED, tokens::ADMITTED, tokens::EVICTED];
        // What goes is one too few: that is said before.
        holds.extend(leaves.then_some(tokens::WAITING_FOR_REPLACEMENT_PODS));
        let mut workload = of_a_minute(&holds);
        workload.spec.maximum_execution_time_seconds = None;
        workload.metadata.annotations = read(json!({ kueue::IS_GROUP_WORKLOAD: "true" }));
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p" });
        workload.metadata.owner_references = read(json!([owner]));
        let pods = [pod(marked, leaves)];
        let group = Group::new(PodsKey::group("team", "ring"), &pods).unwrap();
        let plan = plan(&group, Some(&workload), known());
        assert_eq!(plan.workload, PodsStep::Job(wanted), "{marked} {leaves}: {:?}", plan.pods);
        assert_eq!(!plan.pods.is_empty(), !leaves, "{:?}", plan.pods);
    }
}

/// Its gate was lifted by somebody else, or its Workload lost its admission while nobody looked.
#[test]
fn a_pod_that_runs_without_an_admission_is_told_to_go() {
    let pod = |marked: bool| -> JobObject {
        let target = json!([{ "type": "TerminationTarget", "status": "True" }]);
        read(json!({
            "metadata": { "name": "p", "uid": "p", "creationTimestamp": TIME, "finalizers": [kueue::MANAGED] },
            "spec": {}, "status": { "phase": "Running", "conditions": if marked { target } else { json!([]) } },
        }))
    };
    for (marked, holds, wanted) in [
        (false, &[][..], Some("NotAdmitted")),
        (false, &[tokens::QUOTA_RESERVED], Some("NotAdmitted")),
        (true, &[], None),
    ] {
        let mut workload = of_a_minute(holds);
        workload.spec.maximum_execution_time_seconds = None;
        let steps = planned(PodsKey::One("p".into()), &pod(marked), &workload).pods;
        let why = steps.iter().find_map(|(_, step)| match step {
            PodStep::Mark(why, _) => Some(why.token()),
            _ => None,
        });
        assert_eq!(why.as_deref(), wanted, "{marked} {holds:?}: {steps:?}");
        assert_eq!(steps.contains(&("p".into(), PodStep::Delete)), marked, "{steps:?}");
    }
    let admitted = of_a_minute(&[tokens::QUOTA_RESERVED, tokens::ADMITTED]);
    assert_eq!(planned(PodsKey::One("p".into()), &pod(false), &admitted).pods, []);
}
