//! The real kubectl against `trireme up`: what people do with it every day.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::cluster::wait;
use crate::process::Process;
use crate::registry::{Outcome, Test, need, output};
use crate::world::World;

const GPU: &str = "nvidia.com/gpu";

/// An embedded cluster that the tests share, and kubectl for it.
struct Up {
    process: Process,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    work: PathBuf,
}

type Shared = Arc<Mutex<Option<Arc<Up>>>>;

/// Tests of the embedded cluster from outside.
pub(crate) fn all() -> Vec<Test> {
    let shared = Shared::default();
    let mut tests = Vec::new();
    macro_rules! on_the_shared_one {
        ($($name:literal => $run:ident),* $(,)?) => {$({
            let shared = shared.clone();
            tests.push(Test::new(concat!("up/", $name), move |world: Arc<World>| {
                let shared = shared.clone();
                async move {
                    need!(possible(&world));
                    let up = {
                        let mut slot = shared.lock().await;
                        if slot.is_none() {
                            *slot = Some(Arc::new(Up::start(&world, "up", &["--nodes", "2"]).await?));
                        }
                        slot.clone().context("it was just started")?
                    };
                    $run(&up).await?;
                    Ok(Outcome::Passed)
                }
            }));
        })*};
    }
    on_the_shared_one! {
        "get_shows_nodes_with_their_gpus" => nodes,
        "api_resources_lists_every_kind" => api_resources,
        "version_and_readyz_answer" => version,
        "create_get_and_delete" => create_get_delete,
        "commands_that_send_protobuf_work" => typed,
        "apply_creates_changes_and_finds_nothing_to_do" => apply,
        "apply_with_a_server_side_dry_run_changes_nothing" => dry_run,
        "patch_in_three_formats" => patch,
        "label_and_annotate" => label,
        "a_wrong_object_is_refused_with_its_field" => refused,
        "get_watch_shows_a_pod_come_up" => watch,
        "a_job_is_created_waited_for_and_read" => job,
        "logs_show_the_gpus_of_the_container" => logs,
        "init_containers_have_logs_and_exec_is_refused" => init_logs,
        "workloads_have_their_columns" => workload_columns,
        "queues_have_their_columns" => queue_columns,
        "describe_shows_conditions_and_events" => describe,
        "v1beta1_can_be_read_and_written" => old_version,
        "delete_waits_for_finalizers" => finalizers,
        "selectors_by_label_and_field" => selectors,
        "output_as_yaml_can_be_applied_again" => round_trip,
    }
    tests.extend([
        Test::new("up/empty_has_definitions_and_no_queues", empty),
        Test::new("up/a_profile_gives_its_gpus", profile),
        Test::new("up/an_unknown_profile_is_refused_with_those_there_are", unknown_profile),
        Test::new("up/the_kubeconfig_is_for_its_owner_alone", kubeconfig),
        Test::new("up/an_interrupt_ends_it_cleanly", interrupt),
        Test::new("up/the_demo_tells_its_story_to_the_end", demo),
    ]);
    tests
}

fn possible(world: &World) -> Result<()> {
    world.tools.get("trireme")?;
    world.tools.get("kubectl").map(|_| ())
}

impl Up {
    /// Starts it, and waits until kubectl is told that it is ready.
    async fn start(world: &World, name: &str, arguments: &[&str]) -> Result<Self> {
        let kubeconfig = world.work.join(format!("{name}.kubeconfig"));
        let mut command = std::process::Command::new(world.tools.get("trireme")?);
        command.arg("up").args(arguments).arg("--write-kubeconfig").arg(&kubeconfig);
        command.env("TMPDIR", &world.work);
        let process = Process::start(&world.work, name, &mut command)?;
        let (kubectl, work) = (world.tools.get("kubectl")?.to_owned(), world.work.clone());
        let mut up = Self { process, kubeconfig, kubectl, work };
        let what = format!("trireme {} to be ready", arguments.join(" "));
        wait(&what, Duration::from_secs(30), async || {
            up.process.alive()?;
            let said = up.process.log_end(20);
            Ok(said.contains("ready") && up.run(&["get", "--raw", "/readyz"]).await? == "ok")
        })
        .await?;
        Ok(up)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.work.join("kubectl-cache"))
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl, which must succeed, and returns what it printed.
    async fn run(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.command(arguments)).await
    }

    /// Runs kubectl, which must fail, and returns what it complained.
    async fn fails(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.command(arguments).output().await?;
        ensure!(!answer.status.success(), "{arguments:?} should fail");
        Ok(String::from_utf8_lossy(&answer.stderr).into_owned())
    }

    /// A file for `-f`.
    fn file(&self, name: &str, document: &Value) -> Result<String> {
        let path = self.work.join(format!("{name}.json"));
        std::fs::write(&path, document.to_string())?;
        Ok(path.display().to_string())
    }

    /// Makes a document with `kubectl create -f`.
    async fn create(&self, name: &str, document: &Value) -> Result<String> {
        let file = self.file(name, document)?;
        self.run(&["create", "-f", &file]).await
    }

    async fn json(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(&[arguments, &["-o", "json"]].concat()).await?)?)
    }
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

