//! A stand-in that writes what Kueue writes for plain Jobs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::{LEASE, NAMESPACE};
use crate::cluster::{condition, get, send};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases";
const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
/// Under which name it holds the Lease.
const IDENTITY: &str = "kueue-controller-manager_stand-in";
/// How often it looks and renews.
const TURN: Duration = Duration::from_millis(500);

/// Acts, with quota for so many pods, until it is told to stop.
pub(super) async fn run(client: Client, pods: usize, tasks: kit::Tasks) {
    while !tasks.is_stopping() {
        if let Err(error) = turn(&client, pods).await {
            // Such as a write that met another one: the next turn sees what is there.
            eprintln!("the stand-in of Kueue: {error:#}");
        }
        tokio::time::sleep(TURN).await;
    }
}

/// Lets go of the Lease.
pub(super) async fn release(client: &Client) -> Result<()> {
    let mut lease = get(client, LEASE).await?;
    ensure!(lease["spec"]["holderIdentity"] == IDENTITY, "nobody took the Lease from it: {lease}");
    lease["spec"]["holderIdentity"] = json!("");
    lease["spec"]["leaseDurationSeconds"] = json!(1);
    send(client, "PUT", LEASE, &lease).await.map(|_| ())
}

/// One turn: the Lease; a Workload for each job; quota in order of age; starting; what has finished.
async fn turn(client: &Client, pods: usize) -> Result<()> {
    if !campaign(client).await? {
        return Ok(());
    }
    let jobs = get(client, JOBS).await?;
    let workloads = get(client, WORKLOADS).await?;
    let workloads = workloads["items"].as_array().context("workloads")?;
    let mut held =
        workloads.iter().filter(|one| holds(one, "QuotaReserved") && !holds(one, "Finished")).count();
    for job in jobs["items"].as_array().context("jobs")? {
        let owned = |one: &&Value| one["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"];
        let Some(workload) = workloads.iter().find(owned) else {
            send(client, "POST", WORKLOADS, &workload_of(job)).await?;
            continue;
        };
        let name = workload["metadata"]["name"].as_str().context("a name")?;
        let path = format!("{WORKLOADS}/{name}/status");
        if holds(workload, "Finished") {
            continue;
        }
        if holds(job, "Complete") {
            let finished =
                with_condition(workload, "Finished", "True", "Succeeded", "Job finished successfully");
            send(client, "PATCH", &path, &finished).await?;
        } else if !holds(workload, "QuotaReserved") && held < pods {
            held += 1;
            let admitted = send(client, "PATCH", &path, &admission(workload)).await?;
            start(client, job, &admitted).await?;
        } else if !holds(workload, "QuotaReserved") && condition(workload, "QuotaReserved").is_none() {
            let words = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default";
            send(
                client,
                "PATCH",
                &path,
                &with_condition(workload, "QuotaReserved", "False", "Pending", words),
            )
            .await?;
        } else if holds(workload, "Admitted") && job["spec"]["suspend"] == true {
            start(client, job, workload).await?;
        }
    }
    Ok(())
}

fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|found| found["status"] == "True")
}

/// As client-go's leader election does it: whether the Lease is held.
async fn campaign(client: &Client) -> Result<bool> {
    let now = kit::Clock::System.now();
    let stamp = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let mut spec = json!({"holderIdentity": IDENTITY, "leaseDurationSeconds": 15, "renewTime": stamp});
    let all = get(client, LEASES).await?;
    let Some(mut lease) = all["items"].as_array().and_then(|items| items.first().cloned()) else {
        spec["acquireTime"] = json!(stamp);
        spec["leaseTransitions"] = json!(0);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": NAMESPACE}, "spec": spec});
        return send(client, "POST", LEASES, &lease).await.map(|_| true);
    };
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    if holder != IDENTITY && !holder.is_empty() {
        return Ok(false);
    }
    for (field, value) in spec.as_object().into_iter().flatten() {
        lease["spec"][field] = value.clone();
    }
    // A conflict: somebody else was quicker.
    Ok(send(client, "PUT", LEASE, &lease).await.is_ok())
}

fn workload_of(job: &Value) -> Value {
    let metadata = &job["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let template = &job["spec"]["template"];
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": admission_controller::names::workload_name("batch", "Job", name, uid), "namespace": "team",
            "labels": {"kueue.x-k8s.io/job-uid": uid}, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true,
                "blockOwnerDeletion": true}],
        },
        "spec": {
            "active": true, "priority": 0, "queueName": metadata["labels"]["kueue.x-k8s.io/queue-name"],
            "podSets": [{"name": "main", "count": job["spec"]["parallelism"], "template": template}],
        },
    })
}

/// The patch of a status in which one condition is added or replaced.
fn with_condition(workload: &Value, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = kit::Clock::System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|one| one["type"] != kind);
    conditions.push(json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        "observedGeneration": workload["metadata"]["generation"]}));
    json!({"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}, "status": {"conditions": conditions}})
}

fn admission(workload: &Value) -> Value {
    let reserved = with_condition(
        workload,
        "QuotaReserved",
        "True",
        "QuotaReserved",
        "Quota reserved in ClusterQueue team",
    );
    let mut with_both = workload.clone();
    with_both["status"]["conditions"] = reserved["status"]["conditions"].clone();
    let mut patch = with_condition(&with_both, "Admitted", "True", "Admitted", "The workload is admitted");
    let count = workload["spec"]["podSets"][0]["count"].clone();
    patch["status"]["admission"] = json!({"clusterQueue": "team", "podSetAssignments": [{"name": "main",
        "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "100m"}, "count": count}]});
    patch
}

async fn start(client: &Client, job: &Value, workload: &Value) -> Result<()> {
    ensure!(holds(workload, "Admitted"), "it is admitted");
    let name = job["metadata"]["name"].as_str().context("a name")?;
    let template = json!({"spec": {"nodeSelector": {"pool": "default"}}});
    send(
        client,
        "PATCH",
        &format!("{JOBS}/{name}"),
        &json!({"spec": {"suspend": false, "template": template}}),
    )
    .await?;
    Ok(())
}
