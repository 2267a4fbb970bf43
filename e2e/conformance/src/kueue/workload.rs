//! Facts about one Workload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use admission_controller::bounds::{self, Violation};
use admission_controller::compose::{self, Priorities};
use admission_controller::config::Configuration;
use admission_controller::defaults::PodDefaults;
use admission_controller::input::{self, QueueOrder};
use admission_controller::phase::{self, Phase};
use admission_controller::requests::Rules;
use admission_controller::{checks, reclaimable, requeue, status};
use crds::view::cluster_queue::ClusterQueue;
use crds::view::workload::{AdmissionCheckState, ReclaimablePod, Workload};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::pod::PodResources;
use model::resources::ResourceList;
use quota_engine::input::Standing;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cycle::gates;
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
    ("workload.TestNewInfo", quota_request),
    ("workload.TestReclaimablePodsAreEqual", same_reclaimable),
    ("workload.TestSetQuotaReservation", reservation),
    ("workload.TestSetRequeueState", requeue_state),
    ("workload.TestSyncAdmittedCondition", sync_admitted),
    ("workload.TestTotalExecutionTime", execution_time),
    ("workload.TestUpdateReclaimablePods", update_reclaimable),
    ("workload.TestValidateLimitRange", validate_limit_range),
    ("workload.TestValidateResources", validate_resources),
    ("workload.TestWorkloadPriorityClassChanged", revalued),
];

/// The time of cases that have none.
const NOW: &str = "2026-01-01T00:00:00Z";

