//! What is in use is not deleted: the finalizer of ClusterQueues, ResourceFlavors and Topologies (Kueue's `resource-in-use`).
//!
//! A ClusterQueue that is deleted admits nothing more and goes on counting until its last workload has given its quota
//! back: forgotten at once, its cohort would hand out the same quota again. A ResourceFlavor stays while a ClusterQueue
//! names it, and a Topology while a ResourceFlavor does.

use crds::names::kueue::FINALIZER_RESOURCE_IN_USE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The merge patch that puts the finalizer onto an object, or takes it off one that is deleted and no longer used.
pub(super) fn change(metadata: &ObjectMeta, in_use: bool) -> Option<Value> {
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
