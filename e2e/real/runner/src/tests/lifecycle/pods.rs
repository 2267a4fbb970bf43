//! Kinds whose pods are held back.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{POOL, SOON, Site, template, test};
use crate::cluster::wait;
use crate::registry::Test;

const GATE: &str = "kueue.x-k8s.io/admission";
const GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
const GROUP_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
const LWS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

pub(super) fn all() -> Vec<Test> {
    vec![
        test("pod", "", async |site: &Site| single(site).await),
        test("pod-group", "", async |site: &Site| group(site).await),
        test("deployment", "", async |site: &Site| deployment(site).await),
        test("statefulset", "", async |site: &Site| stateful_set(site).await),
        test("leaderworkerset", LWS, async |site: &Site| leader_worker_set(site).await),
    ]
}

async fn single(site: &Site) -> Result<()> {
    let pod = site.create(pod("one", json!({})), true).await?;
    ensure!(is_gated(&pod), "gated at creation: {}", pod["spec"]);
    site.waiting(1).await?;
    ensure!(is_gated(&site.get(&path(site, "one")).await?), "it waits behind its gate");
    site.admitted(1).await?;
    let_go(site, 1).await?;
    phase(site, "one", "Running").await?;
    phase(site, "one", "Succeeded").await?;
    site.finished(1).await?;
    site.goes(&path(site, "one")).await?;
    no_pods(site).await
}

async fn group(site: &Site) -> Result<()> {
    let member = || json!({"labels": {GROUP_NAME: "ring"}, "annotations": {GROUP_COUNT: "2"}});
    for name in ["r0", "r1"] {
        site.create(pod(name, member()), true).await?;
    }
    let workloads = site.waiting(1).await?;
    ensure!(workloads[0]["metadata"]["name"] == "ring", "the group's name: {}", workloads[0]["metadata"]);
    site.admitted(1).await?;
    let_go(site, 2).await?;
    for name in ["r0", "r1"] {
        phase(site, name, "Running").await?;
    }
    for name in ["r0", "r1"] {
        phase(site, name, "Succeeded").await?;
    }
    site.finished(1).await?;
    for name in ["r0", "r1"] {
        site.delete(&path(site, name)).await?;
    }
    site.nothing_left().await?;
    no_pods(site).await
}

async fn deployment(site: &Site) -> Result<()> {
    site.create(workload_of_apps("Deployment", json!({})), true).await?;
    site.waiting(2).await?;
    site.admitted(2).await?;
    let_go(site, 2).await?;
    for pod in pods(site).await? {
        phase(site, name(&pod)?, "Running").await?;
    }
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/one", site.name);
    wait("the Deployment to be available", SOON, async || {
        Ok(site.get(&path).await?["status"]["readyReplicas"] == 2)
    })
    .await?;
    site.goes(&path).await?;
    no_pods(site).await
}

async fn stateful_set(site: &Site) -> Result<()> {
    site.create(workload_of_apps("StatefulSet", json!({"serviceName": "one"})), true).await?;
    let workloads = site.waiting(1).await?;
    ensure!(workloads[0]["spec"]["podSets"][0]["count"] == 2, "{}", workloads[0]["spec"]);
    site.admitted(1).await?;
    // Its controller makes them one after another.
    for count in 1..=2 {
        let_go(site, count).await?;
        phase(site, &format!("one-{}", count - 1), "Running").await?;
    }
    site.goes(&format!("/apis/apps/v1/namespaces/{}/statefulsets/one", site.name)).await?;
    no_pods(site).await
}

/// Two replicas of a leader and a worker.
async fn leader_worker_set(site: &Site) -> Result<()> {
    let spec = json!({"replicas": 2, "leaderWorkerTemplate": {"size": 2, "leaderTemplate": serving(), "workerTemplate": serving()}});
    let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "one"},
        "spec": spec});
    let set = site.create(set, true).await?;
    let workloads = site.waiting(2).await?;
    for one in &workloads {
        let sets = one["spec"]["podSets"].as_array().context("pod sets")?;
        let named: Vec<_> = sets
            .iter()
            .map(|set| (set["name"].as_str().unwrap_or_default(), set["count"].as_i64()))
            .collect();
        ensure!(named == [("leader", Some(1)), ("worker", Some(1))], "{named:?}");
    }
    for replica in ["0", "1"] {
        for role in ["leader", "worker"] {
            site.create(of_replica(&set, replica, role), false).await?;
        }
    }
    site.admitted(2).await?;
    let_go(site, 4).await?;
    for pod in pods(site).await? {
        let role = name(&pod)?.rsplit('-').next().context("a role")?;
        ensure!(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == role, "{}", pod["metadata"]);
        phase(site, name(&pod)?, "Running").await?;
    }
    site.goes(&format!("/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets/one", site.name))
        .await?;
    no_pods(site).await
}

/// A pod as the set's controller makes it.
fn of_replica(set: &Value, replica: &str, role: &str) -> Value {
    const DOMAIN: &str = "leaderworkerset.sigs.k8s.io";
    let mut pod = set["spec"]["leaderWorkerTemplate"][format!("{role}Template")].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(format!("one-{replica}-{role}"));
    pod["metadata"]["labels"][format!("{DOMAIN}/name")] = json!("one");
    pod["metadata"]["labels"][format!("{DOMAIN}/group-index")] = json!(replica);
    if role == "worker" {
        pod["metadata"]["annotations"][format!("{DOMAIN}/leader-name")] =
            json!(format!("one-{replica}-leader"));
    }
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": set["apiVersion"], "kind": set["kind"], "name": "one",
        "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    pod
}

fn pod(name: &str, mut metadata: Value) -> Value {
    metadata["name"] = json!(name);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template("main")["spec"]})
}

/// A template of pods that serve.
fn serving() -> Value {
    let mut template = template("main");
    template["metadata"] = json!({"labels": {"app": "one"}});
    template["spec"]["restartPolicy"] = json!("Always");
    template
}

fn workload_of_apps(kind: &str, more: Value) -> Value {
    let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "one"}}, "template": serving()});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec})
}

fn path(site: &Site, name: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{name}", site.name)
}

async fn pods(site: &Site) -> Result<Vec<Value>> {
    site.list("/api/v1", "pods").await
}

fn name(pod: &Value) -> Result<&str> {
    pod["metadata"]["name"].as_str().context("a name")
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

/// So many pods are there, without the gate and with what the flavor adds.
async fn let_go(site: &Site, count: usize) -> Result<()> {
    wait(&format!("{count} pods to be let go"), SOON, async || {
        let all = pods(site).await?;
        Ok(all.len() == count
            && all.iter().all(|pod| !is_gated(pod) && pod["spec"]["nodeSelector"]["pool"] == POOL))
    })
    .await
}

/// As its kubelet would say.
async fn phase(site: &Site, name: &str, phase: &str) -> Result<()> {
    let ready = if phase == "Running" { "True" } else { "False" };
    let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    site.patch(&format!("{}/status", path(site, name)), &json!({"status": status})).await.map(|_| ())
}

async fn no_pods(site: &Site) -> Result<()> {
    wait("its pods to be gone", SOON, async || Ok(pods(site).await?.is_empty())).await
}