fn batch(name: &str, gpus: u32, run_for: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team-b", "labels": {"kueue.x-k8s.io/queue-name": "training"}},
        "spec": {"template": {
            "metadata": {"annotations": {"sim.trireme.dev/run-for": run_for}},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "any", "resources": {"limits": {GPU: gpus.to_string()}}}]}}}})
}

/// The columns of the first line and the words of the line that begins with this name.
fn row<'a>(table: &'a str, name: &str) -> Result<(Vec<&'a str>, Vec<&'a str>)> {
    // Columns are three spaces apart; a name of two words has one.
    let split = |line: &'a str| line.split("   ").map(str::trim).filter(|word| !word.is_empty()).collect();
    let head = table.lines().next().context("an empty table")?;
    let line = table
        .lines()
        .find(|line| line.starts_with(name))
        .with_context(|| format!("no {name} in\n{table}"))?;
    Ok((split(head), split(line)))
}

async fn nodes(up: &Up) -> Result<()> {
    let table = up.run(&["get", "nodes"]).await?;
    for name in ["node-1", "node-2"] {
        ensure!(row(&table, name)?.1.get(1) == Some(&"Ready"), "{table}");
        let path = "jsonpath={.status.allocatable.nvidia\\.com/gpu}";
        let gpus = up.run(&["get", "node", name, "-o", path]).await?;
        ensure!(gpus == "8", "{name} offers {gpus}");
        let devices = up.json(&["get", "gpunode", name]).await?;
        ensure!(devices["status"]["devices"].as_array().is_some_and(|all| all.len() == 8), "{devices}");
    }
    Ok(())
}

async fn api_resources(up: &Up) -> Result<()> {
    let table = up.run(&["api-resources"]).await?;
    for (plural, short, group, namespaced, kind) in [
        ("clusterqueues", "cq", "kueue.x-k8s.io/v1beta2", "false", "ClusterQueue"),
        ("localqueues", "queue", "kueue.x-k8s.io/v1beta2", "true", "LocalQueue"),
        ("workloads", "kwl", "kueue.x-k8s.io/v1beta2", "true", "Workload"),
        ("resourceflavors", "flavor", "kueue.x-k8s.io/v1beta2", "false", "ResourceFlavor"),
        ("podgroups", "pg", "scheduling.volcano.sh/v1beta1", "true", "PodGroup"),
        ("gangplacements", "", "trireme.dev/v1alpha1", "true", "GangPlacement"),
        ("gpunodes", "", "trireme.dev/v1alpha1", "false", "GpuNode"),
        ("pytorchjobs", "", "kubeflow.org/v1", "true", "PyTorchJob"),
        ("jobs", "", "batch/v1", "true", "Job"),
        ("pods", "po", "v1", "true", "Pod"),
    ] {
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = lines.any(|words| {
            words.first() == Some(&plural)
                && words.ends_with(&[group, namespaced, kind])
                && words.iter().any(|word| word.split(',').any(|one| short.is_empty() || one == short))
        });
        ensure!(found, "no {plural} ({short}) of {group} in\n{table}");
    }
    Ok(())
}

async fn version(up: &Up) -> Result<()> {
    let said = up.json(&["version"]).await?;
    ensure!(said["serverVersion"]["major"] == "1", "{said}");
    let skewed = said["serverVersion"]["minor"] != said["clientVersion"]["minor"];
    ensure!(!skewed, "kubectl would warn of the difference: {said}");
    Ok(())
}

