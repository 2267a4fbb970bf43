//! The way of one job: Kubeflow's or the batch controller makes the pods, our three programs do the rest, the real kubelet
//! runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::agent::{uuids, visible_devices};
use super::node::kubectl;
use crate::cluster::{condition, get, wait};
use crate::node::NAME;
use crate::registry::{Outcome, Test, need, output};
use crate::stack::{
    GPU, JOBS, NAMESPACE, PLACEMENTS, PODS, PYTORCH, WORKLOADS, batch, clear, gpus, is, knows_jobsets, list,
    possible, pytorch, start, template, test, the_workload, wait_running,
};
use crate::world::World;

const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team";
const LOCAL_QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/training";
const GROUP: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g";

/// Tests of all three programs together.
pub(crate) fn all() -> Vec<Test> {
    let mut all = vec![
        test("job/a_pytorchjob_of_four_workers_runs_as_a_gang", pytorchjob),
        test("job/a_pytorchjob_that_ends_is_finished_and_frees_its_quota", pytorchjob_ends),
        test("job/a_batch_job_of_four_pods_runs_as_a_gang", batch_job),
        test("job/a_batch_job_that_ends_is_finished_and_frees_its_quota", batch_job_ends),
        test("job/a_batch_job_that_fails_is_finished_as_failed", batch_job_fails),
        test("job/containers_are_given_the_gpus_of_the_plan", as_planned),
        test("job/the_workload_of_a_running_job_says_what_kueues_would", running_workload),
        test("job/queues_count_what_they_hold_and_what_waits", counts),
        test("job/a_second_job_waits_until_the_first_is_gone", waits),
        test("job/a_job_larger_than_the_quota_says_so", too_large),
        test("job/a_job_of_an_unknown_queue_waits_and_says_why", unknown_queue),
        test("job/an_urgent_job_preempts_another", preempts),
        test("job/a_stopped_queue_lets_its_jobs_go_and_takes_them_back", stopped),
        test("job/a_deleted_job_leaves_nothing", deleted),
        test("job/pods_with_a_volcano_podgroup_are_bound_together", podgroup),
        test("job/a_podgroup_that_does_not_fit_is_not_bound_in_part_and_says_why", podgroup_too_large),
        test("job/a_v1beta1_clusterqueue_is_converted", converted),
    ];
    all.push(Test::new("job/a_jobset_is_suspended_until_it_is_admitted", jobset).alone());
    all
}

/// The last test: what runs is told to end.
pub(crate) fn last() -> Vec<Test> {
    vec![Test::new("job/programs_end_when_told", ends).alone()]
}

async fn read(world: &World, path: &str) -> Result<Value> {
    get(&world.running()?.plane.client, path).await
}

/// The type, status and reason of every condition.
fn conditions(object: &Value) -> BTreeMap<String, (String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.map(|one| (word(&one["type"]), (word(&one["status"]), word(&one["reason"])))).collect()
}

/// Waits until the only Workload has this condition.
async fn wait_condition(world: &World, kind: &str, status: &str, reason: &str) -> Result<Value> {
    let what = format!("the Workload to be {kind}={status} {reason}");
    wait(&what, Duration::from_secs(60), async || {
        let all = conditions(&the_workload(world).await?);
        Ok(all.get(kind).is_some_and(|(is, why)| is == status && why == reason))
    })
    .await?;
    the_workload(world).await
}

/// The GangPlacement, when there is one and it is bound.
async fn wait_bound(world: &World) -> Result<Value> {
    wait("one GangPlacement, Bound", Duration::from_secs(20), async || {
        let all = list(world, PLACEMENTS).await?;
        Ok(all.len() == 1 && all.iter().all(|one| one["status"]["phase"] == "Bound"))
    })
    .await?;
    list(world, PLACEMENTS).await?.pop().context("the GangPlacement")
}

