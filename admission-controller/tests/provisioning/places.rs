//! Pods that are placed by topology: first the quota, then the nodes, then places on them.

use serde_json::{Value, json};

use super::support::racks::{
    self, HOST, RACK, is_ready, make_pods, places, pod, template, together, topology,
};
use super::{GROUP, World, ask, make_check, requests, say};

fn assigned(world: &World) -> Value {
    world.workload("llama").unwrap()["status"]["admission"]["podSetAssignments"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn places_are_found_when_the_nodes_have_come() {
    let world = racks::world().await;
    topology(&world).await;
    make_check(&world, "nodes").await;
    ask(&world, "placed", &["nodes"]).await;
    let config = json!({ "metadata": { "name": "queued" }, "spec": { "provisioningClassName": "queued.example.com" } });
    world.create(GROUP, "provisioningrequestconfigs", config).await;
    world.start("layer1");
    for node in ["n1", "n2", "n3", "n4"] {
        is_ready(&world, node, false).await;
    }
    world.create("kubeflow.org", "pytorchjobs", together("llama", 6, RACK)).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    assert_eq!(assigned(&world)["delayedTopologyRequest"], "Pending");
    assert!(places(&world, "llama").is_empty());

    // They are said to be there, and are not ready yet.
    say(&world, &requests(&world)[0], "Provisioned", "here they are").await;
    world.settle().await;
    assert!(!world.is("llama", "Admitted") && world.is_suspended("llama"));
    assert_eq!(world.condition("llama", "Admitted").unwrap().1, "PendingDelayedTopologyRequests");
    assert_eq!(world.explained("llama").await["state"], "WaitingForPlaces");
    let told = world.told_of("Workload", &world.workload_name("llama"));
    assert!(told.contains(&"SecondPassFailed".to_owned()), "{told:?}");

    for node in ["n3", "n4"] {
        is_ready(&world, node, true).await;
    }
    world.settle().await;
    assert_eq!(assigned(&world)["delayedTopologyRequest"], "Ready");
    assert_eq!(places(&world, "llama"), [("n3".to_owned(), 4), ("n4".to_owned(), 2)]);
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    let gate = json!([{ "name": "kueue.x-k8s.io/topology" }]);
    assert_eq!(template(&world, "llama")["spec"]["schedulingGates"], gate);
    assert_eq!(template(&world, "llama")["spec"]["nodeSelector"].get(HOST), None, "each pod has its own");
    make_pods(&world, "llama", 0..6).await;
    world.settle().await;
    for index in 0..6 {
        let host = if index < 4 { "n3" } else { "n4" };
        assert_eq!(pod(&world, &format!("llama-{index}")), (json!([]), json!(host)), "{index}");
    }
}
