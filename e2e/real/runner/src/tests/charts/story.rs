//! The way of jobs through the programs that the charts describe, with nothing but the rights of their accounts.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{GPU, KUEUE};
use crate::cluster::{Applied, condition, wait};
use crate::helm::{NODE, Site};

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";

fn template(gpus: u32) -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none",
        "resources": {"limits": {GPU: gpus.to_string()}}}]}})
}

fn pod(name: &str, scheduler: &str, gpus: u32) -> Value {
    let mut pod = template(gpus);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": name, "namespace": "team"});
    pod["spec"]["schedulerName"] = json!(scheduler);
    pod
}

pub(super) fn job(name: &str, queue: Option<&str>, pods: u32, gpus: u32) -> Value {
    let labels = queue.map_or(json!({}), |queue| json!({"kueue.x-k8s.io/queue-name": queue}));
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": template(gpus)}})
}

pub(super) fn cluster_queue(name: &str, quota: &str) -> Value {
    json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": quota}]}]}]}})
}

/// Eight GPUs for the team, and a job of 4 pods with 2 each that gets them all. Returns its pods.
pub(super) async fn team_with_job(site: &Site, name: &str) -> Result<Vec<Value>> {
    let flavor =
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}});
    let local = json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "training", "namespace": "team"},
        "spec": {"clusterQueue": "team"}});
    let applier = site.applier().await?;
    for object in [flavor, cluster_queue("team", "8"), local, job(name, Some("training"), 4, 2)] {
        applier.must(&object).await?;
    }
    wait_bound(site, &format!("job-name={name}"), 4).await
}

pub(super) async fn delete(site: &Site, path: &str) -> Result<()> {
    let request = http::Request::delete(format!("{path}?propagationPolicy=Background")).body(Vec::new())?;
    site.plane.client.request::<Value>(request).await?;
    Ok(())
}

/// No kubelet is there to confirm that a pod has ended.
pub(super) async fn delete_now(site: &Site, path: &str) -> Result<()> {
    let request = http::Request::delete(format!("{path}?gracePeriodSeconds=0")).body(Vec::new())?;
    site.plane.client.request::<Value>(request).await?;
    Ok(())
}

/// A definition that a PyTorchJob can be written by, where Kubeflow's is not.
fn pytorch_definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pytorchjobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced",
            "names": {"kind": "PyTorchJob", "listKind": "PyTorchJobList", "plural": "pytorchjobs", "singular": "pytorchjob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

pub(super) async fn suspended(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let made = site.applier().await?.must(&job("asked", Some("nowhere"), 1, 1)).await?;
    ensure!(made.data["spec"]["suspend"] == true, "{}", made.data["spec"]);
    ensure!(
        made.data["spec"]["template"]["spec"]["schedulerName"] == "trireme",
        "{}",
        made.data["spec"]["template"]
    );
    delete(site, "/apis/batch/v1/namespaces/team/jobs/asked").await
}

pub(super) async fn appears_later(site: &mut Site) -> Result<()> {
    site.programs().await?;
    site.applier().await?.must(&pytorch_definition()).await?;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org";
    wait("PyTorchJob to be served", Duration::from_secs(20), async || {
        Ok(condition(&site.get(path).await?, "Established").is_some_and(|found| found["status"] == "True"))
    })
    .await?;
    let pytorch = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "asked", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "nowhere"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template(1)}}}});
    let made = site.applier().await?.must(&pytorch).await?;
    ensure!(made.data["spec"]["runPolicy"]["suspend"] == true, "{}", made.data["spec"]);
    let scheduler = &made.data["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"];
    ensure!(scheduler == "trireme", "{}", made.data["spec"]);
    // Its kind appeared after the program's start, and is seen all the same.
    wait("a Workload of the PyTorchJob", Duration::from_secs(60), async || {
        let all = site.get(WORKLOADS).await?;
        let mut owners = all["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| &one["metadata"]["ownerReferences"][0]["kind"]);
        Ok(owners.any(|kind| kind == "PyTorchJob"))
    })
    .await?;
    delete(site, "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/asked").await
}

pub(super) async fn no_queue(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let made = site.applier().await?.must(&job("free", None, 1, 1)).await?;
    ensure!(made.data["spec"]["suspend"] != true, "{}", made.data["spec"]);
    delete(site, "/apis/batch/v1/namespaces/team/jobs/free").await
}

pub(super) async fn excluded(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let mut job = job("system", Some("nowhere"), 1, 1);
    job["metadata"]["namespace"] = json!("kube-system");
    let made = site.applier().await?.must(&job).await?;
    ensure!(made.data["spec"]["template"]["spec"]["schedulerName"] != "trireme", "{}", made.data["spec"]);
    delete(site, "/apis/batch/v1/namespaces/kube-system/jobs/system").await
}