async fn create_get_delete(up: &Up) -> Result<()> {
    let said = up.create("create", &config_map("create", json!({"a": "1"}))).await?;
    ensure!(said.trim() == "configmap/create created", "{said}");
    let again = up.fails(&["create", "-f", &up.file("create", &config_map("create", json!({})))?]).await?;
    ensure!(again.contains("AlreadyExists"), "{again}");
    ensure!(
        up.run(&["get", "configmap", "create", "-o", "jsonpath={.data.a}"]).await? == "1",
        "what was created"
    );
    up.run(&["delete", "configmap", "create"]).await?;
    let gone = up.fails(&["get", "configmap", "create"]).await?;
    ensure!(gone.contains("NotFound"), "{gone}");
    Ok(())
}

/// Generators and `auth can-i` send typed objects, as Go clients do.
async fn typed(up: &Up) -> Result<()> {
    up.run(&["create", "namespace", "typed"]).await?;
    up.run(&["create", "job", "hello", "--image=busybox", "-n", "typed", "--", "echo", "hi"]).await?;
    let job = up.json(&["get", "job", "hello", "-n", "typed"]).await?;
    let command = &job["spec"]["template"]["spec"]["containers"][0]["command"];
    ensure!(*command == json!(["echo", "hi"]), "{job}");
    let said = up.run(&["auth", "can-i", "create", "pods"]).await?;
    ensure!(said.trim() == "yes", "{said}");
    up.run(&["delete", "namespace", "typed", "--wait=false"]).await?;
    Ok(())
}

fn flavor(labels: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "applied"}, "spec": {"nodeLabels": labels}})
}

async fn apply(up: &Up) -> Result<()> {
    let first = up.file("apply-1", &flavor(json!({"a": "1", "b": "2"})))?;
    let other = up.file("apply-2", &flavor(json!({"a": "3"})))?;
    let object = "resourceflavor.kueue.x-k8s.io/applied";
    for (file, wanted) in
        [(&first, "created"), (&first, "unchanged"), (&other, "configured"), (&other, "unchanged")]
    {
        let said = up.run(&["apply", "-f", file]).await?;
        ensure!(said.trim() == format!("{object} {wanted}"), "{said} instead of {wanted}");
    }
    let labels = up.json(&["get", "resourceflavor", "applied"]).await?["spec"]["nodeLabels"].clone();
    ensure!(labels == json!({"a": "3"}), "what is no longer in the file is removed: {labels}");
    up.run(&["delete", "-f", &other]).await.map(|_| ())
}

async fn dry_run(up: &Up) -> Result<()> {
    let file = up.file("dry-run", &config_map("dry-run", json!({})))?;
    up.run(&["apply", "--dry-run=server", "-f", &file]).await?;
    let gone = up.fails(&["get", "configmap", "dry-run"]).await?;
    ensure!(gone.contains("NotFound"), "{gone}");
    Ok(())
}

async fn patch(up: &Up) -> Result<()> {
    up.create("patch", &config_map("patch", json!({"a": "1", "b": "2"}))).await?;
    for (kind, body) in [
        ("merge", r#"{"data": {"a": null, "c": "3"}}"#),
        ("json", r#"[{"op": "replace", "path": "/data/b", "value": "4"}]"#),
        ("strategic", r#"{"metadata": {"labels": {"x": "y"}}}"#),
    ] {
        up.run(&["patch", "configmap", "patch", &format!("--type={kind}"), "-p", body]).await?;
    }
    let map = up.json(&["get", "configmap", "patch"]).await?;
    ensure!(map["data"] == json!({"b": "4", "c": "3"}) && map["metadata"]["labels"]["x"] == "y", "{map}");
    Ok(())
}

async fn label(up: &Up) -> Result<()> {
    up.create("label", &config_map("label", json!({}))).await?;
    up.run(&["label", "configmap", "label", "team=ml"]).await?;
    up.run(&["annotate", "configmap", "label", "note=kept"]).await?;
    let refused = up.fails(&["label", "configmap", "label", "team=other"]).await?;
    ensure!(refused.contains("overwrite"), "{refused}");
    up.run(&["label", "configmap", "label", "team-"]).await?;
    let map = up.json(&["get", "configmap", "label"]).await?;
    ensure!(
        map["metadata"]["labels"]["team"].is_null() && map["metadata"]["annotations"]["note"] == "kept",
        "{map}"
    );
    Ok(())
}

async fn refused(up: &Up) -> Result<()> {
    let flavors = json!([{"name": "gpu-a100", "resources": [{"name": GPU, "nominalQuota": "lots"}]}]);
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "wrong"},
        "spec": {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}});
    let said = up.fails(&["create", "-f", &up.file("wrong", &queue)?]).await?;
    ensure!(said.contains("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"), "{said}");
    let unknown = json!({"apiVersion": "nobody.dev/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let said = up.fails(&["create", "-f", &up.file("unknown", &unknown)?]).await?;
    ensure!(said.contains("no matches for kind"), "{said}");
    Ok(())
}

/// Reads lines of a kubectl that goes on until one of them holds this text.
async fn until(
    lines: &mut tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    text: &str,
) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let read = async {
        while let Some(line) = lines.next_line().await? {
            let found = line.contains(text);
            seen.push(line);
            if found {
                return Ok(());
            }
        }
        bail!("it ended")
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), read).await;
    outcome.unwrap_or_else(|_| bail!("not within 30 s")).with_context(|| format!("no {text} in {seen:?}"))?;
    Ok(seen)
}

