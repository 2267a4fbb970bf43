//! Shadow mode as an administrator starts it, beside a program that decides (ours, in Kueue's place), and on a recording of the
//! same time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use control_plane::page;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::process::{Process, free_port};
use crate::registry::{Outcome, Test, need};
use crate::stack;
use crate::world::World;

/// What the other has for doing the same.
const PATIENCE: &str = "20";
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn all() -> Vec<Test> {
    let name = "shadow/what_is_compared_live_is_compared_on_a_recording";
    vec![Test::new(name, |world: Arc<World>| async move { test(&world).await }).alone()]
}

async fn test(world: &World) -> Result<Outcome> {
    need!(world.running());
    need!(world.tools.get(stack::ADMISSION));
    need!(world.tools.get("kube-controller-manager"));
    need!(stack::address(world));
    stack::start_admission(world, stack::ADMISSION).await?;
    let applier = &world.running()?.applier;
    let mut made = Vec::new();
    let outcome = async {
        for object in queue() {
            made.push(applier.must(&object).await?);
        }
        let recording = beside(world, &mut made).await?;
        replay(world, &recording)
    };
    let outcome = outcome.await;
    for object in made.iter().rev() {
        let cleared = applier.delete(object).await;
        if outcome.is_ok() {
            cleared?;
        }
    }
    outcome.map(|()| Outcome::Passed)
}

fn queue() -> [Value; 3] {
    let (version, metadata) = ("kueue.x-k8s.io/v1beta2", json!({"name": "shadow"}));
    let quota = json!({"name": "shadow", "resources": [{"name": "cpu", "nominalQuota": 4}]});
    [
        json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": metadata}),
        json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": metadata, "spec": {
            "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}}),
        json!({"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "shadow", "namespace": "default"},
            "spec": {"clusterQueue": "shadow"}}),
    ]
}

fn job(name: &str, cpu: u32) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "shadow"}},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

/// Starts both, has one job admitted and one told why not, and ends both: the recording.
async fn beside(world: &World, made: &mut Vec<DynamicObject>) -> Result<PathBuf> {
    let (admin, recording) = (free_port()?, world.work.join("events.jsonl"));
    let kubeconfig = world.work.join("control-plane").join(format!("{}.kubeconfig", stack::ADMISSION));
    let start = |name: &str, arguments: &[String]| {
        let mut command = Command::new(world.tools.get(stack::ADMISSION)?);
        Process::start(&world.work, name, command.arg("--kubeconfig").arg(&kubeconfig).args(arguments))
    };
    let address = format!("127.0.0.1:{admin}");
    let flags = ["--shadow", "--patience", PATIENCE, "--admin-address", &address].map(str::to_owned);
    let mut shadow = start("shadow", &flags)?;
    let mut recorder = start("recorder", &["--record".to_owned(), recording.display().to_string()])?;
    wait("both to have seen everything", SOON, async || {
        shadow.alive()?;
        recorder.alive()?;
        // One that breaks off before everything was listed is refused.
        let is_whole = played(world, &recording, &[])?.status.success();
        Ok(is_whole && page(admin, "/readyz").await?.0 == 200)
    })
    .await?;
    let applier = &world.running()?.applier;
    for (name, cpu) in [("fits", 1), ("exceeds", 9)] {
        made.push(applier.must(&job(name, cpu)).await?);
    }
    let mut last = String::new();
    let compared = wait("both decisions to be compared", SOON, async || {
        last = page(admin, "/metrics").await?.1;
        let is_compared = |decision: &str| {
            let series = format!(r#"trireme_shadow_decisions_total{{decision="{decision}",result="same"}} "#);
            last.lines().any(|one| one.starts_with(&series))
        };
        Ok(["admission", "reason"].into_iter().all(is_compared))
    });
    compared.await.with_context(|| last.clone())?;
    let rows = page(admin, "/debug/shadow").await?.1;
    ensure!(rows.starts_with("TIME") && rows.lines().count() == 1, "nothing differs: {rows}");
    // What the one has seen the other sees, too, and its time is over for both.
    tokio::time::sleep(Duration::from_secs(2)).await;
    recorder.interrupt(SOON).await?;
    shadow.interrupt(SOON).await?;
    ensure!(shadow.log_end(usize::MAX).contains("TIME"), "its rows are on standard output");
    Ok(recording)
}

fn replay(world: &World, recording: &Path) -> Result<()> {
    let config = world.work.join("replay.yaml");
    std::fs::write(&config, json!({"multiKueue": {"gcInterval": "1m"}}).to_string())?;
    let done = played(world, recording, &["--config".as_ref(), config.as_ref()])?;
    let (said, complained) = (String::from_utf8(done.stdout)?, String::from_utf8(done.stderr)?);
    ensure!(done.status.success(), "{}: {complained}", done.status);
    ensure!(said.starts_with("TIME"), "{said}");
    let (same, rest) = said.lines().last().and_then(|sum| sum.split_once(' ')).context("a sum")?;
    let is_alike = rest == "decisions are the same, 0 differ, 0 were open at the end";
    ensure!(same.parse::<u64>()? >= 2 && is_alike, "{said}");
    ensure!(complained.contains("multiKueue"), "settings that are not supported are named: {complained:?}");
    let missing = played(world, Path::new("/nowhere"), &[])?;
    ensure!(missing.status.code() == Some(2), "{}", missing.status);
    Ok(())
}

fn played(world: &World, recording: &Path, more: &[&OsStr]) -> Result<Output> {
    let mut command = Command::new(world.tools.get(stack::ADMISSION)?);
    command.arg("--replay").arg(recording).args(["--patience", PATIENCE]).args(more);
    Ok(command.output()?)
}