/// The real aggregator passes requests on, and nobody else is answered.
pub(super) async fn visible(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let applier = site.applier().await?;
    let local = json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "seen", "namespace": "team"},
        "spec": {"clusterQueue": "seen"}});
    for object in [cluster_queue("seen", "0"), local] {
        applier.must(&object).await?;
    }
    for name in ["seen-1", "seen-2"] {
        applier.must(&job(name, Some("seen"), 1, 1)).await?;
        // One second apart: that is how precisely the API server dates them.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let group = "/apis/visibility.kueue.x-k8s.io";
    for version in ["v1beta1", "v1beta2"] {
        wait("the APIService to be available", Duration::from_secs(60), async || {
            let path =
                format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.visibility.kueue.x-k8s.io");
            Ok(condition(&site.get(&path).await?, "Available").is_some_and(|found| found["status"] == "True"))
        })
        .await?;
        for path in ["clusterqueues/seen", "namespaces/team/localqueues/seen"] {
            let path = format!("{group}/{version}/{path}/pendingworkloads");
            wait("both jobs to be listed", Duration::from_secs(20), async || {
                let summary = site.get(&path).await?;
                let owners = summary["items"].as_array().into_iter().flatten();
                let owners: Vec<_> =
                    owners.map(|one| &one["metadata"]["ownerReferences"][0]["name"]).collect();
                Ok(owners == ["seen-1", "seen-2"])
            })
            .await?;
        }
    }
    wait("the documents of the group", Duration::from_secs(60), async || {
        let groups = site.plane.client.list_api_groups().await?;
        let openapi = site.get("/openapi/v3").await?;
        Ok(groups.groups.iter().any(|one| one.name == "visibility.kueue.x-k8s.io")
            && openapi["paths"]["apis/visibility.kueue.x-k8s.io/v1beta2"].is_object())
    })
    .await?;
    let (status, text) =
        site.without_the_api_server(&format!("{group}/v1beta2/clusterqueues/seen/pendingworkloads")).await?;
    ensure!(status == 401, "{status}: {text}");
    for name in ["seen-1", "seen-2"] {
        delete(site, &format!("/apis/batch/v1/namespaces/team/jobs/{name}")).await?;
    }
    Ok(())
}

pub(super) async fn wrong_queue(site: &mut Site) -> Result<()> {
    site.programs().await?;
    // The schema allows any quantity.
    match site.applier().await?.apply(&cluster_queue("wrong", "-1"), true).await? {
        Applied::Refused(why) => {
            ensure!(
                why.contains("validate-clusterqueue.trireme.dev") && why.contains("nominalQuota"),
                "{why}"
            );
        }
        other => anyhow::bail!("it was not refused: {other:?}"),
    }
    Ok(())
}

