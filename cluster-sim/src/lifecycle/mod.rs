//! What happens to objects over time: stamping, generations, garbage collection, namespace termination, expiry.

mod budgets;
mod expiry;
mod gc;
pub(crate) mod metadata;
mod namespaces;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::object::{Object, items};
use crate::resources::{GroupResource, Resource};
use crate::store::{Expected, Origin, Verb};

/// The server itself, as the log names it.
const WRITER: &str = "apiserver";

/// Namespaces that every cluster begins with.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Priority classes that every cluster has: name and value.
const PRIORITY_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The time as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

/// Writes the initial objects, if the cluster is a new one, and starts the server's own controllers.
pub(crate) fn start(cluster: &Cluster, new: bool) {
    if new {
        seed_all(cluster);
    }
    cluster.0.tasks.spawn(expiry::run(cluster.clone()));
    let housekeeper = cluster.clone();
    cluster.0.tasks.spawn(async move {
        loop {
            housekeeper.0.housekeeping.notified().await;
            gc::sweep(&housekeeper).await;
            namespaces::sweep(&housekeeper).await;
            budgets::sweep(&housekeeper).await;
        }
    });
}

fn seed_all(cluster: &Cluster) {
    for name in NAMESPACES {
        seed(
            cluster,
            &GroupResource::core("namespaces"),
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
                "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
            }),
        );
        seed(cluster, &GroupResource::core("serviceaccounts"), default_account(name));
    }
    for (name, value) in PRIORITY_CLASSES {
        seed(
            cluster,
            &GroupResource::new("scheduling.k8s.io", "priorityclasses"),
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
                "value": value, "preemptionPolicy": "PreemptLowerPriority",
            }),
        );
    }
}

fn default_account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "default", "namespace": namespace },
    })
}

/// Stores an object that the server itself makes, past admission and validation.
fn seed(cluster: &Cluster, resource: &GroupResource, mut value: Value) {
    metadata::identify(cluster, &mut value);
    let origin = Origin {
        writer: WRITER.into(),
        verb: Verb::Create,
        subresource: "".into(),
        precise: false,
        at: cluster.0.clock.now(),
    };
    // The only possible refusal is that the object exists, which is what is wanted.
    let _ = cluster.state().put(origin, resource, value, Expected::Absent);
}

/// What follows a creation.
pub(crate) fn after_create(cluster: &Cluster, resource: &Arc<Resource>, created: &Object) {
    if resource.id.is("", "namespaces") {
        seed(cluster, &GroupResource::core("serviceaccounts"), default_account(&created.key().name));
    }
    if resource.id.is("apiextensions.k8s.io", "customresourcedefinitions") {
        crate::crd::establish(cluster, created.key());
    }
    if budgets::concerns(cluster, &resource.id) {
        cluster.0.housekeeping.notify_one();
    }
    if !items(created.value(), &["metadata", "ownerReferences"]).is_empty() {
        // The owner may be gone already.
        gc::check_owners(cluster, created);
    }
}

/// What follows an update.
pub(crate) fn after_update(cluster: &Cluster, resource: &Arc<Resource>, old: &Object, new: &Object) {
    if resource.id.is("apiextensions.k8s.io", "customresourcedefinitions") {
        crate::crd::establish(cluster, new.key());
    }
    if old.is_terminating() || new.is_terminating() || budgets::concerns(cluster, &resource.id) {
        cluster.0.housekeeping.notify_one();
    }
}
