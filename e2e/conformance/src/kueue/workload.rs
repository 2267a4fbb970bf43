//! Facts about one Workload.

use std::collections::BTreeSet;

use admission_controller::bounds::{self, Violation};
use admission_controller::compose::{self, Priorities};
use admission_controller::defaults::PodDefaults;
use admission_controller::input::{self, QueueOrder};
use admission_controller::phase::{self, Phase};
use admission_controller::requests::Rules;
use admission_controller::{checks, reclaimable, requeue, status};
use crds::view::cluster_queue::ClusterQueue;
use crds::view::workload::{AdmissionCheckState, ReclaimablePod, Workload, WorkloadSpec};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::pod::PodResources;
use quota_engine::input::Standing;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cycle::{differences, gates};
use super::write;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("workload.TestAdjustResources", adjust_resources),
    ("workload.TestAdmissionChecksForWorkload", checks_of_workload),
    ("workload.TestEvictionPendingLatency", eviction_latency),
    ("workload.TestFilterChecksForAdmission", checks_of_admission),
    ("workload.TestFromQuotaReservedOrAdmittedToPending", fell_back),
    ("workload.TestGetMaxRetryTime", retry_time),
    ("workload.TestGetQueueOrderTimestamp", queue_order),
    ("workload.TestIsOnHold", on_hold),
    ("workload.TestLimitReclaimablePodsToPodSetSizes", limit_reclaimable),
    ("workload.TestReclaimablePodsAreEqual", same_reclaimable),
    ("workload.TestSetQuotaReservation", reservation),
    ("workload.TestSetRequeueState", requeue_state),
    ("workload.TestSyncAdmittedCondition", sync_admitted),
    ("workload.TestTotalExecutionTime", execution_time),
    ("workload.TestUpdateReclaimablePods", update_reclaimable),
    ("workload.TestValidateResources", validate_resources),
    ("workload.TestWorkloadPriorityClassChanged", revalued),
];

/// The time of cases that have none.
const NOW: &str = "2026-01-01T00:00:00Z";

/// An object as the program sees it. What Go leaves out or writes as null of a time is the beginning of time.
pub(super) fn seen<K: DeserializeOwned>(object: &Value) -> K {
    let object = stored(object);
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// The same as the API server has it.
fn stored(object: &Value) -> Value {
    let mut object = whole(object);
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["lastTransitionTime"].is_null() {
            condition["lastTransitionTime"] = json!("0001-01-01T00:00:00Z");
        }
    }
    object
}

