//! Two replicas: the one that leads stands still, dies or is told to end; both start on objects of the older version.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::node::kubectl;
use crate::cluster::{get, wait};
use crate::programs::wait_ready;
use crate::registry::{Test, output};
use crate::stack::{
    ADMISSION, GPU, NAMESPACE, PLACEMENTS, PODS, SCHEDULER, SYSTEM, batch, configure_webhooks, gpus, hold,
    is, launch_admission, leader, list, remove_endpoints, restore_endpoints, start_admission,
    start_scheduler, stop, test, wait_held, wait_running, wait_trusted, written,
};
use crate::world::World;
use control_plane::Request;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Tests of replicas.
pub(crate) fn all() -> Vec<Test> {
    vec![
        test("replicas/a_second_admission_controller_is_ready_and_writes_nothing", async |world| {
            follows(world, ADMISSION).await
        }),
        test("replicas/a_second_gang_scheduler_is_ready_and_writes_nothing", async |world| {
            follows(world, SCHEDULER).await
        }),
        test("replicas/an_admission_controller_that_ends_hands_over_at_once", async |world| {
            hands_over(world, ADMISSION).await
        }),
        test("replicas/a_gang_scheduler_that_ends_hands_over_at_once", async |world| {
            hands_over(world, SCHEDULER).await
        }),
        test(
            "replicas/an_admission_controller_paused_between_quota_and_release_is_replaced",
            async |world| paused(world, ADMISSION, ("UPDATE", "batch", "jobs"), 0).await,
        ),
        test("replicas/a_gang_scheduler_paused_with_half_the_gang_bound_is_replaced", async |world| {
            paused(world, SCHEDULER, ("CREATE", "", "pods/binding"), 2).await
        }),
        test("replicas/a_replica_that_does_not_lead_converts_and_defaults", converts),
        test("replicas/both_start_cold_on_stored_v1beta1_objects", cold),
    ]
}

fn second(program: &str) -> String {
    format!("{program}-2")
}

/// Waits until the first leads, then starts another.
async fn start_second(world: &World, program: &str) -> Result<String> {
    wait_leader(world, program, program).await?;
    let name = second(program);
    if program == ADMISSION {
        start_admission(world, &name).await?;
    } else {
        start_scheduler(world, &name).await?;
    }
    Ok(name)
}

async fn wait_leader(world: &World, program: &str, replica: &str) -> Result<()> {
    wait(&format!("{replica} to lead"), Duration::from_secs(40), async || {
        Ok(leader(world, program).await?.0 == replica)
    })
    .await
}

async fn submit(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("train", "training", 4, 2, "")).await.map(|_| ())
}

/// The gang runs whole, and everything about it was written once.
async fn comes_out_right(world: &World, since: usize) -> Result<()> {
    let pods = wait_running(world, "job-name=train", 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "all eight");
    wait("one GangPlacement, Bound", Duration::from_secs(60), async || {
        let all = list(world, PLACEMENTS).await?;
        Ok(all.len() == 1 && all.iter().all(|one| one["status"]["phase"] == "Bound"))
    })
    .await?;
    let all = written(world)?;
    for (verb, resource, count) in [
        ("create", "workloads", 1),
        ("patch", "jobs", 1),
        ("create", "gangplacements", 1),
        ("create", "pods/binding", 4),
    ] {
        let writes = all.iter().skip(since).filter(|write| write.verb == verb && write.resource == resource);
        let writes: Vec<&Request> = writes.collect();
        ensure!(writes.len() == count, "{verb} {resource} was wanted {count} times: {writes:?}");
        let names: BTreeSet<_> = writes.iter().map(|write| &write.name).collect();
        ensure!(names.len() == count, "written twice: {writes:?}");
    }
    Ok(())
}