/// Four pods with two GPUs each, made by their controller, bound by ours, none of the GPUs given twice.
async fn runs_as_a_gang(world: &World, label: &str, controller: &str) -> Result<()> {
    let pods = wait_running(world, label, 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "all eight");
    for pod in list(world, PODS).await? {
        ensure!(pod["metadata"]["ownerReferences"][0]["kind"] == controller, "{}", pod["metadata"]);
        ensure!(
            pod["spec"]["schedulerName"] == "trireme" && pod["spec"]["nodeName"] == NAME,
            "{}",
            pod["spec"]
        );
    }
    let placement = wait_bound(world).await?;
    let planned = placement["spec"]["members"].as_array().into_iter().flatten();
    let planned: BTreeSet<_> = planned.filter_map(|member| member["name"].as_str()).collect();
    ensure!(planned == pods.iter().map(String::as_str).collect(), "{planned:?} are not {pods:?}");
    ensure!(placement["spec"]["minMember"] == 4, "{}", placement["spec"]);
    Ok(())
}

/// Nobody makes the pods of a JobSet here: its definition is installed, its controller does not run.
async fn jobset(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    if !knows_jobsets(&world)? {
        return Ok(Outcome::Skipped("jobset.x-k8s.io/v1alpha2 JobSet is not installed".to_owned()));
    }
    start(&world).await?;
    let jobs = json!({"name": "workers", "replicas": 2, "template": {"spec": {
        "parallelism": 2, "completions": 2, "template": template("main", 2, "")}}});
    let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "set", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "training"}},
        "spec": {"replicatedJobs": [jobs]}});
    let made = world.running()?.applier.must(&jobset).await?;
    ensure!(made.data["spec"]["suspend"] == true, "{}", made.data["spec"]);
    let workload = wait_condition(&world, "Admitted", "True", "Admitted").await?;
    ensure!(workload["spec"]["podSets"][0]["count"] == 4, "{}", workload["spec"]);
    wait("the JobSet to be released", Duration::from_secs(20), async || {
        Ok(read(&world, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/set").await?["spec"]["suspend"] == false)
    })
    .await?;
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn pytorchjob(world: &World) -> Result<()> {
    let made = world.running()?.applier.must(&pytorch("llama", 4, 2)).await?;
    ensure!(made.data["spec"]["runPolicy"]["suspend"] == true, "suspended at creation: {}", made.data);
    runs_as_a_gang(world, "training.kubeflow.org/job-name=llama", "PyTorchJob").await?;
    wait("Kubeflow to say that it runs", Duration::from_secs(20), async || {
        Ok(is(&read(world, &format!("{PYTORCH}/llama")).await?, "Running", "True"))
    })
    .await
}

async fn pytorchjob_ends(world: &World) -> Result<()> {
    let mut job = pytorch("short", 2, 4);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"][0]["value"] =
        json!("2s");
    world.running()?.applier.must(&job).await?;
    wait_condition(world, "Finished", "True", "Succeeded").await?;
    ensure!(
        is(&read(world, &format!("{PYTORCH}/short")).await?, "Succeeded", "True"),
        "Kubeflow says so too"
    );
    wait_queue(world, 0, 0).await
}

async fn batch_job(world: &World) -> Result<()> {
    let made = world.running()?.applier.must(&batch("train", "training", 4, 2, "")).await?;
    ensure!(made.data["spec"]["suspend"] == true, "suspended at creation: {}", made.data);
    runs_as_a_gang(world, "job-name=train", "Job").await
}

async fn batch_job_ends(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("short", "training", 2, 4, "2s")).await?;
    wait_condition(world, "Finished", "True", "Succeeded").await?;
    ensure!(is(&read(world, &format!("{JOBS}/short")).await?, "Complete", "True"), "complete");
    wait_queue(world, 0, 0).await
}

async fn batch_job_fails(world: &World) -> Result<()> {
    let mut job = batch("broken", "training", 1, 1, "1s");
    job["spec"]["backoffLimit"] = json!(0);
    let environment = &mut job["spec"]["template"]["spec"]["containers"][0]["env"];
    environment.as_array_mut().context("variables")?.push(json!({"name": "EXIT_CODE", "value": "3"}));
    world.running()?.applier.must(&job).await?;
    wait_condition(world, "Finished", "True", "Failed").await?;
    wait_queue(world, 0, 0).await
}

async fn as_planned(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("train", "training", 4, 2, "")).await?;
    let pods = wait_running(world, "job-name=train", 4).await?;
    let known = uuids(world).await?;
    let placement = wait_bound(world).await?;
    let mut planned = BTreeSet::new();
    for member in placement["spec"]["members"].as_array().into_iter().flatten() {
        let devices = member["devices"]["main"][GPU].as_array().context("devices in the plan")?;
        let devices = devices.iter().filter_map(|index| known.get(usize::try_from(index.as_u64()?).ok()?));
        planned.insert(devices.cloned().collect::<BTreeSet<_>>());
    }
    let mut given = BTreeSet::new();
    for pod in &pods {
        given.insert(visible_devices(world, NAMESPACE, pod).await?);
    }
    // Which of four equal pods has which pair is the kubelet's to say.
    ensure!(planned == given, "planned {planned:?}, given {given:?}");
    Ok(())
}

