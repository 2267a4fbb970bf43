//! Which flavors serve a workload, and why none does: what the engine's search of flavors answers, in Kueue's terms.

use std::collections::{BTreeMap, BTreeSet};

use admission_controller::config::FairSharingConfig;
use model::ResourceName;
use quota_engine::assign::{
    Ask, Attempt, FlavorAssignment, Mode, Oracle, PodSetFlavors, Possibility, Question, Simulated,
};
use quota_engine::input::{Admission, PodSetAssignment};
use quota_engine::{Engine, Few, FlavorName, Hindrance};
use serde_json::{Value, json};

use super::cycle::{file, gates};
use super::world::{World, amounts};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("flavorassigner.TestAssignFlavors", assign),
    ("flavorassigner.TestAssignFlavorsWithAllowedFlavors", allowed),
    ("flavorassigner.TestAssignFlavors_LeaderWorkerSetTASFlavor", leader),
    ("flavorassigner.TestDeletedFlavors", deleted),
    ("flavorassigner.TestHierarchical", hierarchical),
    ("flavorassigner.TestIsNoFitDueToCapacityAndLimits", no_fit),
    ("flavorassigner.TestReclaimBeforePriorityPreemption", reclaim_first),
];

type Pair = (FlavorName, ResourceName);

/// What the case says that a search for victims would come to.
struct Told(BTreeMap<Pair, Simulated>);

impl Told {
    fn by(simulated: &Value) -> Self {
        Self(
            by_pair(simulated)
                .map(|(pair, told)| {
                    let possibility = match told["preemptionPossiblity"].as_i64() {
                        None | Some(0) => Possibility::NoCandidates,
                        Some(1) => Possibility::Preempt,
                        _ => Possibility::Reclaim,
                    };
                    let height = told["borrowingAfterSimulation"].as_u64().unwrap_or(0);
                    (pair, Simulated { possibility, height: u32::try_from(height).unwrap() })
                })
                .collect(),
        )
    }
}

impl Oracle for Told {
    fn simulate(&mut self, _: &mut Engine, question: Question<'_>) -> Simulated {
        let pair = (question.flavor.clone(), question.resource.clone());
        let untold = Simulated { possibility: Possibility::Preempt, height: 0 };
        self.0.get(&pair).copied().unwrap_or(untold)
    }
}

fn by_pair(map: &Value) -> impl Iterator<Item = (Pair, &Value)> {
    map.as_object().into_iter().flatten().map(|(pair, value)| {
        let pair: Value = serde_json::from_str(pair).unwrap();
        let part = |part: &str| pair[part].as_str().unwrap().to_owned();
        ((part("Flavor").as_str().into(), part("Resource").as_str().into()), value)
    })
}

/// The pending workload of a case.
#[derive(Default)]
struct Pending<'a> {
    pod_sets: Value,
    reclaimable: &'a Value,
    annotations: Value,
    replaced: Option<Admission>,
}