async fn watch(up: &Up) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "watched"}});
    up.create("watched", &namespace).await?;
    let pod = |name: &str, scheduler: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "watched"},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "any"}]}})
    };
    up.create("before", &pod("before", "nobody")).await?;
    let mut child = up.command(&["get", "pods", "-n", "watched", "-w"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    // It has listed what is there, and misses nothing from then on.
    let listed = until(&mut lines, "before").await?;
    ensure!(listed.iter().any(|line| line.starts_with("NAME")), "{listed:?}");
    up.create("seen", &pod("seen", "trireme")).await?;
    let seen = until(&mut lines, "Running").await?;
    ensure!(seen.iter().any(|line| line.starts_with("seen") && line.contains("Pending")), "{seen:?}");
    up.run(&["delete", "namespace", "watched"]).await?;
    until(&mut lines, "Terminating").await?;
    child.kill().await?;
    Ok(())
}

async fn job(up: &Up) -> Result<()> {
    up.create("waited", &batch("waited", 1, "2s")).await?;
    let wait = ["wait", "--for=condition=complete", "job/waited", "-n", "team-b", "--timeout=60s"];
    let said = up.run(&wait).await?;
    ensure!(said.trim() == "job.batch/waited condition met", "{said}");
    let table = up.run(&["get", "job", "waited", "-n", "team-b"]).await?;
    let (head, line) = row(&table, "waited")?;
    ensure!(
        head[..3] == ["NAME", "STATUS", "COMPLETIONS"] && line[..3] == ["waited", "Complete", "1/1"],
        "{table}"
    );
    up.run(&["delete", "job", "waited", "-n", "team-b"]).await?;
    let gone = ["wait", "--for=delete", "pod", "-l", "job-name=waited", "-n", "team-b", "--timeout=30s"];
    up.run(&gone).await.map(|_| ())
}

/// A job that runs until it is deleted.
async fn runs(up: &Up, name: &str, gpus: u32) -> Result<()> {
    up.create(name, &batch(name, gpus, "1h")).await?;
    let selector = format!("job-name={name}");
    wait(&format!("{name} to run"), Duration::from_secs(30), async || {
        let pods = up.json(&["get", "pods", "-n", "team-b", "-l", &selector]).await?;
        Ok(pods["items"][0]["status"]["phase"] == "Running")
    })
    .await
}

async fn ends(up: &Up, name: &str) -> Result<()> {
    up.run(&["delete", "job", name, "-n", "team-b"]).await.map(|_| ())
}

async fn logs(up: &Up) -> Result<()> {
    runs(up, "logged", 2).await?;
    for target in [
        ["logs", "job/logged", "-n", "team-b"].as_slice(),
        &["logs", "-l", "job-name=logged", "-n", "team-b", "--tail=-1"],
    ] {
        let text = up.run(target).await?;
        let line = text.lines().find_map(|line| line.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
        let devices = line
            .with_context(|| format!("no devices in\n{text}"))?
            .split(',')
            .filter(|one| one.starts_with("GPU-"));
        ensure!(devices.count() == 2, "{text}");
    }
    ends(up, "logged").await
}

async fn init_logs(up: &Up) -> Result<()> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "helped", "namespace": "default"},
        "spec": {"nodeName": "node-1",
            "initContainers": [{"name": "setup", "image": "any", "env": [{"name": "STEP", "value": "1"}]},
                {"name": "sidecar", "image": "any", "restartPolicy": "Always"}],
            "containers": [{"name": "main", "image": "any"}]}});
    up.create("helped", &pod).await?;
    up.run(&["wait", "pod/helped", "--for=condition=Ready", "--timeout=20s"]).await?;
    let table = up.run(&["get", "pods"]).await?;
    ensure!(row(&table, "helped")?.1[1] == "2/2", "{table}");
    let text = up.run(&["logs", "helped", "-c", "setup"]).await?;
    ensure!(text.contains("STEP=1"), "{text}");
    for command in [["exec", "helped", "--", "sh"].as_slice(), &["port-forward", "helped", "0:80"]] {
        let complaint = up.fails(command).await?;
        ensure!(complaint.contains("the embedded cluster runs no containers"), "{complaint}");
    }
    up.run(&["delete", "pod", "helped"]).await?;
    Ok(())
}

