//! Termination of namespaces: their content goes first, then the finalizer, then they.

use serde_json::Value;

use crate::Part;
use crate::cluster::Cluster;
use crate::delete::DeleteOptions;
use crate::object::{ObjectKey, entry};
use crate::resources::GroupResource;
use crate::store::Verb;
use crate::write::{Caller, Subject};

const WRITER: &str = "namespace-controller";

pub(super) async fn sweep(cluster: &Cluster) {
    let id = GroupResource::core("namespaces");
    let terminating = cluster.state().list(&id, None).into_iter().filter(|n| n.is_terminating());
    for namespace in terminating.collect::<Vec<_>>() {
        let name = namespace.key().name.clone();
        if empty(cluster, &name).await {
            finalize(cluster, &name).await;
        }
    }
}

/// Deletes what the namespace holds; true when nothing is left.
async fn empty(cluster: &Cluster, namespace: &str) -> bool {
    let ids = cluster.state().collection_ids();
    let mut left = false;
    for id in ids {
        let objects = cluster.state().list(&id, Some(namespace));
        if objects.is_empty() || namespace.is_empty() {
            continue;
        }
        let Ok(resource) = cluster.resource(&id) else { continue };
        for object in objects {
            let caller = Caller::internal(WRITER, Verb::Delete);
            if !object.is_terminating() {
                // Refusals leave the object, which keeps the namespace.
                let _ = crate::delete::delete(
                    cluster,
                    &caller,
                    &resource,
                    object.key(),
                    &DeleteOptions::default(),
                )
                .await;
            }
            left |= cluster.state().get(&id, object.key()).is_some();
        }
    }
    !left
}

async fn finalize(cluster: &Cluster, name: &str) {
    let Ok(resource) = cluster.resource(&GroupResource::core("namespaces")) else { return };
    let version = resource.storage_version();
    let subject =
        Subject { resource, version, key: ObjectKey::new("", name), part: Part::Finalize, whole: false };
    let mut apply = |current: &Value| {
        let mut value = current.clone();
        if let Some(list) = entry(&mut value, "spec").get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|f| f != "kubernetes");
        }
        Ok(value)
    };
    // A namespace that is gone, or that someone else still holds, needs nothing from here.
    let _ =
        crate::write::update(cluster, &Caller::internal(WRITER, Verb::Update), &subject, &mut apply).await;
}
