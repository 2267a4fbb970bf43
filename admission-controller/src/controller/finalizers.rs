//! What is in use is not deleted: the finalizer of ClusterQueues and ResourceFlavors (Kueue's `resource-in-use`).
//!
//! A ClusterQueue that is deleted admits nothing more and goes on counting until its last workload has given its quota
//! back: forgotten at once, its cohort would hand out the same quota again. A ResourceFlavor stays while a ClusterQueue
//! names it.

use crds::names::kueue::FINALIZER_RESOURCE_IN_USE;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::flavor::ResourceFlavor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::patch::{self, Subresource};
use kit::writes::Priority;
use kube::Api;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op, target, text};
use super::world::Unit;

/// The merge patch that puts the finalizer onto an object, or takes it off one that is deleted and no longer used.
fn change(metadata: &ObjectMeta, in_use: bool) -> Option<Value> {
    let present = metadata.finalizers.iter().flatten().any(|one| one == FINALIZER_RESOURCE_IN_USE);
    let wanted = metadata.deletion_timestamp.is_none() || in_use;
    // What is being deleted takes no new finalizers.
    if present == wanted || (!present && metadata.deletion_timestamp.is_some()) {
        return None;
    }
    let others = metadata.finalizers.iter().flatten().filter(|one| *one != FINALIZER_RESOURCE_IN_USE);
    let finalizers: Vec<&str> =
        others.map(String::as_str).chain(wanted.then_some(FINALIZER_RESOURCE_IN_USE)).collect();
    Some(json!({ "metadata": { "finalizers": finalizers } }))
}

impl Controller {
    /// Writes the finalizer of a ClusterQueue if that is to change. Returns whether it does.
    pub(super) fn protect_cluster_queue(&mut self, unit: &Unit, view: &ClusterQueue, in_use: bool) -> bool {
        let Some(body) = change(&view.metadata, in_use) else { return false };
        let (api, target) =
            (Api::<ClusterQueue>::all(self.ctx.clients.write.clone()), target(&view.metadata));
        let op = finalizer_op(&view.metadata);
        self.submit(unit, Priority::Normal, op, move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                let view = patch::merge(&api, &target, body, Subresource::Main).await?;
                Ok(Answer::ClusterQueue(Box::new(view)))
            }
        });
        true
    }

    /// Writes the finalizer of a ResourceFlavor if that is to change.
    pub(super) fn pump_flavor(&mut self, unit: &Unit, name: &str) {
        let Some(view) = self.world.flavors_by_name.get(name) else { return };
        let Some(body) = change(&view.metadata, self.world.uses_flavor(name)) else { return };
        let (api, target) =
            (Api::<ResourceFlavor>::all(self.ctx.clients.write.clone()), target(&view.metadata));
        let op = finalizer_op(&view.metadata);
        self.submit(unit, Priority::Normal, op, move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                let view = patch::merge(&api, &target, body, Subresource::Main).await?;
                Ok(Answer::Flavor(Box::new(view)))
            }
        });
    }
}

fn finalizer_op(metadata: &ObjectMeta) -> Op {
    Op {
        decision: None,
        reads: false,
        about: About::Queue,
        versions: text(metadata.resource_version.as_ref()),
        before: Before::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn the_finalizer_comes_at_once_and_goes_when_nothing_is_used() {
        const OURS: &str = FINALIZER_RESOURCE_IN_USE;
        const KEEP: &str = "example.com/keep";
        let cases = [
            ("new", vec![], false, false, Some(vec![OURS])),
            ("beside another's", vec![KEEP], false, true, Some(vec![KEEP, OURS])),
            ("in place", vec![OURS], false, false, None),
            ("deleted while used", vec![OURS], true, true, None),
            ("deleted, unused", vec![OURS, KEEP], true, false, Some(vec![KEEP])),
            ("deleted before we saw it", vec![KEEP], true, true, None),
        ];
        for (name, finalizers, deleted, in_use, expected) in cases {
            let metadata = ObjectMeta {
                finalizers: Some(finalizers.into_iter().map(str::to_owned).collect()),
                deletion_timestamp: deleted.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            };
            let expected = expected.map(|list| json!({ "metadata": { "finalizers": list } }));
            assert_eq!(change(&metadata, in_use), expected, "{name}");
        }
    }
}
