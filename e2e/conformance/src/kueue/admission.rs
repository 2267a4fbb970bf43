//! Admission fair sharing: whose turn it is among LocalQueues.

use quota_engine::{Event, LocalQueueKey};
use serde_json::json;

use super::cycle::{self, Cycle};
use super::world::World;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[("scheduler.TestScheduleForAFS", take_turns)];

/// As many cycles as there are workloads, by LocalQueues of which some have used something already.
fn take_turns(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut file = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2" });
    if tc["featureGates"]["AdmissionFairSharing"] == true {
        file["admissionFairSharing"] = json!({ "usageHalfLifeTime": "10s", "usageSamplingInterval": "1s" });
    }
    let mut world = World::under(&cycle::file(tc, file));
    world.flavors(case.shared("resourceFlavors").as_array().unwrap());
    // The queues know nothing yet of the LocalQueue that is deleted (`deleteQueue`): its watch event has not come.
    world.queues(&json!({
        "clusterQueues": case.shared("clusterQueues"),
        "queues": case.shared("queues"),
    }));
    for (queue, consumed) in tc["initialUsage"].as_object().into_iter().flatten() {
        let view = world.stored(&json!({
            "metadata": { "name": queue, "namespace": "default" },
            "status": { "fairSharing": { "admissionFairSharingStatus": { "consumedResources": consumed } } },
        }));
        let consumed = admission_controller::input::history(&view).unwrap();
        world.engine.apply(Event::LocalQueueHistory(LocalQueueKey::new("default", queue.as_str()), consumed));
    }
    let mut cycle = Cycle::new(world, case.shared("now").as_str().unwrap());
    cycle.workloads(&tc["workloads"]);
    for _ in tc["workloads"].as_array().into_iter().flatten() {
        cycle.run();
    }
    cycle.judge_written(tc)
}
