//! Telling the cluster: the `GpuNode` object, the Node's labels, events on the Node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crds::api::trireme::v1alpha1::{GpuNode, GpuNodeStatus};
use crds::view::Node;
use futures::StreamExt;
use kit::Context;
use kit::backoff::Backoff;
use kit::events::{Event, Events, Regarding, Severity};
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::watch::Change;
use kube::api::Api;
use kube::runtime::watcher;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::MigStrategy;
use crate::driver::GpuUuid;
use crate::gpu_node;
use crate::health::{self, Ailment};
use crate::inventory::{HealthChange, Inventory};
use crate::labels;
use crate::metrics::Metrics;

/// One request may take so long: the watch of the node must not wait behind a server that does not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// At the start the kubelet must not wait long for its devices because the API server is away.
const RECALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The node as it was last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SeenNode {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Allocatable devices of our resource; 0 when the node does not name it.
    pub(crate) allocatable: i64,
}

/// Follows the node until the context stops.
pub(crate) async fn follow_node(
    ctx: Context,
    node: String,
    resource: &'static str,
    seen: watch::Sender<Option<SeenNode>>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let api: Api<Node> = Api::all(ctx.clients.watch.clone());
    let mut changes = std::pin::pin!(kit::watch::watch(&ctx, api, config));
    loop {
        let change = tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            change = changes.next() => change,
        };
        let now = match change {
            None => return,
            Some(Change::Applied(node)) => Some(view(&node, resource)),
            Some(Change::Deleted(_)) => None,
            Some(Change::Restarted | Change::Synced) => continue,
        };
        seen.send_if_modified(|known| {
            let differs = *known != now;
            if differs {
                *known = now;
            }
            differs
        });
    }
}

fn view(node: &Node, resource: &str) -> SeenNode {
    let allocatable = node.status.allocatable.iter().find(|(name, _)| name.as_str() == resource);
    SeenNode {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        allocatable: allocatable
            .and_then(|(_, written)| written.quantity().ok())
            .map_or(0, |quantity| quantity.value()),
    }
}

/// What GPUs suffered from by this node's `GpuNode`, if it can be read soon.
pub(crate) async fn recall(ctx: &Context, node: &str) -> BTreeMap<GpuUuid, Ailment> {
    let api: Api<GpuNode> = Api::all(ctx.clients.write.clone());
    match tokio::time::timeout(RECALL_TIMEOUT, api.get_opt(node)).await {
        Ok(Ok(found)) => {
            found.and_then(|found| found.status).map(|status| gpu_node::ailments(&status)).unwrap_or_default()
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "which GPUs were ill before cannot be read; probes will tell");
            BTreeMap::new()
        }
        Err(_) => BTreeMap::new(),
    }
}

pub(crate) struct Publisher {
    pub(crate) ctx: Context,
    pub(crate) node: String,
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) seen: watch::Receiver<Option<SeenNode>>,
    pub(crate) strategy: MigStrategy,
    pub(crate) machine_file: PathBuf,
    pub(crate) timestamps: bool,
    pub(crate) metrics: Metrics,
}

/// The `GpuNode` as this process knows it.
#[derive(Default)]
struct Published {
    uid: Option<String>,
    status: Option<GpuNodeStatus>,
}