/// What is found for it in the named queue.
fn find(world: &mut World, queue: &str, pending: &Pending<'_>, simulated: &Value) -> FlavorAssignment {
    world.local_queue("incoming", queue);
    world.workloads(&json!([{
        "metadata": { "name": "wl", "namespace": "default", "annotations": pending.annotations },
        "spec": { "queueName": "incoming", "podSets": pending.pod_sets },
        "status": { "reclaimablePods": pending.reclaimable },
    }]));
    let replaced = pending.replaced.as_ref().filter(|_| world.has_elastic_jobs());
    let ask = Ask { replaced, ..Ask::default() };
    let uid = world.uid("default/wl");
    world.engine.find_flavors(&uid, &queue.into(), ask, &mut Told::by(simulated))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn values(map: &Value) -> Vec<Value> {
    map.as_object().into_iter().flatten().map(|(_, value)| value.clone()).collect()
}

/// The admission of the slice that a case replaces.
fn replaced(slice: &Value) -> Option<Admission> {
    let sets = slice["TotalRequests"].as_array()?.iter().map(|set| PodSetAssignment {
        name: set["Name"].as_str().unwrap().into(),
        flavors: set["Flavors"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(resource, flavor)| (resource.as_str().into(), flavor.as_str().unwrap().into()))
            .collect(),
        usage: amounts(&set["Requests"]).collect(),
        count: set["Count"].as_i64().unwrap_or(0),
        ..PodSetAssignment::default()
    });
    Some(Admission { cluster_queue: "".into(), pod_sets: sets.collect() })
}

fn assign(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut config = gates(tc);
    config.fair_sharing = (tc["enableFairSharing"] == true).then(FairSharingConfig::default);
    let mut world = World::under(&config);
    world.flavors(&values(case.shared("resourceFlavors")));
    world.topologies(&tc["topologies"]);
    let queues: Vec<&Value> = ["clusterQueue", "secondaryClusterQueue"]
        .iter()
        .map(|field| &tc[field])
        .filter(|one| !one.is_null())
        .collect();
    world.queues(&json!({ "clusterQueues": queues }));
    world.usage(&json!({
        name_of(&tc["clusterQueue"]): tc["clusterQueueUsage"],
        name_of(&tc["secondaryClusterQueue"]): tc["secondaryClusterQueueUsage"],
    }));
    let pending = Pending {
        pod_sets: tc["wlPods"].clone(),
        reclaimable: &tc["wlReclaimablePods"],
        replaced: replaced(&tc["preemptWorkloadSlice"]),
        ..Pending::default()
    };
    let found = find(&mut world, name_of(&tc["clusterQueue"]), &pending, &tc["simulationResult"]);
    compare(tc, &found)
}

/// Leaders that ask for nothing, beside workers of the same group.
fn leader(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    world.flavors(&values(case.shared("resourceFlavors")));
    let levels = json!({ "levels": [{ "nodeLabel": "kubernetes.io/hostname" }] });
    let topology = |name: &str| json!({ "metadata": { "name": name }, "spec": levels });
    world.topologies(&json!([topology("tas-topo-a"), topology("tas-topo-b")]));
    let nodes = ["tas-node-a", "tas-node-b"].map(|name| {
        json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } }, "status": {
            "allocatable": { "pods": "32", "example.com/gpu-a": "4", "example.com/gpu-b": "4" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        }})
    });
    world.nodes(&json!(nodes), &Value::Null);
    world.queues(&json!({ "clusterQueues": [tc["clusterQueue"]] }));
    let pending = Pending { pod_sets: tc["wlPods"].clone(), ..Pending::default() };
    let found = find(&mut world, name_of(&tc["clusterQueue"]), &pending, &Value::Null);
    let mut differences = Differences::default();
    let keys = |map: &Value| -> BTreeSet<String> {
        map.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let wrong = found.pod_sets.iter().filter(|set| set.topology_defect.is_some());
    differences.same::<BTreeSet<String>, _>(
        "errors",
        wrong.map(|set| set.name.to_string()).collect(),
        keys(&tc["wantPodSetErrors"]),
    );
    let given: BTreeMap<String, _> =
        found.pod_sets.iter().map(|set| (set.name.to_string(), flavors_of(set))).collect();
    let wanted: BTreeMap<String, _> = tc["wantPodSetFlavors"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, flavors)| (name.clone(), wanted_flavors(flavors)))
        .collect();
    differences.same("flavors", given, wanted);
    differences.verdict()
}

fn deleted(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    world.flavors(&[json!({ "metadata": { "name": "flavor" } })]);
    world.queues(&json!({ "clusterQueues": [tc["clusterQueue"]] }));
    let pending = Pending {
        pod_sets: tc["wlPods"].clone(),
        reclaimable: &tc["wlReclaimablePods"],
        ..Pending::default()
    };
    let found = find(&mut world, name_of(&tc["clusterQueue"]), &pending, &Value::Null);
    compare(tc, &found)
}

/// The annotation of a workload that may have these flavors only; none where nothing is said of them.
fn allowing(flavors: &Value) -> Value {
    let Some(flavors) = flavors.as_array() else { return Value::Null };
    let names: Vec<&str> = flavors.iter().filter_map(Value::as_str).collect();
    json!({ "kueue.x-k8s.io/workload-allowed-resource-flavors": names.join(",") })
}

fn allowed(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&file(tc, json!({ "featureGates": { "ConcurrentAdmission": true } })));
    world.flavors(&values(case.shared("resourceFlavors")));
    let quota = |(name, amount): (&str, &str)| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": amount }] });
    let flavors = [("f1", "10"), ("f2", "10"), ("occupied", "1")].map(quota);
    world.queues(&json!({ "clusterQueues": [{ "metadata": { "name": "cq" }, "spec": {
        "namespaceSelector": {},
        "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": flavors,
        }],
    }}]}));
    let pod_sets = json!([{ "name": "main", "count": 1, "template": { "spec": {
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }],
    }}}]);
    let pending = Pending { pod_sets, annotations: allowing(&tc["allowedFlavors"]), ..Pending::default() };
    let found = find(&mut world, "cq", &pending, &Value::Null);
    let mut differences = Differences::default();
    differences.number("mode", mode(found.mode()), &tc["wantRepMode"]);
    if found.mode() == Mode::Fit {
        let chosen = found.pod_sets[0].flavors.get("cpu").map(|choice| choice.flavor.as_str());
        differences.same("flavor", chosen, tc["wantFlavor"].as_str());
    }
    differences.verdict()
}