/// An object as the program sees it. What Go leaves out or writes as null of a time is the beginning of time.
fn seen<K: DeserializeOwned>(object: &Value) -> K {
    let mut object = whole(object);
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["lastTransitionTime"].is_null() {
            condition["lastTransitionTime"] = json!("0001-01-01T00:00:00Z");
        }
    }
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// Without what says nothing: null, and empty lists.
fn whole(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let says =
                |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
            map.iter()
                .filter(|(_, value)| says(value))
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn equal<T: PartialEq + std::fmt::Debug>(given: &T, wanted: &T) -> Verdict {
    if given == wanted { Ok(()) } else { Err(format!("  given {given:?}\n wanted {wanted:?}")) }
}

fn adjust_resources(case: &Case) -> Verdict {
    let tc = case.tc();
    let defaults = defaults(&tc["limitranges"], &tc["runtimeClasses"]);
    let (before, wanted): (Workload, Workload) = (seen(&tc["wl"]), seen(&tc["wantWl"]));
    equal(&adjusted(&defaults, &before), &pods(&wanted))
}

fn defaults(ranges: &Value, classes: &Value) -> PodDefaults {
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

fn validate_limit_range(case: &Case) -> Verdict {
    let view: Workload = seen(&case.tc()["workload"]);
    let ranges: Vec<Value> =
        [&case.tc()["limitRange"]].into_iter().filter(|one| !one.is_null()).cloned().collect();
    let defaults = defaults(&json!(ranges), &Value::Null);
    let namespace = view.metadata.namespace.clone().unwrap_or_default();
    judge_violations(case.tc(), &view, |pod, path| defaults.range_violations(&namespace, pod, path))
}

/// Every violation is an invalid value of its field.
fn judge_violations(
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

/// Pod set, pods, what they ask for together, and the flavors they were given.
type Total = (String, i64, ResourceList, BTreeMap<String, String>);

fn quota_request(case: &Case) -> Verdict {
    let tc = case.tc();
    let view: Workload = seen(&tc["workload"]);
    let config = configuration(&case.name, &tc["featureGates"]);
    let told = input::workload(
        (&view).into(),
        &view,
        &Rules::of(&config),
        &PodDefaults::default(),
        &Priorities::default(),
    );
    let given: Vec<Total> = match told.standing {
        Standing::Reserved { admission, .. } => {
            let sets = admission.pod_sets.iter();
            sets.map(|set| {
                let flavors = set.flavors.iter();
                let flavors = flavors.map(|(resource, flavor)| (resource.to_string(), flavor.to_string()));
                (set.name.clone(), set.count, set.usage.clone().into_iter().collect(), flavors.collect())
            })
            .collect()
        }
        _ => {
            let sets = told.pod_sets.iter();
            sets.map(|set| (set.name.clone(), set.count, set.total(), BTreeMap::new())).collect()
        }
    };
    let wanted = tc["wantInfo"]["TotalRequests"].as_array().into_iter().flatten();
    let wanted: Vec<Total> = wanted
        .map(|set| {
            let requests = set["Requests"]["value"].as_array().into_iter().flatten();
            let requests = requests.map(|one| (text(&one["name"]).into(), one["value"].as_i64().unwrap()));
            let flavors = set["Flavors"].as_object().into_iter().flatten();
            let flavors = flavors.map(|(resource, flavor)| (resource.clone(), text(flavor).to_owned()));
            let count = set["Count"].as_i64().unwrap_or(0);
            (text(&set["Name"]).to_owned(), count, requests.collect(), flavors.collect())
        })
        .collect();
    equal(&given, &wanted)
}

/// What the cases were run with, which the tables do not hold: their description says it.
fn configuration(case: &str, gates: &Value) -> Configuration {
    let one = |input: &str, strategy: &str, outputs: Value| json!({ "input": input, "strategy": strategy, "outputs": outputs });
    let multiplied = |input: &str, strategy: &str, by: &str, outputs: Value| json!({ "input": input, "strategy": strategy, "multiplyBy": by, "outputs": outputs });
    let transformations = match case {
        "transformResources" => json!([
            one(
                "nvidia.com/mig-1g.5gb",
                "Replace",
                json!({ "example.com/accelerator-memory": "5Ki", "example.com/credits": "10" })
            ),
            one(
                "nvidia.com/mig-2g.10gb",
                "Replace",
                json!({ "example.com/accelerator-memory": "10Ki", "example.com/credits": "15" })
            ),
            one(
                "nvidia.com/gpu",
                "Retain",
                json!({ "example.com/accelerator-memory": "40Ki", "example.com/credits": "100" })
            ),
            multiplied(
                "nvidia.com/vgpucores",
                "Replace",
                "nvidia.com/vgpu",
                json!({ "nvidia.com/total-vgpucores": "1" })
            ),
            multiplied(
                "nvidia.com/vgpumem",
                "Replace",
                "nvidia.com/vgpu",
                json!({ "nvidia.com/total-vgpumem": "1" })
            ),
        ]),
        "transformAllowanceUnderIt" => json!([
            multiplied(
                "nvidia.com/gpumem",
                "Replace",
                "nvidia.com/gpu",
                json!({ "quota.example.com/gpu-memory-overage": "1" })
            ),
            one("nvidia.com/gpu", "Retain", json!({ "quota.example.com/gpu-memory-overage": "-1024" })),
        ]),
        "transformAllowanceDoesNotReachADirectRequest" => {
            json!([one("example.com/credit", "Replace", json!({ "example.com/gpu": "-1" }))])
        }
        "transformOutputSharingANameWithItsRetainedInputIsAddedToTheAmountRequested" => {
            json!([multiplied(
                "example.com/gpu",
                "Retain",
                "example.com/node",
                json!({ "example.com/gpu": "1" })
            )])
        }
        "transformProductPastTheRangeIsNotFlooredAway" => {
            json!([one("example.com/credit", "Replace", json!({ "example.com/gpu": "10000000000" }))])
        }
        "transformRetainWithMultiplyBy" => json!([multiplied(
            "example.com/gpumem",
            "Retain",
            "example.com/gpu",
            json!({ "example.com/gpumem-quota": "1" })
        ),]),
        "transformRetainWithMultiplyByUnderOne" => json!([
            { "input": "example.com/gpumem", "multiplyBy": "cpu", "outputs": { "example.com/gpumem-quota": "1" } },
        ]),
        _ => json!([]),
    };
    let excluded = match case {
        "filterResources" => json!(["dummyPrefix", "networking.example.com/"]),
        _ => json!([]),
    };
    let gates = if gates.is_null() { json!({}) } else { gates.clone() };
    let file = json!({
        "resources": { "excludeResourcePrefixes": excluded, "transformations": transformations },
        "featureGates": gates,
    });
    // JSON is YAML.
    Configuration::parse(Path::new(case), &file.to_string()).unwrap()
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
    let patch = status::synced(&view, now);
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

fn reservation(case: &Case) -> Verdict {
    let (args, wanted) = (&case.tc()["args"], &case.tc()["want"]);
    let now = time(case.shared("now")).unwrap();
    let mut holder = args["workload"].clone();
    holder["status"]["admission"] = args["admission"].clone();
    holder["status"]["conditions"] = json!([
        { "type": "QuotaReserved", "status": "True", "reason": "", "message": "", "lastTransitionTime": NOW },
    ]);
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
    equal(&plain(&after), &plain(wanted))
}

fn requeue_state(case: &Case) -> Verdict {
    let tc = case.tc();
    let view: Workload = seen(&tc["workload"]);
    let until = time(&tc["waitUntil"]).unwrap();
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

fn queue_order(case: &Case) -> Verdict {
    let tc = case.tc();
    let view: Workload = seen(&tc["wl"]);
    let priority_sorting = Rules::of(&gates(tc)).order().priority_sorting;
    for (order, wanted) in tc["want"].as_object().into_iter().flatten() {
        let order = QueueOrder { unready_to_the_back: order != "{Creation}", priority_sorting };
        equal(&input::queued_at(&view, order), &time(wanted).unwrap().as_millisecond())?;
    }
    Ok(())
}

fn on_hold(case: &Case) -> Verdict {
    equal(&input::is_on_hold(&seen(&case.tc()["wl"])), &is(&case.tc()["want"]))
}

fn fell_back(case: &Case) -> Verdict {
    let tc = case.tc();
    let phase = |field: &str| -> Phase { seen(&tc[field]) };
    equal(&phase("prev").fell_back_to(phase("new")), &is(&tc["want"]))
}

fn eviction_latency(case: &Case) -> Verdict {
    let tc = case.tc();
    let view = |field: &str| -> Option<Workload> { Some(&tc[field]).filter(|one| !one.is_null()).map(seen) };
    let (before, after) = (view("oldWl"), view("newWl"));
    let now = time(&tc["now"]).unwrap();
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
    equal(&given, &tc["want"].as_u64().map(u128::from))
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
    let before =
        json!({ "metadata": { "name": "wl", "namespace": "ns", "uid": "1" }, "status": tc["oldStatus"] });
    let body = status::reclaimable(&list::<ReclaimablePod>(&tc["reclaimablePods"]));
    let (refused, after) = write::through_client(&before, &body, tc["err"]["$error"].as_str())?;
    equal(&refused.as_deref(), &tc["wantErr"]["$error"].as_str())?;
    equal(&whole(&after["status"]), &whole(&tc["wantStatus"]))
}

fn revalued(case: &Case) -> Verdict {
    let tc = case.tc();
    let (before, after): (Workload, Workload) = (seen(&tc["oldWorkload"]), seen(&tc["newWorkload"]));
    equal(&compose::is_revalued(&before.spec, &after.spec), &is(&tc["wantChanged"]))
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
}
