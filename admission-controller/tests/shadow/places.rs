//! Where pods go: with the quota, when their nodes have come, and anew when one has failed.

use admission_controller::shadow::PATIENCE;
use serde_json::{Value, json};

use super::support::World;
use super::support::racks::{self, HOST, RACK, together, topology};
use super::{GROUP, conditions, end, has_rows, metrics, replayed, start, wrote_nothing};

/// Its admission as somebody writes it by hand, with its pods on these nodes, so many each.
fn placed_on(nodes: &[(&str, i64)]) -> Value {
    let slice = |(node, pods): &(&str, i64)| json!({ "domainCount": 1, "valuesPerLevel": [{ "universal": node }], "podCounts": { "universal": pods } });
    let slices: Vec<Value> = nodes.iter().map(slice).collect();
    let count: i64 = nodes.iter().map(|(_, pods)| pods).sum();
    json!({ "clusterQueue": "placed", "podSetAssignments": [{
        "name": "main", "count": count, "flavors": { "nvidia.com/gpu": "racks" },
        "resourceUsage": { "nvidia.com/gpu": count.to_string() },
        "topologyAssignment": { "levels": [HOST], "slices": slices },
    }] })
}

/// Two pods, for which the first node of the first rack is the best place.
async fn a_pair(world: &World, name: &str) {
    let container =
        json!({ "name": "c", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "1" } } });
    let workload = json!({
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "placed", "active": true, "priority": 0, "podSets": [{
            "name": "main", "count": 2, "topologyRequest": { "required": RACK },
            "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
        }] },
    });
    world.create(GROUP, "workloads", workload).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_places_alike_shows_no_difference() {
    let world = racks::world().await;
    topology(&world).await;
    world.start("kueue");
    world.settle().await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;
    for (name, workers) in [("first", 6), ("second", 2), ("third", 3)] {
        world.create("kubeflow.org", "pytorchjobs", together(name, workers, RACK)).await;
        world.settle().await;
    }
    world.sleep(PATIENCE * 2).await;
    assert_eq!(page.rows(), Vec::<String>::new());
    let line = r#"trireme_shadow_decisions_total{decision="placement",result="same"} 3"#;
    assert!(metrics(&world).await.lines().any(|one| one == line), "{}", metrics(&world).await);
    end(&tasks).await;
    let (again, summary) = replayed(&recording);
    assert_eq!((again.rows(), summary.different), (Vec::new(), 0));
}

