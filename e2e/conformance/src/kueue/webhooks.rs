//! `webhooks`: validation of what users write. Compared are path and kind of every error, as a set; and the value that is wrong,
//! where the table names it.

use std::collections::BTreeSet;

use crds::api::kueue::v1beta2::{ClusterQueue, Workload};
use crds::validation::{self, FieldError, Gates};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cycle;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("webhooks.TestValidateClusterQueue", cluster_queue),
    ("webhooks.TestValidateClusterQueueUpdate", cluster_queue_update),
    ("webhooks.TestValidateCohort", cohort),
    ("webhooks.TestValidateFlavorResourceCombinations", combinations),
    ("webhooks.TestValidateResourceFlavor", resource_flavor),
    ("webhooks.TestValidateTotalCoveredResources", covered_resources),
    ("webhooks.TestValidateTotalFlavors", flavors),
    ("webhooks.TestValidateWorkload", workload),
    ("webhooks.TestValidateWorkloadUpdate", workload_update),
];

/// Fields that a table may have an object in: its type follows from their names. Of cohorts and flavors nothing depends on what
/// they were.
const CLUSTER_QUEUE: &[&str] = &["clusterQueue"];
const OLD_CLUSTER_QUEUE: &[&str] = &["oldClusterQueue"];
const NEW_CLUSTER_QUEUE: &[&str] = &["newClusterQueue"];
const COHORT: &[&str] = &["cohort", "newCohort"];
const RESOURCE_FLAVOR: &[&str] = &["rf", "resourceFlavor", "newRf", "newResourceFlavor"];
const WORKLOAD: &[&str] = &["workload"];
const OLD_WORKLOAD: &[&str] = &["before", "oldWorkload"];
const NEW_WORKLOAD: &[&str] = &["after", "newWorkload"];

/// The objects from which a test that is not listed is known.
const BY_OBJECTS: &[(&[&[&str]], Runner)] = &[
    (&[CLUSTER_QUEUE], cluster_queue),
    (&[OLD_CLUSTER_QUEUE, NEW_CLUSTER_QUEUE], cluster_queue_update),
    (&[COHORT], cohort),
    (&[RESOURCE_FLAVOR], resource_flavor),
    (&[WORKLOAD], workload),
    (&[OLD_WORKLOAD, NEW_WORKLOAD], workload_update),
];

/// The runner of any test of the family whose case has the objects of one runner and not those of another.
pub(super) fn runner(case: &Case) -> Option<Runner> {
    let has = |names: &&[&str]| !given(case, names).is_null();
    let all: BTreeSet<&[&str]> = BY_OBJECTS.iter().flat_map(|(objects, _)| *objects).copied().collect();
    let there = all.into_iter().filter(has).count();
    // One that it does not read would be dropped in silence.
    let mut fitting =
        BY_OBJECTS.iter().filter(|(objects, _)| objects.iter().all(has) && objects.len() == there);
    match (fitting.next(), fitting.next()) {
        (Some((_, run)), None) if case.family() == "webhooks" => Some(*run),
        _ => None,
    }
}

/// What a case has in one of these fields.
fn given<'a>(case: &'a Case, names: &[&str]) -> &'a Value {
    let mut values = names.iter().map(|name| &case.tc()[*name]);
    values.find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

fn cluster_queue(case: &Case) -> Verdict {
    let mut gates = gates(case);
    gates.concurrent_admission |= case.tc()["featureGates"]["ConcurrentAdmission"].is_null();
    compare(case, &validation::cluster_queue(&decode(given(case, CLUSTER_QUEUE))?, gates))
}

fn cluster_queue_update(case: &Case) -> Verdict {
    let [old, new]: [ClusterQueue; 2] =
        [decode(given(case, OLD_CLUSTER_QUEUE))?, decode(given(case, NEW_CLUSTER_QUEUE))?];
    compare(case, &validation::cluster_queue_update(&old, &new, gates(case)))
}

fn cohort(case: &Case) -> Verdict {
    compare(case, &validation::cohort(&decode(given(case, COHORT))?))
}

