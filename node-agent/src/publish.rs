//! Telling the cluster: the `GpuNode` object, the Node's labels, events on the Node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crds::api::trireme::v1alpha1::GpuNodeStatus;
use crds::reasons;
use crds::view::{GpuNode, Node};
use futures::StreamExt;
use kit::Context;
use kit::backoff::Backoff;
use kit::conditions;
use kit::events::{Event, Events, Regarding, Severity};
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::watch::{Change, Reports, Watch};
use kube::api::Api;
use kube::runtime::watcher;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::MigStrategy;
use crate::driver::GpuUuid;
use crate::gpu_node::{self, Standing};
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
    reports: Reports,
    seen: watch::Sender<Option<SeenNode>>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let api: Api<Node> = Api::all(ctx.clients.watch.clone());
    let mut changes = std::pin::pin!(Watch::new(&ctx, api, config).reports(&reports).stream());
    let mut now = None;
    loop {
        let change = tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            change = changes.next() => change,
        };
        match change {
            None => return,
            // It may have gone while nobody watched: then the list that follows is empty.
            Some(Change::Restarted) => {
                now = None;
                continue;
            }
            Some(Change::Applied(node)) => now = Some(view(&node, resource)),
            Some(Change::Deleted(_)) => now = None,
            Some(Change::Synced { .. }) => {}
        }
        seen.send_if_modified(|known| {
            let differs = *known != now;
            if differs {
                known.clone_from(&now);
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
    pub(crate) stored: watch::Receiver<Stored>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) strategy: MigStrategy,
    pub(crate) machine_file: PathBuf,
    pub(crate) timestamps: bool,
    pub(crate) metrics: Metrics,
}

/// The `GpuNode` as the API server last showed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Stored {
    /// It has not been listed yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// There it is.
    Present(Box<GpuNode>),
}

/// Follows the node's `GpuNode` until the context stops.
pub(crate) async fn follow_gpu_node(
    ctx: Context,
    node: String,
    reports: Reports,
    stored: watch::Sender<Stored>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let api: Api<GpuNode> = Api::all(ctx.clients.watch.clone());
    let mut changes = std::pin::pin!(Watch::new(&ctx, api, config).reports(&reports).stream());
    let mut listed = Stored::Absent;
    loop {
        let change = tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            change = changes.next() => change,
        };
        match change {
            None => return,
            Some(Change::Restarted) => {
                listed = Stored::Absent;
                continue;
            }
            Some(Change::Applied(object)) => listed = Stored::Present(Box::new(object)),
            Some(Change::Deleted(_)) => listed = Stored::Absent,
            Some(Change::Synced { .. }) => {}
        }
        stored.send_if_modified(|known| {
            let differs = *known != listed;
            if differs {
                known.clone_from(&listed);
            }
            differs
        });
    }
}

/// The `GpuNode` as this process knows it: what was seen, or what was written since.
#[derive(Debug, Default, PartialEq)]
struct Published {
    uid: Option<String>,
    version: String,
    status: Option<GpuNodeStatus>,
}

impl Published {
    /// Takes in what the API server shows, unless a write of ours is newer.
    fn observe(&mut self, stored: &Stored) {
        match stored {
            Stored::Unknown => {}
            Stored::Absent => *self = Self::default(),
            Stored::Present(object) => {
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                if object.metadata.uid != self.uid || is_newer(&version, &self.version) {
                    *self = Self { uid: object.metadata.uid.clone(), version, status: object.status.clone() };
                }
            }
        }
    }
}

