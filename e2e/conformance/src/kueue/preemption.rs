//! Whom a workload displaces.

use std::collections::BTreeMap;

use admission_controller::{status, words};
use crds::view::workload::Workload;
use quota_engine::{Chosen, EvictReason, FlavorName};
use serde_json::{Value, json};

use super::cycle::{comparable, differences, gates};
use super::world::{self, World};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] =
    &[("preemption.TestPreemption", displaces), ("preemption.TestHierarchicalPreemptions", displaces)];

fn displaces(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::under(&gates(tc));
    let flavors = if tc["flavors"].is_null() { case.shared("flavors") } else { &tc["flavors"] };
    world.flavors(flavors.as_array().map_or(&[], Vec::as_slice));
    world.queues(&world::with_quotas(tc));
    world.workloads(&tc["admitted"]);
    let target = tc["targetCQ"].as_str().unwrap();
    world.local_queue("incoming", target);
    let mut incoming = tc["incoming"].clone();
    incoming["metadata"]["namespace"] = json!("default");
    incoming["spec"]["queueName"] = json!("incoming");
    world.workloads(&json!([incoming]));
    let chosen: Vec<Chosen> =
        tc["assignment"]["PodSets"].as_array().into_iter().flatten().map(chosen).collect();
    let uid = world.uid(&world::key_of(&incoming));
    let victims = world.engine.find_victims(&uid, &target.into(), &chosen);
    // It was a question only.
    world.engine.audit()?;
    if world.engine.find_victims(&uid, &target.into(), &chosen) != victims {
        return Err("asked again, it answers otherwise".to_owned());
    }
    let wanted = tc["wantPreempted"].as_u64().unwrap_or(0);
    if victims.len() as u64 != wanted {
        return Err(format!("{} victims, wanted {wanted}: {victims:?}", victims.len()));
    }
    let mut given: BTreeMap<String, Value> = by_name(&tc["admitted"]);
    let now = case.shared("now").as_str().unwrap().parse().unwrap();
    for victim in victims.iter().filter(|victim| !victim.leaves) {
        let key = world.key(&victim.workload);
        let object = given.values_mut().find(|object| world::key_of(object) == key).unwrap();
        let view: Workload = world.stored(object);
        let reason = EvictReason::Preempted(victim.reason);
        let message = words::eviction(reason, Some(("wl-in", "job-in")), ("", ""));
        let body = status::evicted(&view, reason, &message, None, now);
        for (field, value) in body["status"].as_object().unwrap() {
            object["status"][field] = value.clone();
        }
    }
    let wanted = by_name(&tc["wantWorkloads"]);
    for (name, wanted) in &wanted {
        let given = given.get(name).map(comparable).unwrap_or_default();
        differences(name, &comparable(wanted), &given)?;
    }
    if given.len() == wanted.len() { Ok(()) } else { Err("not the same workloads".to_owned()) }
}

fn chosen(set: &Value) -> Chosen {
    let flavors = set["Flavors"].as_object().into_iter().flatten().map(|(resource, choice)| {
        let flavor = FlavorName::from(choice["Name"].as_str().unwrap());
        (resource.as_str().into(), (flavor, choice["Mode"] == 1))
    });
    Chosen { count: set["Count"].as_i64().unwrap_or(0), flavors: flavors.collect() }
}

fn by_name(workloads: &Value) -> BTreeMap<String, Value> {
    let workloads = workloads.as_array().into_iter().flatten();
    workloads.map(|object| (world::key_of(object), object.clone())).collect()
}