fn resource_flavor(case: &Case) -> Verdict {
    compare(case, &validation::resource_flavor(&decode(given(case, RESOURCE_FLAVOR))?))
}

fn workload(case: &Case) -> Verdict {
    compare(case, &validation::workload(&decode(given(case, WORKLOAD))?, gates(case)))
}

fn workload_update(case: &Case) -> Verdict {
    let [old, new]: [Workload; 2] = [decode(given(case, OLD_WORKLOAD))?, decode(given(case, NEW_WORKLOAD))?];
    compare(case, &validation::workload_update(&old, &new, gates(case)))
}

/// A queue of one group, every flavor with every resource.
fn combinations(case: &Case) -> Verdict {
    let number = |field: &str| case.tc()[field].as_u64().unwrap_or_default() as usize;
    bounded(case, "spec.resourceGroups[0]", queue(&[(number("numFlavors"), number("numResources"))]))
}

/// Flavors of one resource each, spread over groups, for a group has a bound of its own.
fn flavors(case: &Case) -> Verdict {
    let number = case.tc()["numFlavors"].as_u64().unwrap_or_default() as usize;
    bounded(case, TOTALS, queue(&spread(number).map(|part| (part, 1)).collect::<Vec<_>>()))
}

/// Resources of one flavor a group.
fn covered_resources(case: &Case) -> Verdict {
    let number = case.tc()["numCoveredRes"].as_u64().unwrap_or_default() as usize;
    bounded(case, TOTALS, queue(&spread(number).map(|part| (1, part)).collect::<Vec<_>>()))
}

/// Where a bound on all groups together is reported.
const TOTALS: &str = "spec.resourceGroups";

/// In parts of what a list in the schema can hold.
fn spread(number: usize) -> impl Iterator<Item = usize> {
    (0..number).step_by(64).map(move |from| (number - from).min(64))
}

/// Groups of so many flavors with so many resources.
fn queue(groups: &[(usize, usize)]) -> Value {
    let group = |(group, (flavors, resources)): (usize, &(usize, usize))| {
        let names: Vec<String> = (0..*resources).map(|r| format!("example.com/r{group}-{r}")).collect();
        let quotas: Vec<Value> =
            names.iter().map(|name| json!({ "name": name, "nominalQuota": "1" })).collect();
        let flavors: Vec<Value> =
            (0..*flavors).map(|f| json!({ "name": format!("f{group}-{f}"), "resources": quotas })).collect();
        json!({ "coveredResources": names, "flavors": flavors })
    };
    json!({ "spec": { "resourceGroups": groups.iter().enumerate().map(group).collect::<Vec<_>>() } })
}

/// The case is about the one bound that is reported there; a queue of its size may be beyond others.
fn bounded(case: &Case, at: &str, queue: Value) -> Verdict {
    let mut errors = validation::cluster_queue(&decode(&queue)?, gates(case));
    errors.retain(|error| error.field == at);
    let wanted = case.tc()["wantErr"] == true;
    if errors.is_empty() != wanted { Ok(()) } else { Err(format!("{errors:?}, wanted one: {wanted}")) }
}

fn gates(case: &Case) -> Gates {
    cycle::gates(case.tc()).gates()
}

/// The object, with what a schema demands and Go leaves out as zero.
fn decode<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    let mut object = object.clone();
    fill_in(&mut object);
    serde_json::from_value(object).map_err(|error| format!("it cannot be read: {error}"))
}

/// Fields of a few words: none of them is how Go writes none.
const ENUMS: [&str; 15] = [
    "admissionMode",
    "delayedTopologyRequest",
    "group",
    "kind",
    "mode",
    "policy",
    "position",
    "preference",
    "queueingStrategy",
    "reclaimWithinCohort",
    "state",
    "stopPolicy",
    "whenCanBorrow",
    "whenCanPreempt",
    "withinClusterQueue",
];