async fn running_workload(world: &World) -> Result<()> {
    world.running()?.applier.must(&pytorch("llama", 4, 2)).await?;
    wait_running(world, "training.kubeflow.org/job-name=llama", 4).await?;
    let workload = wait_condition(world, "Admitted", "True", "Admitted").await?;
    let all = conditions(&workload);
    let word = |text: &str| text.to_owned();
    ensure!(all.get("QuotaReserved") == Some(&(word("True"), word("QuotaReserved"))), "{all:?}");
    ensure!(!all.contains_key("Finished") && !all.contains_key("Evicted"), "{all:?}");
    let admission = &workload["status"]["admission"];
    ensure!(admission["clusterQueue"] == "team", "{admission}");
    let set = &admission["podSetAssignments"][0];
    ensure!(set["count"] == 4 && set["flavors"][GPU] == "a100", "{set}");
    ensure!(set["resourceUsage"][GPU] == "8", "{set}");
    ensure!(workload["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob", "{}", workload["metadata"]);
    ensure!(
        workload["spec"]["queueName"] == "training" && workload["spec"]["active"] == true,
        "{}",
        workload["spec"]
    );
    for object in workload["status"]["conditions"].as_array().into_iter().flatten() {
        ensure!(object["observedGeneration"] == workload["metadata"]["generation"], "{object}");
        ensure!(object["message"].as_str().is_some_and(|text| !text.is_empty()), "{object}");
    }
    Ok(())
}

/// Waits until both queues count this many admitted and pending workloads.
async fn wait_queue(world: &World, admitted: u64, pending: u64) -> Result<()> {
    for path in [QUEUE, LOCAL_QUEUE] {
        let what = format!("{path} to count {admitted} admitted, {pending} pending");
        wait(&what, Duration::from_secs(20), async || {
            let status = &read(world, path).await?["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or_default();
            Ok((count("reservingWorkloads"), count("admittedWorkloads"), count("pendingWorkloads"))
                == (admitted, admitted, pending))
        })
        .await?;
    }
    Ok(())
}

async fn counts(world: &World) -> Result<()> {
    let applier = &world.running()?.applier;
    applier.must(&batch("first", "training", 3, 2, "")).await?;
    wait_running(world, "job-name=first", 3).await?;
    applier.must(&batch("second", "training", 2, 2, "")).await?;
    wait_queue(world, 1, 1).await?;
    for path in [QUEUE, LOCAL_QUEUE] {
        let queue = read(world, path).await?;
        for field in ["flavorsReservation", "flavorsUsage"] {
            let flavor = &queue["status"][field][0];
            ensure!(
                flavor["name"] == "a100" && flavor["resources"][0]["name"] == GPU,
                "{path} {field}: {flavor}"
            );
            ensure!(flavor["resources"][0]["total"] == "6", "{path} {field}: {flavor}");
        }
        ensure!(
            conditions(&queue).get("Active").is_some_and(|(is, why)| is == "True" && why == "Ready"),
            "{queue}"
        );
    }
    Ok(())
}

async fn waits(world: &World) -> Result<()> {
    let applier = &world.running()?.applier;
    applier.must(&batch("first", "training", 4, 2, "")).await?;
    wait_running(world, "job-name=first", 4).await?;
    applier.must(&batch("second", "training", 2, 2, "")).await?;
    wait("the second Workload to say why it waits", Duration::from_secs(20), async || {
        let all = list(world, WORKLOADS).await?;
        Ok(all.iter().any(|one| {
            condition(one, "QuotaReserved").is_some_and(|found| {
                found["status"] == "False"
                    && found["reason"] == "WaitingForQuota"
                    && found["message"].as_str().is_some_and(|text| text.contains(GPU))
            })
        }))
    })
    .await?;
    ensure!(
        list(world, &format!("{PODS}?labelSelector=job-name=second")).await?.is_empty(),
        "it makes no pods yet"
    );
    output(&mut kubectl(world, &["delete", "job", "first", "-n", NAMESPACE])?).await?;
    wait_running(world, "job-name=second", 2).await?;
    Ok(())
}

async fn too_large(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("huge", "training", 5, 2, "")).await?;
    wait_condition(world, "QuotaReserved", "False", "ExceedsMaxQuota").await.map(|_| ())
}

async fn unknown_queue(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("lost", "nowhere", 1, 1, "")).await?;
    wait_condition(world, "QuotaReserved", "False", "Misconfigured").await.map(|_| ())
}