fn hierarchical(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    let names = ["one", "two", "three"];
    let quota = |name: &str, amount: &str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": amount }] });
    let group = |flavors: Value| json!([{ "coveredResources": ["cpu"], "flavors": flavors }]);
    world.flavors(&names.map(|name| json!({ "metadata": { "name": name } })));
    let cohort = |name: &str, parent: Option<&str>| {
        json!({ "metadata": { "name": name }, "spec": {
            "parentName": parent, "resourceGroups": group(json!([quota(name, "4")])),
        }})
    };
    let fungibility = match &tc["flavorFungibility"] {
        Value::Null => json!({ "whenCanPreempt": "TryNextFlavor" }),
        given => given.clone(),
    };
    world.queues(&json!({
        "cohorts": [cohort("one", Some("two")), cohort("two", Some("three")), cohort("three", None)],
        "clusterQueues": [
            { "metadata": { "name": "test-clusterqueue" }, "spec": {
                "cohortName": "one", "namespaceSelector": {}, "flavorFungibility": fungibility,
                "preemption": { "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority" },
                "resourceGroups": group(tc["testClusterQueueFlavors"].clone()),
            }},
            { "metadata": { "name": "other-clusterqueue" }, "spec": {
                "cohortName": "two", "namespaceSelector": {},
                "resourceGroups": group(json!(names.map(|name| quota(name, "0")))),
            }},
        ],
    }));
    chosen(&mut world, tc)
}

fn reclaim_first(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    let names = ["uno", "due", "tre"];
    world.flavors(&names.map(|name| json!({ "metadata": { "name": name } })));
    let queue = |name: &str, amount: &str| {
        let resources =
            ["compute", "gpu"].map(|resource| json!({ "name": resource, "nominalQuota": amount }));
        json!({ "metadata": { "name": name }, "spec": {
            "cohortName": "cohort", "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["compute", "gpu"],
                "flavors": names.map(|flavor| json!({ "name": flavor, "resources": resources })),
            }],
        }})
    };
    let mut testing = queue("test-clusterqueue", "10");
    testing["spec"]["preemption"] =
        json!({ "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority" });
    testing["spec"]["flavorFungibility"] = match &tc["flavorFungibility"] {
        Value::Null => json!({ "whenCanPreempt": "TryNextFlavor" }),
        given => given.clone(),
    };
    world.queues(&json!({ "clusterQueues": [testing, queue("other-clusterqueue", "0")] }));
    chosen(&mut world, tc)
}

/// What is found for the one pod set of a case in `test-clusterqueue`: mode and flavors.
fn chosen(world: &mut World, tc: &Value) -> Verdict {
    world.usage(&json!({
        "test-clusterqueue": tc["testClusterQueueUsage"],
        "other-clusterqueue": tc["otherClusterQueueUsage"],
    }));
    let pod_sets = json!([tc["workloadRequests"]["PodSet"]]);
    let pending = Pending { pod_sets, ..Pending::default() };
    let found = find(world, "test-clusterqueue", &pending, &tc["simulationResult"]);
    let given: BTreeMap<String, &str> = found
        .pod_sets
        .first()
        .into_iter()
        .flat_map(|set| set.flavors.iter())
        .map(|(resource, choice)| (resource.as_str().to_owned(), choice.flavor.as_str()))
        .collect();
    let wanted: BTreeMap<String, &str> = tc["wantAssigment"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(resource, flavor)| (resource.clone(), flavor.as_str().unwrap()))
        .collect();
    let mut differences = Differences::default();
    differences.number("mode", mode(found.mode()), &tc["wantMode"]);
    differences.same("flavors", given, wanted);
    differences.verdict()
}