async fn follows(world: &World, program: &str) -> Result<()> {
    let second = start_second(world, program).await?;
    let (before, since) = (leader(world, program).await?, written(world)?.len());
    submit(world).await?;
    comes_out_right(world, since).await?;
    // What was refused, too: it would have been written.
    let all = world.running()?.plane.requests()?;
    let writes =
        |one: &&Request| matches!(&*one.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    let its: Vec<_> =
        all.iter().filter(writes).filter(|one| one.by == second && one.resource != "leases").collect();
    ensure!(its.is_empty(), "it does not lead and wrote {its:?}");
    ensure!(leader(world, program).await? == before, "the lease stays where it is");
    stop(world, &second).await
}

async fn hands_over(world: &World, program: &str) -> Result<()> {
    let second = start_second(world, program).await?;
    let (_, transitions) = leader(world, program).await?;
    stop(world, program).await?;
    let limit = Duration::from_secs(5);
    wait("the second to lead, long before the lease would have run out", limit, async || {
        Ok(leader(world, program).await? == (second.clone(), transitions + 1))
    })
    .await?;
    if program == ADMISSION {
        wait_trusted(world).await?;
    }
    let since = written(world)?.len();
    submit(world).await?;
    comes_out_right(world, since).await?;
    let others = written(world)?.into_iter().skip(since).filter(|write| write.by == program).count();
    ensure!(others == 0, "the first wrote after its end");
    Ok(())
}

/// The leader stands still while a write of it is on its way. The second takes over; both writes arrive; the first wakes.
async fn paused(world: &World, program: &str, what: (&str, &str, &str), after: usize) -> Result<()> {
    let second = start_second(world, program).await?;
    let (_, transitions) = leader(world, program).await?;
    let since = written(world)?.len();
    hold(world, what.0, what.1, what.2, after).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.pause(program)?;
    if program == ADMISSION {
        // What a pod that does not answer its readiness probe leads to.
        remove_endpoints(world, program).await?;
    }
    wait_leader(world, program, &second).await?;
    world.running()?.webhooks.release();
    comes_out_right(world, since).await?;

    let since = written(world)?.len();
    world.programs().await?.unpause(program)?;
    wait_ready(world, program).await?;
    world.running()?.applier.must(&batch("later", "training", 1, 2, "")).await?;
    output(&mut kubectl(world, &["delete", "job", "train", "-n", NAMESPACE])?).await?;
    wait_running(world, "job-name=later", 1).await?;
    ensure!(leader(world, program).await? == (second.clone(), transitions + 1), "the second leads on");
    let all = written(world)?;
    let its: Vec<_> = all.iter().skip(since).filter(|write| write.by == program).collect();
    ensure!(its.is_empty(), "it leads no more and wrote {its:?}");

    if program == ADMISSION {
        restore_endpoints(world, program).await?;
    }
    stop(world, &second).await?;
    wait_leader(world, program, program).await?;
    Ok(())
}

async fn converts(world: &World) -> Result<()> {
    let second = start_second(world, ADMISSION).await?;
    // No connection to the first is left, and its lease has not run out.
    world.programs().await?.kill(ADMISSION)?;
    remove_endpoints(world, ADMISSION).await?;
    let before = leader(world, ADMISSION).await?;
    wait_trusted(world).await?;
    let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "old"},
        "spec": {"cohort": "shared", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU],
            "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 1}]}]}]}});
    world.running()?.applier.must(&old).await?;
    let client = &world.running()?.plane.client;
    let new = get(client, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old").await?;
    ensure!(new["spec"]["cohortName"] == "shared", "{}", new["spec"]);
    let job = world.running()?.applier.must(&batch("train", "training", 1, 1, "")).await?;
    ensure!(job.data["spec"]["suspend"] == true, "{}", job.data["spec"]);
    ensure!(
        leader(world, ADMISSION).await? == before && before.0 != second,
        "{second} did not lead meanwhile"
    );
    output(&mut kubectl(world, &["delete", "clusterqueue", "old"])?).await?;
    wait_running(world, "job-name=train", 1).await.map(|_| ())
}

/// Which version of these kinds is stored.
async fn store_as(world: &World, version: &str) -> Result<()> {
    let client = &world.running()?.plane.client;
    for plural in ["cohorts", "clusterqueues", "localqueues", "workloads"] {
        let path = format!("{DEFINITIONS}/{plural}.kueue.x-k8s.io");
        let mut versions = get(client, &path).await?["spec"]["versions"].clone();
        for one in versions.as_array_mut().into_iter().flatten() {
            one["storage"] = json!(one["name"] == version);
        }
        // Nobody can convert, as nobody is trusted.
        let conversion = json!({"webhook": {"clientConfig": {"caBundle": null}}});
        patch(world, &path, &json!({"spec": {"versions": versions, "conversion": conversion}})).await?;
    }
    Ok(())
}

async fn patch(world: &World, path: &str, body: &Value) -> Result<Value> {
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(body.to_string().into_bytes())?;
    Ok(world.running()?.plane.client.request(request).await?)
}

/// POST, tried again until the server has heard of a new definition.
async fn create(world: &World, path: &str, body: &Value) -> Result<()> {
    let client = &world.running()?.plane.client;
    wait(&format!("{} to be taken", body["metadata"]["name"]), Duration::from_secs(20), async || {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
        client.request::<Value>(request).await?;
        Ok(true)
    })
    .await
}

async fn delete(world: &World, path: &str) -> Result<()> {
    let request = http::Request::delete(path).body(Vec::new())?;
    world.running()?.plane.client.request::<Value>(request).await?;
    Ok(())
}

/// A pool with a queue and a Workload in it, written by clients of v1beta1 while that is what is stored.
async fn old_objects(world: &World) -> Result<()> {
    let kueue = "/apis/kueue.x-k8s.io/v1beta1";
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let flavors = json!([{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 4}]}]);
    let queue = json!({"cohort": "old-pool", "namespaceSelector": {}, "queueingStrategy": "StrictFIFO",
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]});
    create(world, &format!("{kueue}/cohorts"), &object("Cohort", "old-pool", json!({}))).await?;
    create(world, &format!("{kueue}/clusterqueues"), &object("ClusterQueue", "old", queue)).await?;
    let local = object("LocalQueue", "old", json!({"clusterQueue": "old"}));
    create(world, &format!("{kueue}/namespaces/{NAMESPACE}/localqueues"), &local).await?;
    let container = json!({"name": "main", "image": "x", "resources": {"requests": {GPU: "2"}}});
    let sets = json!([{"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}]);
    let workload = object("Workload", "old", json!({"queueName": "old", "podSets": sets}));
    create(world, &format!("{kueue}/namespaces/{NAMESPACE}/workloads"), &workload).await?;
    let definition =
        get(&world.running()?.plane.client, &format!("{DEFINITIONS}/workloads.kueue.x-k8s.io")).await?;
    let stored = definition["status"]["storedVersions"].as_array().context("stored versions")?;
    ensure!(stored.contains(&json!("v1beta1")), "{stored:?}");
    Ok(())
}

async fn cold(world: &World) -> Result<()> {
    world.programs().await?.kill(ADMISSION)?;
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        delete(world, &format!("/apis/admissionregistration.k8s.io/v1/{kind}/trireme-admission-controller"))
            .await?;
    }
    delete(world, &format!("/api/v1/namespaces/{SYSTEM}/secrets/admission-controller-tls")).await?;
    store_as(world, "v1beta1").await?;
    old_objects(world).await?;
    store_as(world, "v1beta2").await?;

    let second = second(ADMISSION);
    for name in [ADMISSION, &second] {
        launch_admission(world, name).await?;
    }
    configure_webhooks(world).await?;
    for name in [ADMISSION, &second] {
        wait_ready(world, name).await?;
    }
    wait_trusted(world).await?;
    let path = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads/old");
    wait("the old Workload to be admitted", Duration::from_secs(40), async || {
        let workload = get(&world.running()?.plane.client, &path).await?;
        Ok(is(&workload, "Admitted", "True") && workload["status"]["admission"]["clusterQueue"] == "old")
    })
    .await?;
    let queue = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old";
    // Its status is written after the Workload's.
    wait("the old ClusterQueue to be Active", Duration::from_secs(20), async || {
        Ok(is(&get(&world.running()?.plane.client, queue).await?, "Active", "True"))
    })
    .await?;
    let new = get(&world.running()?.plane.client, queue).await?;
    ensure!(new["spec"]["cohortName"] == "old-pool", "{}", new["spec"]);
    ensure!(new["spec"]["queueingStrategy"] == "StrictFIFO", "{}", new["spec"]);
    ensure!(list(world, PODS).await?.is_empty(), "a Workload without a job makes no pods");
    for (kind, name) in
        [("workload", "old"), ("localqueue", "old"), ("clusterqueue", "old"), ("cohort", "old-pool")]
    {
        output(&mut kubectl(world, &["delete", kind, name, "-n", NAMESPACE])?).await?;
    }
    let since = written(world)?.len();
    submit(world).await?;
    comes_out_right(world, since).await
}