async fn gets(world: &World, name: &str, admission: Value) {
    let write = |one: &mut Value| {
        one["status"]["admission"] = admission.clone();
        one["status"]["conditions"] = conditions(&[("QuotaReserved", "True", "QuotaReserved")]);
    };
    world.update(GROUP, "workloads", name, true, write).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn other_places_are_told_with_both() {
    let world = racks::world().await;
    topology(&world).await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;
    a_pair(&world, "elsewhere").await;
    gets(&world, "elsewhere", placed_on(&[("n3", 1), ("n4", 1)])).await;
    world.sleep(PATIENCE * 2).await;
    has_rows(&page, &[["placement", "team/elsewhere", "main in n1 x2", "main in n3 x1, n4 x1"]]);
    wrote_nothing(&world);
    end(&tasks).await;
    assert_eq!(replayed(&recording).0.rows(), page.rows());
}

/// Nodes are asked for first, and the places are found when they have come.
#[tokio::test(start_paused = true)]
async fn places_that_come_later_and_that_do_not_come_are_told() {
    let world = racks::world().await;
    topology(&world).await;
    let check = json!({ "metadata": { "name": "nodes" }, "spec": { "controllerName": "kueue.x-k8s.io/provisioning-request" } });
    world.create(GROUP, "admissionchecks", check).await;
    let active = json!([{ "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:10:00Z" }]);
    world
        .update(GROUP, "admissionchecks", "nodes", true, |one| one["status"]["conditions"] = active.clone())
        .await;
    world
        .update(GROUP, "clusterqueues", "placed", false, |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "nodes" }] });
        })
        .await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;
    let delayed = |state: &str, mut admission: Value| {
        let set = admission["podSetAssignments"][0].as_object_mut().unwrap();
        if state == "Pending" {
            set.remove("topologyAssignment");
        }
        set.insert("delayedTopologyRequest".to_owned(), json!(state));
        admission
    };
    let passes = async |name: &str| {
        let ready = json!([{ "name": "nodes", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:10:00Z" }]);
        world
            .update(GROUP, "workloads", name, true, |one| one["status"]["admissionChecks"] = ready.clone())
            .await;
        world.settle().await;
    };
    for (name, node) in [("alike", "n1"), ("late", "n4"), ("never", "")] {
        a_pair(&world, name).await;
        gets(&world, name, delayed("Pending", placed_on(&[("n1", 2)]))).await;
        passes(name).await;
        if !node.is_empty() {
            gets(&world, name, delayed("Ready", placed_on(&[(node, 2)]))).await;
        }
    }
    world.sleep(PATIENCE * 2).await;
    has_rows(
        &page,
        &[
            ["placement", "team/late", "main in n1 x2", "main in n4 x2"],
            ["placement", "team/never", "main in n", "no places yet"],
        ],
    );
    let line = r#"trireme_shadow_decisions_total{decision="placement",result="same"} 1"#;
    assert!(metrics(&world).await.lines().any(|one| one == line), "{}", metrics(&world).await);
    end(&tasks).await;
    assert_eq!(replayed(&recording).0.rows(), page.rows());
}

/// A node fails under a pair, and Kueue gives it other places: the same, others, places where none are left here, or none.
#[tokio::test(start_paused = true)]
async fn places_that_are_given_anew_are_compared() {
    let elsewhere = [("n3", 2)];
    for (others, anew, wanted) in [
        (0, &[("n2", 2)][..], None),
        (0, &elsewhere, Some(["placement", "team/pair", "main in n2 x2", "main in n3 x2"])),
        // Nothing is free.
        (4, &elsewhere, Some(["placement", "team/pair", "NodeFailures", "main in n3 x2"])),
        (0, &[], Some(["placement", "team/pair", "main in n2 x2", "main in n1 x2"])),
    ] {
        let world = racks::world().await;
        topology(&world).await;
        let (page, recording, tasks) = start(&world);
        world.settle().await;
        let taken = ["n2", "n3", "n4"].map(|node| (node, others));
        for (name, nodes) in [("pair", &[("n1", 2)][..]), ("other", &taken)] {
            let count: i64 = nodes.iter().map(|(_, pods)| pods).sum();
            if count > 0 {
                a_pair(&world, name).await;
                let asks = |one: &mut Value| one["spec"]["podSets"][0]["count"] = json!(count);
                world.update(GROUP, "workloads", name, false, asks).await;
                gets(&world, name, placed_on(nodes)).await;
            }
        }
        let admitted = |one: &mut Value| {
            let conditions = one["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(self::conditions(&[("Admitted", "True", "Admitted")])[0].clone());
        };
        world.update(GROUP, "workloads", "pair", true, admitted).await;
        world.settle().await;
        racks::node_fails(&world, "n1").await;
        let fails = |one: &mut Value| one["status"]["unhealthyNodes"] = json!([{ "name": "n1" }]);
        world.update(GROUP, "workloads", "pair", true, fails).await;
        world.settle().await;
        if !anew.is_empty() {
            let moves = |one: &mut Value| {
                one["status"]["admission"] = placed_on(anew);
                one["status"].as_object_mut().unwrap().remove("unhealthyNodes");
            };
            world.update(GROUP, "workloads", "pair", true, moves).await;
        }
        world.sleep(PATIENCE * 2).await;
        // What it says besides is no news of its places.
        let ready = |one: &mut Value| {
            let conditions = one["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(self::conditions(&[("PodsReady", "False", "WaitForRecovery")])[0].clone());
        };
        world.update(GROUP, "workloads", "pair", true, ready).await;
        world.sleep(PATIENCE * 2).await;
        let is_of_it = |row: &String| row.contains("team/pair");
        let rows: Vec<String> = page.rows().into_iter().filter(is_of_it).collect();
        let is_told =
            |row: &String| wanted.is_some_and(|wanted| wanted.iter().all(|words| row.contains(words)));
        assert!(
            rows.iter().all(is_told) && rows.len() == usize::from(wanted.is_some()),
            "{wanted:?}: {rows:?}"
        );
        end(&tasks).await;
        assert_eq!(replayed(&recording).0.rows(), page.rows());
    }
}