fn no_fit(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    let flavors =
        if tc["resourceFlavors"].is_null() { case.shared("resourceFlavors") } else { &tc["resourceFlavors"] };
    world.flavors(&values(flavors));
    world.topologies(&tc["topologies"]);
    let quota = |name: &str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": "2", "borrowingLimit": "4" }] });
    let plain = json!({ "metadata": { "name": "cq" }, "spec": {
        "namespaceSelector": {},
        "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [quota("flavor-a"), quota("flavor-b")] }],
    }});
    let queue = if tc["cq"].is_null() { &plain } else { &tc["cq"] };
    let mut queues = vec![queue.clone()];
    queues.extend(tc["siblingCQs"].as_array().into_iter().flatten().cloned());
    world.queues(&json!({ "clusterQueues": queues }));
    world.usage(&tc["siblingCQUsage"]);
    world.usage(&json!({ name_of(queue): tc["cqUsage"] }));
    let pending = Pending {
        pod_sets: json!([tc["podSet"]]),
        annotations: allowing(&tc["allowedFlavors"]),
        replaced: replaced(&tc["replaceWl"]),
        ..Pending::default()
    };
    let found = find(&mut world, name_of(queue), &pending, &tc["simulationResult"]);
    let mut differences = Differences::default();
    differences.token("NoFitReason", found.hindrance, &tc["wantNoFitReason"]);
    let mut attempted = 0;
    for (flavor, wanted) in tc["wantFlavorAttempts"].as_object().into_iter().flatten() {
        for set in &found.pod_sets {
            if let Some(attempt) = set.attempts.get(&FlavorName::from(flavor.as_str())) {
                attempted += 1;
                differences.token(&format!("attempt {flavor}"), attempt.hindrance, wanted);
            }
        }
    }
    // The tables list flavors after the one that served, too; and where a resource is of no group none has to be tried.
    if tc["wantFlavorAttempts"].is_object() && is_covered(queue, &tc["podSet"]) {
        differences.same("attempts are told", attempted > 0, true);
    }
    differences.verdict()
}