async fn workload_columns(up: &Up) -> Result<()> {
    runs(up, "listed", 1).await?;
    let table = up.run(&["get", "workloads", "-n", "team-b", "-o", "wide"]).await?;
    let (head, line) = row(&table, "job-listed-")?;
    ensure!(head == ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"], "{table}");
    ensure!(line[1..4] == ["training", "team-b-queue", "True"], "{table}");
    let short = up.run(&["get", "kwl", "-A"]).await?;
    ensure!(short.starts_with("NAMESPACE") && short.contains("job-listed-"), "{short}");
    ends(up, "listed").await
}

async fn queue_columns(up: &Up) -> Result<()> {
    let table = up.run(&["get", "clusterqueue", "-o", "wide"]).await?;
    let (head, line) = row(&table, "team-b-queue")?;
    ensure!(head[..3] == ["NAME", "COHORT", "STRATEGY"], "{table}");
    ensure!(line[..3] == ["team-b-queue", "shared-gpu-pool", "BestEffortFIFO"], "{table}");
    let table = up.run(&["get", "localqueue", "-n", "team-b"]).await?;
    ensure!(row(&table, "training")?.1[..2] == ["training", "team-b-queue"], "{table}");
    Ok(())
}

async fn describe(up: &Up) -> Result<()> {
    runs(up, "described", 1).await?;
    let job = up.run(&["describe", "job", "described", "-n", "team-b"]).await?;
    ensure!(job.contains("admitted and started") && job.contains("1 Active"), "{job}");
    let workload = up.json(&["get", "workloads", "-n", "team-b"]).await?;
    let names =
        workload["items"].as_array().into_iter().flatten().filter_map(|one| one["metadata"]["name"].as_str());
    let name =
        names.into_iter().find(|name| name.starts_with("job-described-")).context("its Workload")?.to_owned();
    wait("the events of the Workload", Duration::from_secs(20), async || {
        let text = up.run(&["describe", "workload", &name, "-n", "team-b"]).await?;
        Ok(["QuotaReserved", "Admitted", "Events:", "admission-controller"]
            .iter()
            .all(|word| text.contains(word)))
    })
    .await?;
    let pod = up.run(&["describe", "pod", "-l", "job-name=described", "-n", "team-b"]).await?;
    for word in ["PodScheduled", "nvidia.com/gpu:  1", "Node:"] {
        ensure!(pod.contains(word), "no {word} in\n{pod}");
    }
    let node = up.run(&["describe", "node", "node-1"]).await?;
    for word in ["Allocatable:", "nvidia.com/gpu", "Ready"] {
        ensure!(node.contains(word), "no {word} in\n{node}");
    }
    ends(up, "described").await
}

async fn old_version(up: &Up) -> Result<()> {
    let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "older"},
        "spec": {"cohort": "old-pool", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU],
            "flavors": [{"name": "gpu-a100", "resources": [{"name": GPU, "nominalQuota": 0}]}]}]}});
    up.create("older", &old).await?;
    let new = up.json(&["get", "clusterqueues.v1beta2.kueue.x-k8s.io", "older"]).await?;
    ensure!(new["spec"]["cohortName"] == "old-pool", "{new}");
    let again = up.json(&["get", "clusterqueues.v1beta1.kueue.x-k8s.io", "older"]).await?;
    ensure!(again["spec"]["cohort"] == "old-pool", "{again}");
    up.run(&["delete", "clusterqueue", "older"]).await.map(|_| ())
}