async fn preempts(world: &World) -> Result<()> {
    let applier = &world.running()?.applier;
    applier.must(&batch("low", "training", 4, 2, "")).await?;
    wait_running(world, "job-name=low", 4).await?;
    let mut urgent = batch("urgent", "training", 2, 4, "");
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
    applier.must(&urgent).await?;
    let pods = wait_running(world, "job-name=urgent", 2).await?;
    ensure!(gpus(world, &pods, 4).await?.len() == 8, "all eight");
    wait("the Workload of the other to say what happened", Duration::from_secs(20), async || {
        let all = list(world, WORKLOADS).await?;
        Ok(all.iter().map(conditions).any(|all| {
            let has = |kind: &str, reason: &str| {
                all.get(kind).is_some_and(|(is, why)| is == "True" && why == reason)
            };
            has("Evicted", "Preempted") && has("Preempted", "InClusterQueue")
        }))
    })
    .await?;
    ensure!(read(world, &format!("{JOBS}/low")).await?["spec"]["suspend"] == true, "the other is suspended");
    output(&mut kubectl(world, &["delete", "job", "urgent", "-n", NAMESPACE])?).await?;
    wait_running(world, "job-name=low", 4).await.map(|_| ())
}

async fn set_stop_policy(world: &World, policy: &str) -> Result<()> {
    let body = json!({"spec": {"stopPolicy": policy}}).to_string();
    let arguments = ["patch", "clusterqueue", "team", "--type=merge", "-p", &body];
    output(&mut kubectl(world, &arguments)?).await.map(|_| ())
}

async fn stopped(world: &World) -> Result<()> {
    world.running()?.applier.must(&batch("train", "training", 4, 2, "")).await?;
    wait_running(world, "job-name=train", 4).await?;
    set_stop_policy(world, "HoldAndDrain").await?;
    wait_condition(world, "Evicted", "True", "ClusterQueueStopped").await?;
    wait("its pods to be gone", Duration::from_secs(30), async || Ok(list(world, PODS).await?.is_empty()))
        .await?;
    ensure!(read(world, &format!("{JOBS}/train")).await?["spec"]["suspend"] == true, "suspended");
    set_stop_policy(world, "None").await?;
    let pods = wait_running(world, "job-name=train", 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "all eight");
    Ok(())
}