/// Whether all that a pod set asks for is of a resource group of the queue.
fn is_covered(queue: &Value, pod_set: &Value) -> bool {
    let groups = || queue["spec"]["resourceGroups"].as_array().into_iter().flatten();
    let covers =
        |resource: &String| groups().any(|group| strings(&group["coveredResources"]).contains(&**resource));
    let containers = pod_set["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let mut requests = containers.filter_map(|one| one["resources"]["requests"].as_object());
    requests.all(|requests| requests.keys().all(covers))
}

/// The whole of an assignment.
fn compare(tc: &Value, found: &FlavorAssignment) -> Verdict {
    let wanted = &tc["wantAssignment"];
    let mut differences = Differences::default();
    differences.number("mode", mode(found.mode()), &tc["wantRepMode"]);
    differences.number("Borrowing", found.height.into(), &wanted["Borrowing"]);
    differences.token("NoFitReason", found.hindrance, &wanted["NoFitReason"]);
    let usage: BTreeMap<Pair, i64> = by_pair(&wanted["Usage"]["Quota"]["Assigned"])
        .map(|(pair, amount)| (pair, amount["value"].as_i64().or(amount.as_i64()).unwrap_or(0)))
        .collect();
    differences.same("Usage", &found.usage, &usage);
    let sets = wanted["PodSets"].as_array().map(Vec::as_slice).unwrap_or_default();
    differences.same(
        "PodSets",
        found.pod_sets.iter().map(|set| &*set.name).collect::<Vec<_>>(),
        sets.iter().map(|set| set["Name"].as_str().unwrap()).collect::<Vec<_>>(),
    );
    for (given, wanted) in found.pod_sets.iter().zip(sets) {
        pod_set(&mut differences, given, wanted);
    }
    differences.verdict()
}

fn pod_set(differences: &mut Differences, given: &PodSetFlavors, wanted: &Value) {
    let name = &given.name;
    differences.number(&format!("{name}: Count"), given.count, &wanted["Count"]);
    let requests: Few<ResourceName, i64> = wanted["Requests"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(resource, amount)| {
            let resource = ResourceName::from(resource.as_str());
            let amount = resource.amount(&amount.as_str().unwrap().parse().unwrap()).unwrap();
            (resource, amount)
        })
        .collect();
    differences.same(&format!("{name}: Requests"), &given.requests, &requests);
    differences.same(&format!("{name}: Flavors"), flavors_of(given), wanted_flavors(&wanted["Flavors"]));
    // The sentences are ours; how many different ones there are is not.
    let reasons: BTreeSet<&str> = strings(&wanted["Status"]["reasons"]);
    if wanted["Status"]["err"].is_null() {
        differences.same(&format!("{name}: number of reasons"), given.obstacles.len(), reasons.len());
    } else {
        // What cannot be read, or placed by the topologies of two flavors, is an error there.
        let is_wrong = !given.obstacles.is_empty() || given.topology_defect.is_some();
        differences.same(&format!("{name}: an error"), is_wrong, true);
    }
    attempts(differences, given, &wanted["FlavorAssignmentAttempts"]);
}

/// Flavor, mode and index of the last one tried, by resource.
type Choices = BTreeMap<ResourceName, (String, i64, i64)>;

fn flavors_of(set: &PodSetFlavors) -> Choices {
    let choices = set.flavors.iter().map(|(resource, choice)| {
        let tried = choice.tried.map_or(-1, |index| i64::try_from(index).unwrap());
        (resource.clone(), (choice.flavor.as_str().to_owned(), mode(choice.mode), tried))
    });
    choices.collect()
}

fn wanted_flavors(flavors: &Value) -> Choices {
    flavors
        .as_object()
        .into_iter()
        .flatten()
        .map(|(resource, choice)| {
            let number = |field: &str| choice[field].as_i64().unwrap_or(0);
            let name = choice["Name"].as_str().unwrap().to_owned();
            (resource.as_str().into(), (name, number("Mode"), number("TriedFlavorIdx")))
        })
        .collect()
}

/// The trace of flavors. Where one fits, it may be shorter than the table's: which flavors are looked at before another
/// resource finds none depends there on the order of a hash. Otherwise every flavor of the table must be there.
fn attempts(differences: &mut Differences, given: &PodSetFlavors, wanted: &Value) {
    let Some(wanted) = wanted.as_array().filter(|wanted| !wanted.is_empty()) else { return };
    let wanted: BTreeMap<FlavorName, &Value> =
        wanted.iter().map(|one| (one["Flavor"].as_str().unwrap().into(), one)).collect();
    let fits = given.attempts.values().any(|attempt| attempt.mode == Mode::Fit);
    for (flavor, attempt) in given.attempts.iter().filter(|_| fits) {
        match wanted.get(flavor) {
            // Of a flavor that was not reached for another resource the table says that it does not provide it.
            Some(wanted) if attempt.mode == Mode::Fit && wanted["Mode"].as_i64().unwrap_or(0) == 0 => {}
            Some(wanted) => compare_attempt(differences, &given.name, flavor, attempt, wanted),
            None => differences.same(&format!("{}: attempt {flavor}", given.name), "there", "not there"),
        }
    }
    for (flavor, wanted) in wanted.iter().filter(|_| !fits) {
        match given.attempts.get(flavor) {
            Some(attempt) => compare_attempt(differences, &given.name, flavor, attempt, wanted),
            None => differences.same(&format!("{}: attempt {flavor}", given.name), "not there", "there"),
        }
    }
}

fn compare_attempt(
    differences: &mut Differences,
    pod_set: &str,
    flavor: &FlavorName,
    given: &Attempt,
    wanted: &Value,
) {
    let at = |what: &str| format!("{pod_set}: attempt {flavor}: {what}");
    differences.number(&at("Mode"), mode(given.mode), &wanted["Mode"]);
    differences.number(&at("Borrow"), given.height.into(), &wanted["Borrow"]);
    differences.token(&at("NoFitReason"), given.hindrance, &wanted["NoFitReason"]);
    let possibility = given.possibility.map(|possibility| match possibility {
        Possibility::NoCandidates => 0,
        Possibility::Preempt => 1,
        Possibility::Reclaim => 2,
    });
    differences.same(&at("PreemptionPossibility"), possibility, wanted["PreemptionPossibility"].as_i64());
}

fn strings(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap()).collect()
}

/// Kueue's number of a mode.
fn mode(mode: Mode) -> i64 {
    match mode {
        Mode::NoFit => 0,
        Mode::Preempt => 1,
        Mode::Deferred => 2,
        Mode::Fit => 3,
    }
}

/// What differs, a line each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn same<G: PartialEq<W> + std::fmt::Debug, W: std::fmt::Debug>(
        &mut self,
        what: &str,
        given: G,
        wanted: W,
    ) {
        if given != wanted {
            self.0.push(format!("{what}: {given:?}, wanted {wanted:?}"));
        }
    }

    /// Absent is zero.
    fn number(&mut self, what: &str, given: i64, wanted: &Value) {
        self.same(what, given, wanted.as_i64().unwrap_or(0));
    }

    /// Absent and empty are none.
    fn token(&mut self, what: &str, given: Option<Hindrance>, wanted: &Value) {
        self.same(what, given.map(Hindrance::token), wanted.as_str().filter(|token| !token.is_empty()));
    }

    fn verdict(self) -> Verdict {
        if self.0.is_empty() { Ok(()) } else { Err(self.0.join("\n")) }
    }
}
