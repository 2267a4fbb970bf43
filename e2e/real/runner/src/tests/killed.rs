//! SIGKILL at chosen writes: a webhook holds the program's request back at the API server, the program dies, and its next
//! life finds what there is.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::agent::{visible_devices, wait_allocatable, wait_allocatable_is_not};
use super::node::kubectl;
use crate::cluster::{get, wait};
use crate::programs::wait_ready;
use crate::registry::{Test, output};
use crate::stack::{
    ADMISSION, AGENT, JOBS, NAMESPACE, PLACEMENTS, PODS, SCHEDULER, SYSTEM, WORKLOADS, batch, gpus, hold, is,
    list, pytorch, test, the_workload, wait_held, wait_running, wait_trusted, written,
};
use crate::world::World;

/// Tests of programs that die.
pub(crate) fn all() -> Vec<Test> {
    vec![
        test("killed/admission_controller_before_the_workload_is_made", async |world| {
            at(world, ADMISSION, "CREATE", "kueue.x-k8s.io", "workloads", 0).await
        }),
        test("killed/admission_controller_before_quota_is_reserved", async |world| {
            at(world, ADMISSION, "UPDATE", "kueue.x-k8s.io", "workloads/status", 0).await
        }),
        test("killed/admission_controller_between_quota_and_release", between_quota_and_release),
        test("killed/admission_controller_before_the_end_is_written", before_the_end),
        test("killed/admission_controller_while_a_job_is_deleted", while_deleted),
        test("killed/gang_scheduler_before_the_plan_is_stored", async |world| {
            at(world, SCHEDULER, "CREATE", "trireme.dev", "gangplacements", 0).await
        }),
        test("killed/gang_scheduler_before_the_first_pod_is_bound", async |world| {
            at(world, SCHEDULER, "CREATE", "", "pods/binding", 0).await
        }),
        test("killed/gang_scheduler_with_half_the_gang_bound", half_bound),
        test("killed/gang_scheduler_before_the_outcome_is_written", async |world| {
            at(world, SCHEDULER, "UPDATE", "trireme.dev", "gangplacements/status", 0).await
        }),
        test("killed/gang_scheduler_with_half_bound_and_the_job_deleted_meanwhile", half_bound_and_deleted),
        test("killed/node_agent_while_pods_run", agent_while_pods_run),
        test("killed/node_agent_while_a_gang_is_being_bound", agent_while_bound),
        test("killed/all_three_at_once", all_three),
    ]
}

/// The job that all of these run: four pods that need all eight GPUs.
async fn submit(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("train", "training", 4, 2, "")).await.map(|_| ())
}

/// The next life, without the wait for the lease of the one before: nobody who is dead holds one.
async fn restart(world: &World, program: &str) -> Result<()> {
    if program != AGENT {
        let lease = ["delete", "lease", program, "-n", SYSTEM, "--ignore-not-found"];
        output(&mut kubectl(world, &lease)?).await?;
    }
    restart_and_wait(world, program).await
}

/// The next life, which waits until the lease of the one before has run out.
async fn restart_and_wait(world: &World, program: &str) -> Result<()> {
    world.programs().await?.restart(program)?;
    wait_ready(world, program).await?;
    if program == ADMISSION { wait_trusted(world).await } else { Ok(()) }
}

/// The gang is whole, no GPU is given twice, one GangPlacement remains and is Bound, no pod was bound or made twice.
async fn comes_out_right(world: &World, since: usize) -> Result<()> {
    let pods = wait_running(world, "job-name=train", 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "all eight");
    wait("one GangPlacement, Bound", Duration::from_secs(60), async || {
        let all = list(world, PLACEMENTS).await?;
        Ok(all.len() == 1 && all.iter().all(|one| one["status"]["phase"] == "Bound"))
    })
    .await?;
    let workload = the_workload(world).await?;
    ensure!(
        is(&workload, "QuotaReserved", "True") && is(&workload, "Admitted", "True"),
        "{}",
        workload["status"]
    );
    none_bound_twice(world, since)?;
    ensure!(list(world, PODS).await?.len() == 4, "no pod too many");
    Ok(())
}

fn none_bound_twice(world: &World, since: usize) -> Result<()> {
    let (all, mut bound) = (written(world)?, BTreeSet::new());
    for write in all.iter().skip(since).filter(|write| write.resource == "pods/binding") {
        ensure!(bound.insert(&write.name), "{} was bound twice", write.name);
    }
    Ok(())
}

/// Dies while a write of this kind is held back, when `after` others of its kind went through.
async fn at(
    world: &World,
    program: &str,
    operation: &str,
    group: &str,
    resource: &str,
    after: usize,
) -> Result<()> {
    let since = written(world)?.len();
    hold(world, operation, group, resource, after).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(program)?;
    world.running()?.webhooks.release();
    restart(world, program).await?;
    comes_out_right(world, since).await
}

async fn between_quota_and_release(world: &World) -> Result<()> {
    let since = written(world)?.len();
    hold(world, "UPDATE", "batch", "jobs", 0).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(ADMISSION)?;
    let workload = the_workload(world).await?;
    ensure!(is(&workload, "QuotaReserved", "True"), "it holds quota: {}", workload["status"]);
    let job = get(&world.running()?.plane.client, &format!("{JOBS}/train")).await?;
    ensure!(job["spec"]["suspend"] == true, "and is not released: {}", job["spec"]);
    world.running()?.webhooks.release();
    restart_and_wait(world, ADMISSION).await?;
    comes_out_right(world, since).await
}

