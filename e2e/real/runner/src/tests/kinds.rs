//! Kubeflow's other kinds, each on its real definition with its real controller: suspended, admitted, run and ended.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{get, wait};
use crate::registry::Test;
use crate::stack::{NAMESPACE, WORKLOADS, is, list, template, test};
use crate::world::World;

/// Kind, resource, field of the roles, the container that the controller looks for, and roles with their pods.
type Kind = (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, u32)]);

const KINDS: &[Kind] = &[
    ("TFJob", "tfjobs", "tfReplicaSpecs", "tensorflow", &[("Worker", 2)]),
    ("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", "xgboost", &[("Master", 1), ("Worker", 1)]),
    ("PaddleJob", "paddlejobs", "paddleReplicaSpecs", "paddle", &[("Worker", 2)]),
];

pub(crate) fn all() -> Vec<Test> {
    let one = |kind: &'static Kind| {
        let name = format!("kinds/{}_is_admitted_runs_and_ends", kind.0.to_lowercase());
        test(&name, async |world: &World| admitted_runs_and_ends(world, kind).await)
    };
    KINDS.iter().map(one).collect()
}

async fn admitted_runs_and_ends(world: &World, kind: &Kind) -> Result<()> {
    let (kind, resource, field, container, roles) = *kind;
    let roles: serde_json::Map<String, Value> = roles
        .iter()
        .map(|(role, replicas)| {
            let spec = json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": template(container, 2, "3s")});
            ((*role).to_owned(), spec)
        })
        .collect();
    let running = world.running()?;
    let made = running
        .applier
        .must(&json!({"apiVersion": "kubeflow.org/v1", "kind": kind,
            "metadata": {"name": "short", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "training"}},
            "spec": {field: roles}}))
        .await?;
    ensure!(made.data["spec"]["runPolicy"]["suspend"] == true, "suspended at creation: {}", made.data);
    wait("the Workload to be Finished", Duration::from_secs(90), async || {
        world.programs().await?.alive()?;
        Ok(list(world, WORKLOADS).await?.iter().any(|workload| is(workload, "Finished", "True")))
    })
    .await?;
    let path = format!("/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/{resource}/short");
    let job = get(&running.plane.client, &path).await?;
    ensure!(is(&job, "Succeeded", "True"), "Kubeflow says so too: {}", job["status"]);
    let pods = list(world, crate::stack::PODS).await?;
    ensure!(!pods.is_empty(), "it had pods");
    ensure!(pods.iter().all(|pod| pod["spec"]["schedulerName"] == "trireme"), "placed by gang-scheduler");
    Ok(())
}