/// Whether one resourceVersion of an object is newer than another (KEP-5504 makes them comparable as numbers).
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
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
            let standing = self.standing.borrow_and_update().clone();
            // A namesake whose creation was refused is taken for ours as soon as it is seen.
            if published.uid.is_none() || self.stored.has_changed().unwrap_or(false) {
                published.observe(&self.stored.borrow_and_update());
            }
            let mut retry_at = None;
            for answer in [
                self.gpu_node((&inventory, &standing), seen.as_ref(), &mut published).await,
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
                Ok(()) = self.standing.changed() => {}
                Ok(()) = self.stored.changed() => published.observe(&self.stored.borrow()),
                () = until(retry_at) => {}
            }
        }
    }

    /// Creates the object if it is not there, and patches its status if that differs. It belongs to the Node and goes
    /// with it.
    async fn gpu_node(
        &self,
        (inventory, standing): (&Inventory, &Standing),
        seen: Option<&SeenNode>,
        published: &mut Published,
    ) -> Result<(), WriteError> {
        let Some(seen) = seen else { return Ok(()) };
        let mut wanted = gpu_node::status(inventory);
        let others = published.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = gpu_node::ready(inventory, standing);
        let merged = conditions::merge(others, &[ready], self.ctx.clock.now());
        wanted.conditions = merged.unwrap_or_else(|| others.to_vec());
        if *self.stored.borrow() == Stored::Unknown || published.status.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let api: Api<GpuNode> = Api::all(self.ctx.clients.write.clone());
        let uid = match &published.uid {
            Some(uid) => uid.clone(),
            None => {
                // The two watches are not ordered: the Node may have gone, and its `GpuNode` with it, before this one tells.
                if !self.still_there(seen).await? {
                    return Ok(());
                }
                let written = self.create(&api, seen).await?;
                published.uid = Some(written.uid.clone());
                published.version = written.resource_version;
                written.uid
            }
        };
        // The list of conditions is sent whole, so nobody may have written to it since.
        let target = Target::new(self.node.as_str(), uid).at(published.version.as_str());
        let body = json!({ "status": replacing(&wanted) });
        match timed(patch::merge::<_, Written>(&api, &target, body, Subresource::Status)).await {
            Ok(written) => {
                published.version = written.resource_version;
                published.status = Some(wanted);
                Ok(())
            }
            Err(error) => {
                // Somebody deleted it, or put another in its place.
                if matches!(error, WriteError::Gone | WriteError::Conflict(_)) {
                    *published = Published::default();
                }
                Err(error)
            }
        }
    }

    /// Whether the Node that was last seen exists now. If not, its watch will tell, and tell of the next one.
    async fn still_there(&self, seen: &SeenNode) -> Result<bool, WriteError> {
        let api: Api<Node> = Api::all(self.ctx.clients.write.clone());
        let read = async { api.get_opt(&self.node).await.map_err(WriteError::from) };
        let found = timed(read).await?;
        Ok(found.and_then(|node| node.metadata.uid).is_some_and(|uid| uid == seen.uid))
    }

    async fn create(&self, api: &Api<GpuNode>, seen: &SeenNode) -> Result<Written, WriteError> {
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
        timed(patch::create(api, &object)).await
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
    events: Events,
    mut changes: mpsc::Receiver<HealthChange>,
) {
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
        None => {
            (Severity::Normal, reasons::gpu::HEALTHY, format!("{gpu} is healthy again and may be given out"))
        }
        Some(ailment) => {
            let xid = ailment.xid.map(|code| match health::xid(code) {
                Some(known) => format!(", XID {code}: {}; {}", known.meaning, known.action.advice()),
                None => format!(", XID {code}"),
            });
            let why = format!("{}{}", ailment.reason.as_str(), xid.unwrap_or_default());
            (Severity::Warning, reasons::gpu::UNHEALTHY, format!("{gpu} is not given out: {why}"))
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
    for field in ["driverVersion", "cudaVersion", "devices"] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(uid: &str, version: &str, driver: &str) -> Stored {
        let mut object = GpuNode {
            status: Some(GpuNodeStatus {
                driver_version: Some(driver.to_owned()),
                ..GpuNodeStatus::default()
            }),
            ..GpuNode::default()
        };
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Stored::Present(Box::new(object))
    }

    #[test]
    fn what_is_seen_counts_unless_a_write_is_newer() {
        let mut published = Published::default();
        published.observe(&stored("u", "9", "a"));
        let written = Published { version: "12".to_owned(), ..published };
        let mut published = Published { status: None, uid: written.uid, version: written.version };
        published.observe(&stored("u", "10", "b"));
        assert_eq!(published.status, None, "older than the write");
        published.observe(&stored("u", "13", "c"));
        let driver = |published: &Published| published.status.clone().unwrap().driver_version.unwrap();
        assert_eq!(driver(&published), "c", "somebody else wrote later");
        published.observe(&stored("v", "11", "d"));
        assert_eq!(
            (published.uid.as_deref(), driver(&published).as_str()),
            (Some("v"), "d"),
            "another object"
        );
        published.observe(&Stored::Unknown);
        assert_eq!(published.uid.as_deref(), Some("v"));
        published.observe(&Stored::Absent);
        assert_eq!(published, Published::default());
    }
}