/// Without what says nothing: null, empty lists, and the state of a check that has none.
fn whole(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let says = |key: &str, value: &Value| {
                let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
                !(is_empty || key == "state" && value == "")
            };
            map.iter()
                .filter(|(key, value)| says(key, value))
                .map(|(key, value)| (key.clone(), whole(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(whole).collect(),
        other => other.clone(),
    }
}

fn list<K: DeserializeOwned>(value: &Value) -> Vec<K> {
    value.as_array().into_iter().flatten().map(seen).collect()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().map(|text| text.parse().unwrap())
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(given: &T, wanted: &T) -> Verdict {
    if given == wanted { Ok(()) } else { Err(format!("  given {given:?}\n wanted {wanted:?}")) }
}

fn adjust_resources(case: &Case) -> Verdict {
    let tc = case.tc();
    let defaults = defaults(&tc["limitranges"], &tc["runtimeClasses"]);
    let (before, wanted): (Workload, Workload) = (seen(&tc["wl"]), seen(&tc["wantWl"]));
    equal(&adjusted(&defaults, &before), &pods(&wanted))
}

pub(super) fn defaults(ranges: &Value, classes: &Value) -> PodDefaults {
    let mut defaults = PodDefaults::default();
    defaults.set_ranges(list(ranges).iter());
    defaults.set_classes(list(classes).iter());
    defaults
}

fn pods(view: &Workload) -> Vec<PodResources> {
    view.spec.pod_sets.iter().map(|set| set.template.spec.resources.clone()).collect()
}

fn adjusted(defaults: &PodDefaults, view: &Workload) -> Vec<PodResources> {
    let namespace = view.metadata.namespace.as_deref().unwrap_or_default();
    let sets = view.spec.pod_sets.iter().map(|set| &set.template.spec);
    sets.map(|spec| {
        defaults.applied(namespace, spec.runtime_class_name.as_deref(), &spec.resources).into_owned()
    })
    .collect()
}

fn validate_resources(case: &Case) -> Verdict {
    let view: Workload = seen(&case.tc()["workloadInfo"]["Obj"]);
    judge_violations(case.tc(), &view, bounds::above_limits)
}

/// Every violation is an invalid value of its field.
pub(super) fn judge_violations(
    tc: &Value,
    view: &Workload,
    find: impl Fn(&PodResources, &str) -> Vec<Violation>,
) -> Verdict {
    let pods = pods(view);
    let found = pods
        .iter()
        .enumerate()
        .flat_map(|(index, pod)| find(pod, &format!("spec.podSets[{index}].template.spec")));
    let given: Vec<String> = found.map(|one| format!("{}: Invalid value", one.field)).collect();
    let errors = tc["wantError"].as_array().into_iter().flatten().map(|error| text(&error["$error"]));
    let wanted: Vec<String> =
        errors.map(|error| error.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    equal(&given, &wanted)
}

fn checks_of_workload(case: &Case) -> Verdict {
    let flavor = |name: &str| json!({ "name": name });
    let check = |name: &str, flavors: &[&str]| json!({ "name": name, "onFlavors": flavors });
    let queue = json!({ "metadata": { "name": "cq" }, "spec": {
        "resourceGroups": [{ "flavors": [flavor("flavor1"), flavor("flavor2")] }],
        "admissionChecksStrategy": { "admissionChecks": [
            check("ac1", &["flavor1"]),
            check("ac2", &["flavor2"]),
            check("ac3", &["flavor1", "flavor2"]),
            check("ac4", &["flavor1", "flavor2", "non-existent-flavor"]),
            check("ac5", &["non-existent-flavor"]),
            check("ac6", &[]),
        ]},
    }});
    judge_checks(case.tc(), &seen(&queue))
}

fn checks_of_admission(case: &Case) -> Verdict {
    judge_checks(case.tc(), &seen(&case.tc()["cq"]))
}

fn judge_checks(tc: &Value, queue: &ClusterQueue) -> Verdict {
    let view: Workload = seen(&tc["wl"]);
    let given = checks::of_workload(queue, view.status.admission.as_ref());
    let wanted = tc["wantAdmissionChecks"].as_object().into_iter().flatten();
    equal(&given, &wanted.map(|(name, _)| name.as_str()).collect::<BTreeSet<&str>>())
}

fn sync_admitted(case: &Case) -> Verdict {
    let tc = case.tc();
    let before = json!({
        "metadata": { "generation": 1 },
        "status": {
            "admission": tc["admission"],
            "admissionChecks": tc["checkStates"],
            "conditions": tc["conditions"],
            "accumulatedPastExecutionTimeSeconds": tc["pastAdmittedTime"],
        },
    });
    let view: Workload = seen(&before);
    // What was admitted was so for a second.
    let admitted = view.condition("Admitted").map(|one| one.last_transition_time.0);
    let now = admitted.unwrap_or(NOW.parse().unwrap()) + jiff::SignedDuration::from_secs(1);
    let explicit = is(&tc["featureGates"]["UnadmittedWorkloadsExplicitStatus"]);
    let patch = status::synced_as(&view, explicit, now);
    equal(&patch.is_some(), &is(&tc["wantChange"]))?;
    let after = write::merged(&before, patch.as_ref());
    equal(
        &write::conditions(&after),
        &write::conditions(&json!({ "status": { "conditions": tc["wantConditions"] } })),
    )?;
    match tc["wantAdmittedTime"].as_i64().filter(|seconds| *seconds > 0) {
        Some(wanted) => {
            equal(&after["status"]["accumulatedPastExecutionTimeSeconds"].as_i64(), &Some(wanted))
        }
        None => Ok(()),
    }
}

/// A Workload whose admission, which it has, counts.
pub(super) fn with_reservation(workload: &Value) -> Value {
    let mut holder = workload.clone();
    holder["status"]["conditions"] = json!([
        { "type": "QuotaReserved", "status": "True", "reason": "", "message": "", "lastTransitionTime": NOW },
    ]);
    holder
}

fn reservation(case: &Case) -> Verdict {
    let (args, wanted) = (&case.tc()["args"], &case.tc()["want"]);
    let now = time(case.shared("now")).unwrap();
    let mut holder = with_reservation(&args["workload"]);
    holder["status"]["admission"] = args["admission"].clone();
    let holder: Workload = seen(&holder);
    // The admission in the engine's terms.
    let holder = input::workload(
        (&holder).into(),
        &holder,
        &Rules::default(),
        &PodDefaults::default(),
        &Priorities::default(),
    );
    let Standing::Reserved { admission, .. } = holder.standing else { return Err("no admission".to_owned()) };
    let patch = status::reservation(&seen(&args["workload"]), &admission, now);
    let after = write::merged(&args["workload"], Some(&patch));
    equal(&write::conditions_with_times(&after), &write::conditions_with_times(wanted))?;
    let plain = |object: &Value| {
        let mut object = whole(object);
        object["status"]["conditions"].take();
        object
    };
    differences("workload", &plain(wanted), &plain(&after))
}

fn requeue_state(case: &Case) -> Verdict {
    let tc = case.tc();
    let view: Workload = seen(&tc["workload"]);
    let until = time(&tc["waitUntil"]);
    let state = requeue::put_off(view.status.requeue_state.as_ref(), until, is(&tc["incrementCount"]));
    equal(&state.is_some(), &is(&tc["wantUpdated"]))?;
    let patch = state.as_ref().map(status::put_off);
    let after: Workload = seen(&write::merged(&tc["workload"], patch.as_ref()));
    let state = after.status.requeue_state.unwrap_or_default();
    equal(&state.requeue_at, &time(&tc["wantRequeueAt"]).map(Time))?;
    equal(&state.count.map(i64::from), &tc["wantCount"].as_i64())
}

fn retry_time(case: &Case) -> Verdict {
    let tc = case.tc();
    equal(&checks::retry_at(&list::<AdmissionCheckState>(&tc["checkStates"])), &time(&tc["wantRetryTime"]))
}

/// A time is written in whole seconds, so less than one is not compared.
fn queue_order(case: &Case) -> Verdict {
    let tc = case.tc();
    let view: Workload = seen(&tc["wl"]);
    let priority_sorting = Rules::of(&gates(tc)).order().priority_sorting;
    for (order, wanted) in tc["want"].as_object().into_iter().flatten() {
        let order = QueueOrder { unready_to_the_back: order == "{Eviction}", priority_sorting };
        let given = input::queued_at(&view, order).div_euclid(1000);
        equal(&given, &time(wanted).map_or(0, Timestamp::as_second))?;
    }
    Ok(())
}

fn on_hold(case: &Case) -> Verdict {
    equal(&input::is_on_hold(&seen(&case.tc()["wl"])), &is(&case.tc()["want"]))
}

fn fell_back(case: &Case) -> Verdict {
    let tc = case.tc();
    // A word that is no phase is none that a Workload comes from or to.
    let phase = |field: &str| Phase::deserialize(&tc[field]).ok();
    let fell_back = phase("prev").zip(phase("new")).is_some_and(|(before, after)| before.fell_back_to(after));
    equal(&fell_back, &is(&tc["want"]))
}

fn eviction_latency(case: &Case) -> Verdict {
    let tc = case.tc();
    let view = |field: &str| -> Option<Workload> { Some(&tc[field]).filter(|one| !one.is_null()).map(seen) };
    let (before, after) = (view("oldWl"), view("newWl"));
    let now = time(&tc["now"]).or_else(|| time(case.shared("now"))).unwrap();
    let both = before.as_ref().zip(after.as_ref());
    let done = both.and_then(|(before, after)| phase::eviction_done(before, after, now));
    let given = done.map(|one| (one.cluster_queue.to_owned(), one.reason.to_owned(), one.took.as_nanos()));
    let wanted = is(&tc["wantOK"]).then(|| {
        let took = u128::from(tc["wantLatency"].as_u64().unwrap_or(0));
        (text(&tc["wantCQ"]).to_owned(), text(&tc["wantReason"]).to_owned(), took)
    });
    equal(&given, &wanted)
}

fn execution_time(case: &Case) -> Verdict {
    let tc = case.tc();
    let given = phase::execution_time(&seen(&tc["wl"])).map(|took| took.as_nanos());
    equal(&given, &tc["want"].as_i64().map(i128::from))
}

fn same_reclaimable(case: &Case) -> Verdict {
    let tc = case.tc();
    let pods = |field: &str| -> Vec<ReclaimablePod> { list(&tc[field]) };
    equal(&reclaimable::same(&pods("a"), &pods("b")), &is(&tc["wantResult"]))
}

fn limit_reclaimable(case: &Case) -> Verdict {
    let tc = case.tc();
    let set = |name: &str, count: i64| json!({ "name": name, "count": count });
    let view: Workload = seen(&json!({ "spec": { "podSets": [set("ps1", 3), set("ps2", 5)] } }));
    let given = reclaimable::limited(&list::<ReclaimablePod>(&tc["reclaimablePods"]), &view.spec.pod_sets);
    equal(&given, &list(&tc["want"]))
}

/// Through the client, against a server that answers as the case says.
fn update_reclaimable(case: &Case) -> Verdict {
    let tc = case.tc();
    let metadata = json!({ "name": "wl", "namespace": "ns", "uid": "1" });
    let before = stored(&json!({ "metadata": metadata, "status": tc["oldStatus"] }));
    let body = status::reclaimable(&list::<ReclaimablePod>(&tc["reclaimablePods"]));
    let (refused, after) = write::through_client(&before, &body, tc["err"]["$error"].as_str())?;
    equal(&refused.as_deref(), &tc["wantErr"]["$error"].as_str())?;
    equal(&stored(&after)["status"], &stored(&json!({ "status": tc["wantStatus"] }))["status"])
}

/// What a Workload is worth is what it counts with in the queue: an annotation may add to what its spec says.
fn revalued(case: &Case) -> Verdict {
    let tc = case.tc();
    let rules = Rules::of(&gates(tc));
    let spec = |field: &str| {
        let view: Workload = seen(&tc[field]);
        let (defaults, priorities) = (PodDefaults::default(), Priorities::default());
        let counted = input::workload((&view).into(), &view, &rules, &defaults, &priorities);
        WorkloadSpec { priority: Some(counted.priority), ..view.spec }
    };
    equal(&compose::is_revalued(&spec("oldWorkload"), &spec("newWorkload")), &is(&tc["wantChanged"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        let pods = |memory: &str| -> PodResources {
            seen(&json!({ "containers": [{ "resources": { "requests": { "memory": memory } } }] }))
        };
        assert!(equal(&pods("1Gi"), &pods("1024Mi")).is_ok());
        assert!(equal(&pods("1Gi"), &pods("1G")).is_err());
    }

    fn judged(test: &str, tc: Value) -> Verdict {
        let case = Case { file: format!("workload.{test}"), name: String::new(), line: json!({ "tc": tc }) };
        super::super::run(&case).unwrap()
    }

    #[test]
    fn less_than_a_second_is_not_compared() {
        let preempted = |wanted: &str| {
            judged(
                "TestGetQueueOrderTimestamp",
                json!({
                    "featureGates": { "PrioritySortingWithinCohort": false },
                    "wl": { "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" }, "status": { "conditions": [
                        { "type": "Preempted", "status": "True", "reason": "InCohortReclaimWhileBorrowing", "message": "",
                          "lastTransitionTime": "2026-01-01T00:01:00Z" },
                    ]}},
                    "want": { "{Creation}": wanted, "{Eviction}": wanted, "{}": wanted },
                }),
            )
        };
        assert_eq!(preempted("2026-01-01T00:01:00Z"), Ok(()));
        assert!(preempted("2026-01-01T00:00:00Z").is_err());
    }

    #[test]
    fn an_annotation_adds_to_what_a_workload_is_worth() {
        let workload = |boost: &str| {
            json!({
                "metadata": { "annotations": { "kueue.x-k8s.io/priority-boost": boost } },
                "spec": { "priority": 5, "priorityClassRef": {
                    "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "class",
                }},
            })
        };
        for (open, boosts, changed) in
            [(true, ["1", "2"], true), (true, ["0", ""], false), (false, ["1", "2"], false)]
        {
            let [before, after] = boosts.map(workload);
            let tc = json!({
                "featureGates": { "PriorityBoost": open },
                "oldWorkload": before, "newWorkload": after, "wantChanged": changed,
            });
            assert_eq!(judged("TestWorkloadPriorityClassChanged", tc), Ok(()), "{open} {boosts:?}");
        }
    }

    #[test]
    fn what_is_no_phase_is_none() {
        for (before, after, wanted) in [
            (json!("admitted"), json!("pending"), true),
            (json!(""), json!("pending"), false),
            (Value::Null, json!("pending"), false),
        ] {
            let tc = json!({ "prev": before, "new": after, "want": wanted });
            assert_eq!(judged("TestFromQuotaReservedOrAdmittedToPending", tc), Ok(()), "{before}");
        }
    }
}