impl Publisher {
    /// Publishes what changes until the context stops.
    pub(crate) async fn run(mut self) {
        let machine = labels::machine(&self.machine_file);
        let mut published = Published::default();
        let mut backoff = Backoff::for_watches();
        loop {
            let inventory = self.inventory.borrow_and_update().clone();
            let seen = self.seen.borrow_and_update().clone();
            let mut retry_at = None;
            for answer in [
                self.gpu_node(&inventory, seen.as_ref(), &mut published).await,
                self.labels(&inventory, seen.as_ref(), &machine).await,
            ] {
                if let Err(error) = answer {
                    self.metrics.failed("publish");
                    tracing::warn!(%error, "what this node has cannot be published yet");
                    retry_at = Some(self.ctx.clock.monotonic() + backoff.next(&self.ctx.rng));
                }
            }
            if retry_at.is_none() {
                backoff.reset();
            }
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping() => return,
                Ok(()) = self.inventory.changed() => {}
                Ok(()) = self.seen.changed() => {}
                () = until(retry_at) => {}
            }
        }
    }

    /// Creates the object if it is not there, and its status if it differs. It belongs to the Node and goes with it.
    async fn gpu_node(
        &self,
        inventory: &Inventory,
        seen: Option<&SeenNode>,
        published: &mut Published,
    ) -> Result<(), WriteError> {
        let Some(seen) = seen else { return Ok(()) };
        let wanted = gpu_node::status(inventory);
        if inventory.devices().is_empty() || published.status.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let api: Api<GpuNode> = Api::all(self.ctx.clients.write.clone());
        if published.uid.is_none() {
            *published = self.adopt(&api, seen).await?;
            if published.status.as_ref() == Some(&wanted) {
                return Ok(());
            }
        }
        let target = Target::new(self.node.as_str(), published.uid.clone().unwrap_or_default());
        let body = json!({ "status": replacing(&wanted) });
        match timed(patch::merge::<_, Written>(&api, &target, body, Subresource::Status)).await {
            Ok(_) => {
                published.status = Some(wanted);
                Ok(())
            }
            Err(error) => {
                // Somebody deleted it, or put another in its place: look again.
                if matches!(error, WriteError::Gone | WriteError::Conflict(_)) {
                    *published = Published::default();
                }
                Err(error)
            }
        }
    }

    /// The object that is there, or a new one.
    async fn adopt(&self, api: &Api<GpuNode>, seen: &SeenNode) -> Result<Published, WriteError> {
        let found = timed(async { api.get_opt(&self.node).await.map_err(WriteError::from) }).await?;
        if let Some(found) = found {
            return Ok(Published { uid: found.metadata.uid, status: found.status });
        }
        let object = json!({
            "apiVersion": "trireme.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {
                "name": self.node,
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": seen.uid }
                ],
            },
            "spec": {},
        });
        let written: Written = timed(patch::create(api, &object)).await?;
        Ok(Published { uid: Some(written.uid), status: None })
    }

    async fn labels(
        &self,
        inventory: &Inventory,
        seen: Option<&SeenNode>,
        machine: &str,
    ) -> Result<(), WriteError> {
        let Some(seen) = seen else { return Ok(()) };
        // A driver that has never answered says nothing about what the labels should be.
        if inventory.versions().is_none() {
            return Ok(());
        }
        let wanted = labels::labels(inventory, self.strategy, machine);
        let timestamp = self.timestamps.then(|| self.ctx.clock.now().as_second());
        let Some(patch) = labels::patch(&seen.labels, &wanted, timestamp) else { return Ok(()) };
        let api: Api<Node> = Api::all(self.ctx.clients.write.clone());
        let target = Target::new(self.node.as_str(), seen.uid.as_str());
        let body = json!({ "metadata": { "labels": patch } });
        match timed(patch::merge::<_, Written>(&api, &target, body, Subresource::Main)).await {
            // The node was deleted: the watch will tell, and tell of the next one.
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Reports changes of health as events on the Node until the context stops. What happens before the node was seen is in
/// the log and in the `GpuNode` only.
pub(crate) async fn report_changes(
    ctx: Context,
    node: String,
    seen: watch::Receiver<Option<SeenNode>>,
    mut changes: mpsc::Receiver<HealthChange>,
) {
    // One agent a node: nobody else writes these, so there is no gate to ask.
    let events = Events::start(&ctx, "node-agent", Arc::new(|| true));
    loop {
        let change = tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            change = changes.recv() => change,
        };
        let Some(change) = change else { return };
        let uid = seen.borrow().as_ref().map(|seen| seen.uid.clone());
        if let Some(uid) = uid {
            events.publish(event(&node, uid, &change));
        }
    }
}

fn event(node: &str, uid: String, change: &HealthChange) -> Event {
    let gpu = format!("GPU {} ({})", change.index, change.uuid);
    let (severity, reason, note) = match change.health.ailment() {
        None => (Severity::Normal, "GpuHealthy", format!("{gpu} is healthy again and may be given out")),
        Some(ailment) => {
            let xid = ailment.xid.map(|code| match health::xid(code) {
                Some(known) => format!(", XID {code}: {}; {}", known.meaning, known.action.advice()),
                None => format!(", XID {code}"),
            });
            let why = format!("{}{}", ailment.reason.as_str(), xid.unwrap_or_default());
            (Severity::Warning, "GpuUnhealthy", format!("{gpu} is not given out: {why}"))
        }
    };
    let regarding = Regarding {
        api_version: "v1".into(),
        kind: "Node".into(),
        namespace: String::new(),
        name: node.to_owned(),
        uid,
    };
    Event { regarding, severity, reason: reason.into(), note }
}

/// A merge patch leaves out what is absent, so fields that went away are nulled.
fn replacing(status: &GpuNodeStatus) -> serde_json::Value {
    let mut body = json!(status);
    for field in ["driverVersion", "cudaVersion"] {
        if body.get(field).is_none() {
            body[field] = serde_json::Value::Null;
        }
    }
    body
}

async fn timed<T>(request: impl Future<Output = Result<T, WriteError>>) -> Result<T, WriteError> {
    tokio::time::timeout(REQUEST_TIMEOUT, request)
        .await
        .unwrap_or_else(|_| Err(WriteError::timed_out(REQUEST_TIMEOUT)))
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
