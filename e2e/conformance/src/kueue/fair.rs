//! Fair sharing: shares, its order and its preemption, admission fair sharing.

use std::collections::BTreeMap;

use quota_engine::{Chosen, FairSharing, Settings, Sharer};
use serde_json::{Value, json};

use super::cycle::gates;
use super::scheduler::schedule;
use super::world::{World, key_of, with_quotas};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("scheduler.TestDominantResourceShare", shares),
    ("preemption.TestFairPreemptions", displaces),
    ("scheduler.TestScheduleForFairSharing", schedule),
];

fn shares(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    world.flavors(&["default", "on-demand", "spot"].map(|name| json!({ "metadata": { "name": name } })));
    let queues = [&tc["clusterQueue"], &tc["lendingClusterQueue"]];
    let queues: Vec<&Value> = queues.into_iter().filter(|queue| !queue.is_null()).collect();
    world.queues(&json!({ "clusterQueues": queues, "cohorts": tc["cohorts"] }));
    world.usage(&json!({ "cq": tc["usage"] }));
    let given: BTreeMap<(bool, String), (i64, String, bool)> = world
        .fair_shares(&tc["flvResQ"])
        .into_iter()
        .map(|share| {
            let sharer = match share.sharer {
                Sharer::ClusterQueue(name) => (false, name.to_string()),
                Sharer::Cohort(name) => (true, name.to_string()),
            };
            let resource = share.resource.map(|resource| resource.as_str().to_owned()).unwrap_or_default();
            (sharer, (share.weighted, resource, share.borrows))
        })
        .collect();
    let wanted: BTreeMap<(bool, String), (i64, String, bool)> = tc["want"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|want| {
            let text = |field: &str| want[field].as_str().unwrap_or_default().to_owned();
            let flag = |field: &str| want[field].as_bool().unwrap_or_default();
            let share = (want["DrValue"].as_i64().unwrap_or(0), text("DrName"), flag("Borrowing"));
            ((flag("NodeType"), text("Name")), share)
        })
        .collect();
    if given == wanted { Ok(()) } else { Err(format!("{given:?}, wanted {wanted:?}")) }
}

/// The strategies by Kueue's names; none are its default list.
fn strategies(written: &Value) -> FairSharing {
    let names: Vec<&str> = written.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match names.as_slice() {
        [] | ["LessThanOrEqualToFinalShare", "LessThanInitialShare"] => FairSharing::FinalThenInitialShare,
        ["LessThanOrEqualToFinalShare"] => FairSharing::FinalShare,
        ["LessThanInitialShare"] => FairSharing::InitialShare,
        other => panic!("{other:?} are no strategies"),
    }
}

fn displaces(case: &Case) -> Verdict {
    let tc = case.tc();
    let fair_sharing = Some(strategies(&tc["strategies"]));
    let config = gates(tc);
    let mut world = World::with(&config, Settings { fair_sharing, ..config.settings() });
    let flavors = if tc["flavors"].is_null() { case.shared("flavors") } else { &tc["flavors"] };
    world.flavors(flavors.as_array().map_or(&[], Vec::as_slice));
    world.queues(&with_quotas(tc));
    // Among equals the uid decides: their names (`conformance/README.md`).
    let mut admitted = tc["admitted"].clone();
    for object in admitted.as_array_mut().into_iter().flatten() {
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
    }
    world.workloads(&admitted);
    world.local_queue("incoming", tc["targetCQ"].as_str().unwrap());
    let mut incoming = tc["incoming"].clone();
    incoming["metadata"]["namespace"] = json!("default");
    incoming["spec"]["queueName"] = json!("incoming");
    world.workloads(&json!([incoming.clone()]));
    let flavor = tc["assignmentFlavor"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    let chosen = |set: &Value| Chosen {
        count: set["count"].as_i64().unwrap_or(1),
        flavors: [("cpu".into(), (flavor.into(), true))].into(),
    };
    let chosen: Vec<Chosen> = incoming["spec"]["podSets"].as_array().unwrap().iter().map(chosen).collect();
    let uid = world.uid(&key_of(&incoming));
    let target = tc["targetCQ"].as_str().unwrap().into();
    let victims = world.engine.find_victims(&uid, &target, &chosen);
    // It was a question only.
    world.engine.audit()?;
    if world.engine.find_victims(&uid, &target, &chosen) != victims {
        return Err("asked again, it answers otherwise".to_owned());
    }
    let given: BTreeMap<String, &str> =
        victims.iter().map(|victim| (world.key(&victim.workload), victim.reason.token())).collect();
    let wanted: BTreeMap<String, &str> = tc["wantPreempted"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(victim, _)| victim.rsplit_once(':').unwrap())
        .map(|(key, reason)| (key.to_owned(), reason))
        .collect();
    if given == wanted { Ok(()) } else { Err(format!("{given:?}, wanted {wanted:?}")) }
}
