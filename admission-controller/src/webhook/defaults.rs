use crds::names::kueue;
use serde_json::{Value, json};

use super::review::{Request, Verdict};

/// ClusterQueues and ResourceFlavors get the finalizer that keeps them while they are in use (Kueue's mutating webhooks).
///
/// Nobody but this program would take it off again, so it is added only where this program does.
pub(super) fn mutate(request: &Request) -> Verdict {
    let kept = request.operation == "CREATE"
        && request.group == kueue::GROUP
        && KEPT.contains(&request.kind.as_str());
    let mut changed = request.object.clone();
    let Some(metadata) = changed.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| kept) else {
        return Verdict::Allow;
    };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    match finalizers {
        Value::Array(list) if !list.iter().any(|one| one == kueue::FINALIZER_RESOURCE_IN_USE) => {
            list.push(json!(kueue::FINALIZER_RESOURCE_IN_USE));
            Verdict::Change(changed)
        }
        _ => Verdict::Allow,
    }
}

/// Kinds whose finalizer the controller removes.
const KEPT: &[&str] = &[];