/// Go's zero values of required fields of an object, by its name. A field of a few words has none: any of them will do, for no rule
/// here looks at it.
fn zero_fields(object: &str) -> Value {
    match object {
        "admissionChecksStrategy" => json!({ "admissionChecks": [] }),
        "admissionScope" => json!({ "admissionMode": "NoAdmissionFairSharing" }),
        "concurrentAdmissionPolicy" => json!({ "migration": {} }),
        "individual" => json!({ "roots": [] }),
        "priorityClassRef" => {
            json!({ "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass" })
        }
        _ => json!({}),
    }
}

/// The same of the objects in a list, by the list's name.
fn zero_values(list: &str) -> Value {
    let no_time = "0001-01-01T00:00:00Z";
    match list {
        "conditions" => {
            json!({ "type": "", "status": "", "reason": "", "message": "", "lastTransitionTime": no_time })
        }
        "admissionChecks" => {
            json!({ "name": "", "state": "Pending", "message": "", "lastTransitionTime": no_time })
        }
        "resourceGroups" => json!({ "coveredResources": [], "flavors": [] }),
        "flavors" => json!({ "name": "", "resources": [] }),
        "resources" => json!({ "name": "", "nominalQuota": "0" }),
        "flavorsReservation" | "flavorsUsage" => json!({ "name": "", "resources": [] }),
        "slices" => json!({ "domainCount": 0, "valuesPerLevel": [], "podCounts": {} }),
        "evictions" => json!({ "reason": "", "underlyingCause": "", "count": 0 }),
        "reclaimablePods" => json!({ "name": "", "count": 0 }),
        // Its default is the API server's, which Go's types do not know.
        "podSets" => json!({ "name": "", "count": 0 }),
        "podSetAssignments" => json!({ "name": "" }),
        "podSetUpdates" => json!({ "name": "" }),
        "podsetSliceRequiredTopologyConstraints" => json!({ "topology": "", "size": 0 }),
        "nodeTaints" => json!({ "key": "", "effect": "" }),
        "matchExpressions" => json!({ "key": "", "operator": "" }),
        "preemptionGates" => json!({ "name": "", "position": "Closed", "lastTransitionTime": no_time }),
        _ => json!({}),
    }
}

fn fill_in(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(fill_in),
        Value::Object(map) => {
            map.retain(|key, value| !(value.is_null() || value == "" && ENUMS.contains(&key.as_str())));
            for (key, child) in map.iter_mut().filter(|(key, _)| *key != "template") {
                fill_in(child);
                let (zero, objects): (Value, Vec<&mut Value>) = match child {
                    Value::Array(items) => (zero_values(key), items.iter_mut().collect()),
                    object => (zero_fields(key), vec![object]),
                };
                for item in objects.into_iter().filter_map(Value::as_object_mut) {
                    for (key, value) in zero.as_object().unwrap() {
                        item.entry(key).or_insert(value.clone());
                    }
                }
            }
        }
        _ => {}
    }
}

fn compare(case: &Case, errors: &[FieldError]) -> Verdict {
    let found: BTreeSet<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.kind.as_str())).collect();
    let wanted: BTreeSet<String> =
        wanted(&case.tc()["wantErr"]).iter().map(|text| place_and_kind(text)).collect();
    if found != wanted {
        return Err(format!("{found:?}, wanted {wanted:?}"));
    }
    let value = case.tc()["wantBadValue"].as_str().unwrap_or_default();
    let given = |error: &FieldError| match &error.value {
        Some(Value::String(text)) => text == value,
        Some(other) => value.parse().is_ok_and(|value: Value| *other == value),
        None => false,
    };
    match value.is_empty() || errors.iter().any(given) {
        true => Ok(()),
        false => Err(format!("{errors:?}, wanted the value {value:?}")),
    }
}

fn wanted(errors: &Value) -> Vec<String> {
    match errors {
        Value::Null => Vec::new(),
        Value::Array(errors) => errors.iter().flat_map(wanted).collect(),
        error => {
            let text = error["$error"].as_str().unwrap();
            match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                // An aggregate. A detail may have commas, too; a part that names no field belongs to the one before.
                Some(list) => {
                    list.split(", ").filter(|part| names_a_field(part)).map(str::to_owned).collect()
                }
                None => vec![text.to_owned()],
            }
        }
    }
}

