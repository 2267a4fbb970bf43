//! Who is admitted, and what a queue may take.

use quota_engine::Outcome;
use serde_json::{Value, json};

use super::cycle::{self, Cycle};
use super::world::World;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("scheduler.TestAvailable", available),
    ("scheduler.TestSchedule", schedule),
    ("scheduler.TestScheduleRecomputePreemptionTargets", schedule),
    ("scheduler.TestSchedulerWhenWorkloadModifiedConcurrently", modified_concurrently),
];

fn available(case: &Case) -> Verdict {
    let tc = case.tc();
    for (wanted, used) in [("wantPotentiallyAvailable", false), ("wantAvailable", true)] {
        for (queue, amounts) in tc[wanted].as_object().into_iter().flatten() {
            for (pair, amount) in amounts.as_object().into_iter().flatten() {
                let pair: Value = serde_json::from_str(pair).unwrap();
                let (flavor, resource) =
                    (pair["Flavor"].as_str().unwrap(), pair["Resource"].as_str().unwrap());
                let amount = amount["value"].as_i64().or(amount.as_i64()).unwrap_or(0);
                let fits = |amount: i64| {
                    let mut world = World::under(&cycle::gates(tc));
                    world.named_flavors(&["red", "blue"]);
                    world.queues(tc);
                    if used {
                        world.usage(&tc["usage"]);
                    }
                    world.probe(queue, flavor, resource, amount)
                };
                if amount > 0 && !fits(amount) {
                    return Err(format!("{wanted}: {queue} cannot take {amount} {resource} of {flavor}"));
                }
                if amount.max(0).checked_add(1).is_some_and(fits) {
                    return Err(format!("{wanted}: {queue} takes more than {amount} {resource} of {flavor}"));
                }
            }
        }
    }
    Ok(())
}

/// One cycle in the world of `ctx_cfg` and the case.
pub(super) fn schedule(case: &Case) -> Verdict {
    let (tc, config) = (case.tc(), case.shared("cfg"));
    let mut world = World::under(&cycle::configuration(tc));
    world.flavors(config["resourceFlavors"].as_array().unwrap());
    world.queues(config);
    world.queues(&json!({
        "clusterQueues": tc["additionalClusterQueues"],
        "queues": tc["additionalLocalQueues"],
        "cohorts": tc["cohorts"],
    }));
    world.objects(&tc["objects"]);
    let now = config["fakeClock"]["FakePassiveClock"]["time"].as_str().unwrap();
    let mut cycle = Cycle::new(world, now);
    cycle.writes_fail = (!tc["admissionError"].is_null()).then_some(Outcome::NotWritten);
    cycle.workloads(&tc["workloads"]);
    cycle.run();
    cycle.judge(tc)
}

/// Somebody else changes the Workload between the decision and its write.
fn modified_concurrently(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::new();
    world.flavors(&[json!({ "metadata": { "name": "rf" } })]);
    world.queues(&json!({
        "clusterQueues": [{ "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "rf", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
            ]}],
        }}],
        "queues": [{ "metadata": { "name": "lq", "namespace": "default" }, "spec": { "clusterQueue": "cq" } }],
    }));
    let mut cycle = Cycle::new(world, case.shared("now").as_str().unwrap());
    cycle.workloads(&json!([tc["workload"]]));
    cycle.modified_before_write = true;
    cycle.run();
    cycle.judge_written(tc)
}