async fn deleted(world: &World) -> Result<()> {
    world.running()?.applier.must(&pytorch("llama", 2, 4)).await?;
    wait_running(world, "training.kubeflow.org/job-name=llama", 2).await?;
    output(&mut kubectl(world, &["delete", "pytorchjob", "llama", "-n", NAMESPACE])?).await?;
    for path in [PODS, WORKLOADS, PLACEMENTS] {
        wait(&format!("{path} to be empty"), Duration::from_secs(60), async || {
            Ok(list(world, path).await?.is_empty())
        })
        .await?;
    }
    wait_queue(world, 0, 0).await
}

async fn make_group(world: &World, pods: usize) -> Result<()> {
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": NAMESPACE}, "spec": {"minMember": pods}});
    world.running()?.applier.must(&group).await.map(|_| ())
}

async fn make_member(world: &World, index: usize) -> Result<()> {
    let mut pod = template("main", 2, "");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": format!("g-{index}"), "namespace": NAMESPACE, "labels": {"app": "g"},
        "annotations": {"scheduling.k8s.io/group-name": "g"}});
    pod["spec"]["schedulerName"] = json!("volcano");
    world.running()?.applier.must(&pod).await.map(|_| ())
}

/// Waits until a condition of the PodGroup is True, and returns it.
async fn wait_group(world: &World, kind: &str) -> Result<Value> {
    wait(&format!("the PodGroup to be {kind}"), Duration::from_secs(20), async || {
        Ok(is(&read(world, GROUP).await?, kind, "True"))
    })
    .await?;
    condition(&read(world, GROUP).await?, kind).cloned().context("the condition")
}

async fn podgroup(world: &World) -> Result<()> {
    make_group(world, 4).await?;
    for index in 0..3 {
        make_member(world, index).await?;
    }
    // The scheduler has seen them all and says that one is missing.
    wait_group(world, "Unschedulable").await?;
    let pods = list(world, PODS).await?;
    ensure!(pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()), "three of four were bound");
    make_member(world, 3).await?;
    let pods = wait_running(world, "app=g", 4).await?;
    ensure!(gpus(world, &pods, 2).await?.len() == 8, "all eight");
    wait_group(world, "Scheduled").await?;
    wait("the PodGroup to be Running", Duration::from_secs(20), async || {
        let status = &read(world, GROUP).await?["status"];
        Ok(status["phase"] == "Running" && status["running"] == 4)
    })
    .await
}

async fn podgroup_too_large(world: &World) -> Result<()> {
    make_group(world, 5).await?;
    for index in 0..5 {
        make_member(world, index).await?;
    }
    wait("the PodGroup to say what is missing", Duration::from_secs(20), async || {
        let group = read(world, GROUP).await?;
        let why = condition(&group, "Unschedulable").and_then(|one| one["message"].as_str());
        Ok(why.is_some_and(|text| text.contains("insufficient nvidia.com/gpu")))
    })
    .await?;
    let pods = list(world, PODS).await?;
    ensure!(pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()), "a part of it was bound");
    wait("every pod to say that it is Unschedulable", Duration::from_secs(20), async || {
        let pods = list(world, PODS).await?;
        let says = |pod: &Value| {
            condition(pod, "PodScheduled")
                .is_some_and(|one| one["status"] == "False" && one["reason"] == "Unschedulable")
        };
        Ok(pods.len() == 5 && pods.iter().all(says))
    })
    .await
}

async fn converted(world: &World) -> Result<()> {
    let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "old"},
        "spec": {"cohort": "shared", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU],
            "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 1}]}]}]}});
    world.running()?.applier.must(&old).await?;
    let new = read(world, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old").await?;
    ensure!(new["spec"]["cohortName"] == "shared" && new["spec"]["cohort"].is_null(), "{}", new["spec"]);
    let again = read(world, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/old").await?;
    ensure!(again["spec"]["cohort"] == "shared", "{}", again["spec"]);
    output(&mut kubectl(world, &["delete", "clusterqueue", "old"])?).await.map(|_| ())
}

async fn ends(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let names = world.programs().await?.names();
    for name in names {
        world.programs().await?.stop(&name).await?;
    }
    Ok(Outcome::Passed)
}