/// The job ends while nobody writes that its Workload is finished.
async fn before_the_end(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("short", "training", 2, 4, "2s")).await?;
    wait_running(world, "job-name=short", 2).await?;
    hold(world, "UPDATE", "kueue.x-k8s.io", "workloads/status", 0).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(ADMISSION)?;
    world.running()?.webhooks.release();
    wait("the job to be Complete", Duration::from_secs(30), async || {
        Ok(is(&get(&world.running()?.plane.client, &format!("{JOBS}/short")).await?, "Complete", "True"))
    })
    .await?;
    ensure!(!is(&the_workload(world).await?, "Finished", "True"), "nobody has written that it is finished");
    restart(world, ADMISSION).await?;
    wait("the Workload to be Finished", Duration::from_secs(30), async || {
        Ok(is(&the_workload(world).await?, "Finished", "True"))
    })
    .await?;
    submit(world).await?;
    let pods = wait_running(world, "job-name=train", 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "its quota and its GPUs are free");
    Ok(())
}

/// Nobody lets the Workload of a deleted job go until the next life.
async fn while_deleted(world: &World) -> Result<()> {
    submit(world).await?;
    wait_running(world, "job-name=train", 4).await?;
    world.programs().await?.kill(ADMISSION)?;
    output(&mut kubectl(world, &["delete", "job", "train", "-n", NAMESPACE, "--wait=false"])?).await?;
    wait("its pods to be gone", Duration::from_secs(60), async || Ok(list(world, PODS).await?.is_empty()))
        .await?;
    restart(world, ADMISSION).await?;
    wait("its Workload to be gone", Duration::from_secs(60), async || {
        Ok(list(world, WORKLOADS).await?.is_empty())
    })
    .await?;
    let since = written(world)?.len();
    submit(world).await?;
    comes_out_right(world, since).await
}

fn nodes(pods: &[Value]) -> usize {
    pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count()
}

async fn half_bound(world: &World) -> Result<()> {
    let since = written(world)?.len();
    hold(world, "CREATE", "", "pods/binding", 2).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(SCHEDULER)?;
    let pods = list(world, PODS).await?;
    ensure!(nodes(&pods) == 2, "two of four are bound, not {}", nodes(&pods));
    world.running()?.webhooks.release();
    restart_and_wait(world, SCHEDULER).await?;
    comes_out_right(world, since).await
}

async fn half_bound_and_deleted(world: &World) -> Result<()> {
    hold(world, "CREATE", "", "pods/binding", 2).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(SCHEDULER)?;
    output(&mut kubectl(world, &["delete", "job", "train", "-n", NAMESPACE])?).await?;
    world.running()?.webhooks.release();
    restart(world, SCHEDULER).await?;
    wait("no GangPlacement to be left", Duration::from_secs(60), async || {
        Ok(list(world, PLACEMENTS).await?.is_empty() && list(world, PODS).await?.is_empty())
    })
    .await?;
    let since = written(world)?.len();
    submit(world).await?;
    comes_out_right(world, since).await
}

async fn agent_while_pods_run(world: &World) -> Result<()> {
    let applier = &world.running()?.applier;
    applier.must(&pytorch("llama", 3, 2)).await?;
    let pods = wait_running(world, "training.kubeflow.org/job-name=llama", 3).await?;
    let before = gpus(world, &pods, 2).await?;
    world.programs().await?.kill(AGENT)?;
    wait_allocatable_is_not(world, "8").await?;
    restart(world, AGENT).await?;
    wait_allocatable(world, "8").await?;
    applier.must(&batch("more", "training", 1, 2, "")).await?;
    let more = wait_running(world, "job-name=more", 1).await?;
    let still = wait_running(world, "training.kubeflow.org/job-name=llama", 3).await?;
    ensure!(pods == still, "the pods are the same: {pods:?}, {still:?}");
    ensure!(gpus(world, &still, 2).await? == before, "with the same GPUs");
    let given = visible_devices(world, NAMESPACE, &more[0]).await?;
    ensure!(given.len() == 2 && given.is_disjoint(&before), "{given:?} beside {before:?}");
    Ok(())
}

/// Four pods run, whatever became of others, and have all GPUs.
async fn four_run(world: &World) -> Result<()> {
    let running = |pods: Vec<Value>| -> Vec<String> {
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
        running.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
    };
    wait("four pods to run", Duration::from_secs(120), async || {
        Ok(running(list(world, PODS).await?).len() == 4)
    })
    .await?;
    ensure!(gpus(world, &running(list(world, PODS).await?), 2).await?.len() == 8, "all eight");
    Ok(())
}

/// Pods are bound to a node whose agent is gone: the kubelet waits for none and rejects some, and the gang is placed again.
async fn agent_while_bound(world: &World) -> Result<()> {
    hold(world, "CREATE", "", "pods/binding", 2).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    world.programs().await?.kill(AGENT)?;
    world.running()?.webhooks.release();
    restart(world, AGENT).await?;
    wait_allocatable(world, "8").await?;
    four_run(world).await
}

async fn all_three(world: &World) -> Result<()> {
    let since = written(world)?.len();
    hold(world, "CREATE", "", "pods/binding", 1).await?;
    submit(world).await?;
    wait_held(world, 1).await?;
    for program in [ADMISSION, SCHEDULER, AGENT] {
        world.programs().await?.kill(program)?;
    }
    world.running()?.webhooks.release();
    for program in [AGENT, ADMISSION, SCHEDULER] {
        restart(world, program).await?;
    }
    wait_allocatable(world, "8").await?;
    // The bound pod may have been rejected by the kubelet while there was no agent; then the Job makes another.
    four_run(world).await?;
    none_bound_twice(world, since)
}