fn names_a_field(text: &str) -> bool {
    ["spec", "status", "metadata"].iter().any(|root| text.starts_with(&format!("{root}.")))
}

/// Of `path: kind: value: sentence` what is compared.
fn place_and_kind(text: &str) -> String {
    text.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_leaves_out_can_be_read() {
        let queue = json!({ "spec": {
            "admissionChecksStrategy": {}, "admissionScope": {}, "concurrentAdmissionPolicy": {},
            "resourceGroups": [{ "flavors": [{ "name": "f" }] }],
        }});
        decode::<ClusterQueue>(&queue).unwrap();
        let used = json!({ "status": { "flavorsReservation": [{ "name": "f" }], "flavorsUsage": [{}] } });
        decode::<ClusterQueue>(&used).unwrap();
        let individual =
            json!({ "domainCount": 1, "valuesPerLevel": [{ "individual": {} }], "podCounts": {} });
        let workload = json!({
            "spec": {
                "podSets": [{ "template": {} }],
                "preemptionGates": [{ "name": "g" }],
                "priorityClassRef": { "group": "", "name": "high" },
            },
            "status": {
                "preemptionGates": [{ "name": "g" }],
                "admissionChecks": [{ "name": "c", "state": "" }],
                "admission": { "podSetAssignments": [{ "topologyAssignment": { "slices": [{}, individual] } }] },
                "schedulingStats": { "evictions": [{ "reason": "Preempted", "underlyingCause": "" }] },
            },
        });
        let workload = decode::<Workload>(&workload).unwrap();
        assert_eq!(workload.spec.pod_sets[0].name, "");
        assert_eq!(workload.status.unwrap().admission.unwrap().pod_set_assignments[0].name, "");
    }

    fn case(file: &str, tc: Value) -> Case {
        Case { file: file.to_owned(), name: String::new(), line: json!({ "tc": tc }) }
    }

    #[test]
    fn a_test_that_is_not_listed_is_known_by_its_objects() {
        let error = |path: &str| json!([{ "$error": format!("{path}: Invalid value: null") }]);
        let flavor = |labels: Value| json!({ "spec": { "nodeLabels": labels } });
        let queue = |strategy: &str| {
            let policy = json!({ "migration": { "mode": strategy } });
            json!({ "spec": { "concurrentAdmissionPolicy": policy } })
        };
        let [bad, good] = [flavor(json!({ "a": "@" })), flavor(json!({ "a": "b" }))];
        let [one, other] = [queue("TryPreferredFlavors"), queue("RetainFirstAdmission")];
        for (tc, runs) in [
            (json!({ "resourceFlavor": bad, "wantErr": error("spec.nodeLabels") }), Some(true)),
            (json!({ "oldRf": bad, "newRf": good }), Some(true)),
            (json!({ "rf": bad }), Some(false)),
            (
                json!({
                    "oldClusterQueue": one, "newClusterQueue": other,
                    "wantErr": error("spec.concurrentAdmissionPolicy"),
                }),
                Some(true),
            ),
            (json!({ "oldWorkload": {}, "newWorkload": {} }), Some(true)),
            (json!({ "newWorkload": {} }), None),
            (json!({ "workload": {}, "clusterQueue": {} }), None),
            (json!({ "numFlavors": 3 }), None),
        ] {
            let verdict = super::super::run(&case("webhooks.TestOfTheFuture", tc.clone()));
            assert_eq!(verdict.map(|verdict| verdict.is_ok()), runs, "{tc}");
        }
        let elsewhere = case("workload.TestOfTheFuture", json!({ "workload": {} }));
        assert_eq!(super::super::run(&elsewhere), None);
    }

    #[test]
    fn a_case_about_a_size_looks_at_one_bound() {
        for (flavors, resources, too_many) in [(300, 1, false), (9, 64, true), (8, 64, false)] {
            let tc = json!({ "numFlavors": flavors, "numResources": resources, "wantErr": too_many });
            let case = case("webhooks.TestValidateFlavorResourceCombinations", tc);
            assert_eq!(combinations(&case), Ok(()), "{flavors} of {resources}");
        }
    }
}
