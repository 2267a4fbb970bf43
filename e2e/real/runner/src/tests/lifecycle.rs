//! Every kind of job on its real definition: it waits, is admitted, ends and goes. Where no controller of the kind runs here,
//! the test writes the status that it would write.

mod pods;
mod suspended;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::{Applier, condition, get, send, wait};
use crate::registry::{Outcome, Test, need};
use crate::stack::{self, is};
use crate::world::World;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
/// Where admitted pods go.
const POOL: &str = "lifecycle";
/// Other tests run beside this one.
const SOON: Duration = Duration::from_secs(40);

pub(crate) fn all() -> Vec<Test> {
    suspended::all().into_iter().chain(pods::all()).collect()
}

/// A test with a namespace and a ClusterQueue of its own, whose quota is zero at first.
fn test(
    kind: &'static str,
    definition: &'static str,
    run: impl AsyncFn(&Site) -> Result<()> + 'static,
) -> Test {
    let run = Arc::new(run);
    let lives = move |world: Arc<World>| {
        let run = run.clone();
        async move { on_a_site(world, kind, definition, &*run).await }
    };
    Test::new(name(kind), lives).with_admission()
}

fn name(kind: &str) -> String {
    format!("lifecycle/{kind}_waits_is_admitted_ends_and_goes")
}

async fn on_a_site(
    world: Arc<World>,
    kind: &str,
    definition: &str,
    run: &impl AsyncFn(&Site) -> Result<()>,
) -> Result<Outcome> {
    need!(possible(&world, definition));
    let site = Site::new(world, kind).await?;
    let outcome = run(&site).await;
    outcome.context(site.state().await)?;
    Ok(Outcome::Passed)
}

fn possible(world: &World, definition: &str) -> Result<()> {
    let running = world.running()?;
    if !definition.is_empty() {
        let there = running.definitions.get(definition).is_some_and(Result::is_ok);
        ensure!(there, "{definition} is not installed: ../shared/conformance/crds is not there");
    }
    world.tools.get("kube-controller-manager")?;
    world.tools.get(stack::ADMISSION)?;
    stack::address(world).map(|_| ())
}

/// A namespace, a LocalQueue `queue` and a ClusterQueue.
struct Site {
    world: Arc<World>,
    client: Client,
    /// Of the namespace and of the ClusterQueue.
    name: String,
}

impl Site {
    async fn new(world: Arc<World>, kind: &str) -> Result<Self> {
        stack::start_admission(&world, stack::ADMISSION).await?;
        let site =
            Self { client: world.running()?.plane.client.clone(), name: format!("lifecycle-{kind}"), world };
        let flavor = json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": POOL},
            "spec": {"nodeLabels": {"pool": POOL}}});
        let queue = json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": site.name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups(0)}});
        let local = json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "queue", "namespace": site.name},
            "spec": {"clusterQueue": site.name}});
        for object in [flavor, queue, local] {
            site.applier()?.must(&object).await?;
        }
        Ok(site)
    }

    fn applier(&self) -> Result<&Applier> {
        Ok(&self.world.running()?.applier)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        get(&self.client, path).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        send(&self.client, "PATCH", path, body).await
    }

    /// Creates an object in the queue, or without one.
    async fn create(&self, mut object: Value, in_queue: bool) -> Result<Value> {
        object["metadata"]["namespace"] = json!(self.name);
        if in_queue {
            object["metadata"]["labels"][QUEUE_NAME] = json!("queue");
        }
        Ok(serde_json::to_value(self.applier()?.must(&object).await?)?)
    }

    async fn workloads(&self) -> Result<Vec<Value>> {
        self.list("/apis/kueue.x-k8s.io/v1beta2", "workloads").await
    }

    async fn list(&self, group: &str, resource: &str) -> Result<Vec<Value>> {
        let all = self.get(&format!("{group}/namespaces/{}/{resource}", self.name)).await?;
        Ok(all["items"].as_array().cloned().unwrap_or_default())
    }

    /// As many Workloads as this wait for quota; returns them in order of their names.
    async fn waiting(&self, count: usize) -> Result<Vec<Value>> {
        let waits = |one: &Value| {
            condition(one, "QuotaReserved")
                .is_some_and(|found| found["status"] == "False" && found["reason"] == "ExceedsMaxQuota")
        };
        self.all_of(count, "to wait", waits).await
    }

    /// There is quota now, and as many Workloads are admitted.
    async fn admitted(&self, count: usize) -> Result<Vec<Value>> {
        let path = format!("{QUEUES}/{}", self.name);
        self.patch(&path, &json!({"spec": {"resourceGroups": groups(100)}})).await?;
        self.all_of(count, "to be admitted", |one| is(one, "Admitted", "True")).await
    }

    /// They ended well.
    async fn finished(&self, count: usize) -> Result<()> {
        let ended = |one: &Value| {
            condition(one, "Finished")
                .is_some_and(|found| found["status"] == "True" && found["reason"] == "Succeeded")
        };
        self.all_of(count, "to be finished", ended).await.map(|_| ())
    }

    async fn all_of(&self, count: usize, what: &str, is: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        wait(&format!("{count} workloads {what}"), SOON, async || {
            self.world.programs().await?.alive()?;
            let all = self.workloads().await?;
            Ok(all.len() == count && all.iter().all(&is))
        })
        .await?;
        self.workloads().await
    }

    /// Deletes an object; with it go its Workloads and what they use.
    async fn goes(&self, path: &str) -> Result<()> {
        self.delete(path).await?;
        self.nothing_left().await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        send(&self.client, "DELETE", path, &json!({"propagationPolicy": "Background"})).await.map(|_| ())
    }

    /// No Workload, and no quota in use.
    async fn nothing_left(&self) -> Result<()> {
        self.all_of(0, "to be left", |_| true).await?;
        let path = format!("{QUEUES}/{}", self.name);
        wait("the quota to be free", SOON, async || {
            let status = &self.get(&path).await?["status"];
            let used = |one: &Value| one["total"] != "0";
            let flavors = status["flavorsReservation"].as_array().into_iter().flatten();
            let mut resources =
                flavors.flat_map(|flavor| flavor["resources"].as_array().into_iter().flatten());
            Ok(!resources.any(used) && status["reservingWorkloads"] == 0)
        })
        .await
    }

    /// What a person would look at.
    async fn state(&self) -> String {
        let workloads = self.workloads().await.unwrap_or_default();
        let told = workloads
            .iter()
            .map(|one| format!("{}: {}\n", one["metadata"]["name"], one["status"]["conditions"]));
        let log = match self.world.programs().await {
            Ok(programs) => programs.log_end(stack::ADMISSION),
            Err(error) => error.to_string(),
        };
        format!("{}{log}", told.collect::<String>())
    }
}

/// The quota of the ClusterQueue in CPUs; there is memory enough.
fn groups(cpus: u32) -> Value {
    json!([{"coveredResources": ["cpu", "memory"], "flavors": [{"name": POOL, "resources": [
        {"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "1Ti"}]}]}])
}

/// A pod of one CPU.
fn template(container: &str) -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": container, "image": "none",
        "resources": {"requests": {"cpu": "1"}}}]}})
}

/// A condition that its controller writes.
fn says(kind: &str) -> Value {
    let now = kit::Clock::System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now})
}