async fn finalizers(up: &Up) -> Result<()> {
    let mut map = config_map("held", json!({}));
    map["metadata"]["finalizers"] = json!(["e2e.trireme.dev/hold"]);
    up.create("held", &map).await?;
    up.run(&["delete", "configmap", "held", "--wait=false"]).await?;
    let held = up.json(&["get", "configmap", "held"]).await?;
    ensure!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    up.run(&["patch", "configmap", "held", "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#])
        .await?;
    up.run(&["wait", "--for=delete", "configmap/held", "--timeout=20s"]).await.map(|_| ())
}

async fn selectors(up: &Up) -> Result<()> {
    for (name, team) in [("sel-a", "red"), ("sel-b", "blue")] {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"sel": team});
        up.create(name, &map).await?;
    }
    for (arguments, wanted) in [
        (["-l", "sel=red"], "configmap/sel-a"),
        (["-l", "sel in (blue,green)"], "configmap/sel-b"),
        (["-l", "sel,sel!=red"], "configmap/sel-b"),
        (["--field-selector", "metadata.name=sel-a"], "configmap/sel-a"),
    ] {
        let found = up.run(&[["get", "configmaps", "-o", "name"].as_slice(), &arguments].concat()).await?;
        ensure!(found.trim() == wanted, "{arguments:?} finds {found}");
    }
    Ok(())
}

async fn round_trip(up: &Up) -> Result<()> {
    let text = up.run(&["get", "clusterqueue", "team-a-queue", "-o", "yaml"]).await?;
    let path = up.work.join("round-trip.yaml");
    std::fs::write(&path, text)?;
    let said = up.run(&["replace", "-f", &path.display().to_string()]).await?;
    ensure!(said.trim() == "clusterqueue.kueue.x-k8s.io/team-a-queue replaced", "{said}");
    Ok(())
}

async fn empty(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    let up = Up::start(&world, "up-empty", &["--nodes", "1", "--empty"]).await?;
    let definitions = up.run(&["get", "customresourcedefinitions", "-o", "name"]).await?;
    ensure!(definitions.contains("clusterqueues.kueue.x-k8s.io"), "{definitions}");
    let queues = up.json(&["get", "clusterqueues,localqueues,resourceflavors", "-A"]).await?;
    ensure!(queues["items"].as_array().is_some_and(Vec::is_empty), "{queues}");
    Ok(Outcome::Passed)
}

async fn profile(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    let up = Up::start(&world, "up-profile", &["--nodes", "1", "--empty", "--profile", "4xL40S"]).await?;
    let nodes = up.json(&["get", "nodes"]).await?;
    ensure!(nodes["items"].as_array().is_some_and(|all| all.len() == 1), "{nodes}");
    let node = &nodes["items"][0];
    ensure!(node["status"]["allocatable"][GPU] == "4", "{}", node["status"]);
    let product = node["metadata"]["labels"]["nvidia.com/gpu.product"].as_str().unwrap_or_default();
    ensure!(product.contains("L40S"), "{product}");
    Ok(Outcome::Passed)
}

async fn unknown_profile(world: Arc<World>) -> Result<Outcome> {
    let binary = need!(world.tools.get("trireme"));
    let run = Command::new(binary).args(["up", "--profile", "3xAbacus"]).kill_on_drop(true).output();
    let run = tokio::time::timeout(Duration::from_secs(20), run).await.context("it goes on")??;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(
        !run.status.success() && said.contains("3xAbacus") && said.contains("8xA100"),
        "{}: {said}",
        run.status
    );
    Ok(Outcome::Passed)
}

fn mode(path: &Path) -> Result<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o777)
}

async fn kubeconfig(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    let up = Up::start(&world, "up-kubeconfig", &["--nodes", "1", "--empty"]).await?;
    ensure!(mode(&up.kubeconfig)? == 0o600, "{:o}", mode(&up.kubeconfig)?);
    let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(&up.kubeconfig)?)?;
    let server = file["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
    ensure!(server.starts_with("https://127.0.0.1:"), "{server}");
    let mut stranger = up.command(&["get", "nodes", "--token=somebody-else"]);
    ensure!(!stranger.output().await?.status.success(), "a wrong token is let in");
    Ok(Outcome::Passed)
}

async fn interrupt(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    let mut up = Up::start(&world, "up-interrupt", &["--nodes", "1"]).await?;
    up.process.interrupt(Duration::from_secs(10)).await?;
    let said = up.process.log_end(50);
    ensure!(!said.contains("panic") && !said.contains("ERROR"), "{said}");
    Ok(Outcome::Passed)
}

async fn demo(world: Arc<World>) -> Result<Outcome> {
    let binary = need!(world.tools.get("trireme"));
    let said = output(Command::new(binary).args(["demo", "--once"]).kill_on_drop(true)).await?;
    ensure!(said.contains("The story ended as it should"), "{said}");
    Ok(Outcome::Passed)
}