pub(super) async fn converted(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let mut old = cluster_queue("old", "1");
    old["apiVersion"] = json!("kueue.x-k8s.io/v1beta1");
    old["spec"]["cohort"] = json!("shared");
    site.applier().await?.must(&old).await?;
    let new = site.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old").await?;
    ensure!(new["spec"]["cohortName"] == "shared" && new["spec"]["cohort"].is_null(), "{}", new["spec"]);
    let again = site.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/old").await?;
    ensure!(again["spec"]["cohort"] == "shared", "{}", again["spec"]);
    delete(site, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old").await
}

pub(super) async fn pods(site: &Site, selector: &str) -> Result<Vec<Value>> {
    let all = site.get(&format!("/api/v1/namespaces/team/pods?labelSelector={selector}")).await?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

/// The Workload of the team's job of this name.
pub(super) async fn workload(site: &Site, job: &str) -> Result<Option<Value>> {
    let all = site.get(WORKLOADS).await?;
    let mut all = all["items"].as_array().into_iter().flatten();
    Ok(all.find(|one| is_of(one, job)).cloned())
}

fn is_of(workload: &Value, job: &str) -> bool {
    workload["metadata"]["ownerReferences"][0]["name"] == job
}

/// Waits until the Workload and the pods of the team's deleted job are gone, and nobody holds another that was deleted. Those of
/// other jobs may stay: the controller manager, which deletes them, looks every 30 s which kinds of owners there are, and then
/// comes back to what it could not make out ever more rarely.
pub(super) async fn leaves_nothing(site: &Site, job: &str) -> Result<()> {
    wait(&format!("Workload and pods of {job} to be gone"), Duration::from_secs(60), async || {
        let all = site.get(WORKLOADS).await?;
        let mut all = all["items"].as_array().into_iter().flatten();
        let is_left = |one: &Value| one["metadata"]["deletionTimestamp"].is_string() || is_of(one, job);
        let pods = pods(site, &format!("job-name={job}")).await?;
        Ok(pods.is_empty() && !all.any(is_left))
    })
    .await
}

pub(super) async fn wait_bound(site: &Site, selector: &str, count: usize) -> Result<Vec<Value>> {
    let what = format!("{count} pods with {selector} to be bound");
    let bound = wait(&what, Duration::from_secs(40), async || {
        let all = pods(site, selector).await?;
        Ok(all.len() == count && all.iter().all(|pod| pod["spec"]["nodeName"] == NODE))
    });
    if let Err(error) = bound.await {
        let logs: Vec<_> =
            site.logs()?.into_iter().map(|(name, log)| format!("--- {name}\n{}", last(&log, 12))).collect();
        let workloads = site.get(WORKLOADS).await?;
        let pods = pods(site, selector).await?;
        return Err(error.context(format!("workloads {workloads}\npods {pods:?}\n{}", logs.join("\n"))));
    }
    pods(site, selector).await
}

fn last(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

pub(super) async fn gang(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let bound = team_with_job(site, "gang").await?;
    wait("the plan to be Bound", Duration::from_secs(20), async || {
        let plans = site.get("/apis/trireme.dev/v1alpha1/namespaces/team/gangplacements").await?;
        Ok(plans["items"].as_array().into_iter().flatten().any(|plan| plan["status"]["phase"] == "Bound"))
    })
    .await?;
    // What a kubelet would say.
    for pod in &bound {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        site.patch(
            &format!("/api/v1/namespaces/team/pods/{name}/status"),
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await?;
    }
    let holds =
        |object: &Value, kind: &str| condition(object, kind).is_some_and(|found| found["status"] == "True");
    wait("the Workload to be Finished", Duration::from_secs(60), async || {
        Ok(workload(site, "gang").await?.is_some_and(|one| holds(&one, "Finished")))
    })
    .await?;
    wait("the queues to be Active", Duration::from_secs(20), async || {
        let queue = site.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team").await?;
        let local = site.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/training").await?;
        Ok(holds(&queue, "Active") && holds(&local, "Active"))
    })
    .await?;
    for component in ["admission-controller", "gang-scheduler"] {
        wait(&format!("events of {component}"), Duration::from_secs(20), async || {
            let events = site.get("/api/v1/namespaces/team/events").await?;
            let mut all = events["items"].as_array().into_iter().flatten();
            Ok(all.any(|event| event["reportingComponent"] == component))
        })
        .await?;
    }
    delete(site, "/apis/batch/v1/namespaces/team/jobs/gang").await?;
    leaves_nothing(site, "gang").await
}

pub(super) async fn podgroup(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let applier = site.applier().await?;
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "group", "namespace": "team"}, "spec": {"minMember": 2}});
    applier.must(&group).await?;
    for name in ["group-0", "group-1"] {
        let mut pod = pod(name, "volcano", 2);
        pod["metadata"]["labels"] = json!({"app": "group"});
        pod["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": "group"});
        applier.must(&pod).await?;
    }
    wait_bound(site, "app=group", 2).await?;
    wait("the PodGroup to say so", Duration::from_secs(20), async || {
        let group = site.get("/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/group").await?;
        Ok(group["status"].is_object())
    })
    .await?;
    for name in ["group-0", "group-1"] {
        delete_now(site, &format!("/api/v1/namespaces/team/pods/{name}")).await?;
    }
    delete(site, "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/group").await
}

pub(super) async fn too_large(site: &mut Site) -> Result<()> {
    site.programs().await?;
    site.applier().await?.must(&pod("large", "trireme", 9)).await?;
    let path = "/api/v1/namespaces/team/pods/large";
    wait("the pod to be told", Duration::from_secs(20), async || {
        let pod = site.get(path).await?;
        Ok(condition(&pod, "PodScheduled").is_some_and(|found| found["reason"] == "Unschedulable"))
    })
    .await?;
    delete_now(site, path).await
}

pub(super) async fn agent(site: &mut Site) -> Result<()> {
    site.programs().await?;
    wait("the GpuNode and the node's labels", Duration::from_secs(30), async || {
        let gpus = site.get(&format!("/apis/trireme.dev/v1alpha1/gpunodes/{NODE}")).await?;
        let node = site.get(&format!("/api/v1/nodes/{NODE}")).await?;
        Ok(gpus["status"]["devices"].as_array().is_some_and(|all| all.len() == 8)
            && node["metadata"]["labels"]["nvidia.com/gpu.count"] == "8")
    })
    .await
}
