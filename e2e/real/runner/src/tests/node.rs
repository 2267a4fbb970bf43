//! The node itself: what the other tests of running containers lean on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::{get, wait};
use crate::node::{IMAGE, NAME};
use crate::registry::{Outcome, Test, need, output};
use crate::world::World;

/// Tests of the node without any of our programs.
pub(crate) fn all() -> Vec<Test> {
    vec![
        Test::new("node/a_pod_runs_and_its_environment_can_be_read", runs).alone(),
        Test::new("node/a_failing_container_fails_its_pod", fails).alone(),
        Test::new("node/a_restarted_kubelet_is_ready_again", restarts).alone(),
    ]
}

/// A pod bound to the node, with this environment.
pub(crate) fn pod(name: &str, environment: &[(&str, &str)]) -> Value {
    let variables: Vec<_> =
        environment.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": NAME, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "env": variables}]}})
}

/// Waits until a pod of namespace `default` is in this phase.
pub(crate) async fn wait_phase(world: &World, name: &str, phase: &str) -> Result<Value> {
    let client = &world.running()?.plane.client;
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    wait(&format!("pod {name} to be {phase}"), Duration::from_secs(60), async || {
        Ok(get(client, &path).await?["status"]["phase"] == phase)
    })
    .await?;
    get(client, &path).await
}

/// kubectl against this run's API server.
pub(crate) fn kubectl(world: &World, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(world.tools.get("kubectl")?);
    command.env("KUBECONFIG", &world.running()?.plane.kubeconfig).args(arguments);
    Ok(command)
}

async fn runs(world: Arc<World>) -> Result<Outcome> {
    need!(world.can_run_a_node());
    let _node = world.node().await?;
    let running = world.running()?;
    running.applier.must(&pod("runs", &[("GREETING", "hello")])).await?;
    wait_phase(&world, "runs", "Running").await?;
    let logs = output(&mut kubectl(&world, &["logs", "runs"])?).await?;
    ensure!(logs.lines().any(|line| line == "GREETING=hello"), "{logs}");
    let inside = output(&mut kubectl(&world, &["exec", "runs", "--", "/workload", "env"])?).await?;
    ensure!(inside.lines().any(|line| line == "GREETING=hello"), "{inside}");
    output(&mut kubectl(&world, &["delete", "pod", "runs", "--wait=true"])?).await?;
    Ok(Outcome::Passed)
}

async fn fails(world: Arc<World>) -> Result<Outcome> {
    need!(world.can_run_a_node());
    let _node = world.node().await?;
    let running = world.running()?;
    running.applier.must(&pod("fails", &[("RUN_FOR", "100ms"), ("EXIT_CODE", "3")])).await?;
    let failed = wait_phase(&world, "fails", "Failed").await?;
    let code = &failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    ensure!(code == 3, "{}", failed["status"]);
    Ok(Outcome::Passed)
}

async fn restarts(world: Arc<World>) -> Result<Outcome> {
    need!(world.can_run_a_node());
    let mut node = world.node().await?;
    let client = &world.running()?.plane.client;
    node.restart_kubelet(client).await?;
    Ok(Outcome::Passed)
}
