//! Deleting a pod from outside of its own controller, with the reason on it first (`DisruptionTarget`, KEP-3329).

use serde_json::Value;

use super::conditions;
use super::control::{Millis, unchanged};
use crate::{ApiError, DeleteOptions, GroupResource, Object, Part, Store};

pub(super) fn pods() -> GroupResource {
    GroupResource::core("pods")
}

pub(super) fn nodes() -> GroupResource {
    GroupResource::core("nodes")
}

/// The node that a pod is bound to; empty for none.
pub(super) fn node_of(pod: &Object) -> &str {
    pod.value()["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The pods of a node, by namespace and name.
pub(super) fn pods_of(store: &Store, node: &str) -> Vec<std::sync::Arc<Object>> {
    store.list(&pods(), None).into_iter().filter(|pod| node_of(pod) == node).collect()
}

/// Why and how a pod is deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disruption {
    /// Reason and message of the condition.
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
    /// Nobody will stop it, so that it has failed and goes at once.
    pub(super) forced: bool,
}

impl Disruption {
    /// Says so in the pod's status and deletes it. A pod that is gone or is another one by now is none of its business.
    pub(super) async fn strike(&self, store: &Store, pod: &Object, now: Millis) -> Result<(), ApiError> {
        match self.attempt(store, pod, now).await {
            Err(error) if matches!(error.code, 404 | 409) => Ok(()),
            done => done,
        }
    }

    async fn attempt(&self, store: &Store, pod: &Object, now: Millis) -> Result<(), ApiError> {
        let (key, uid) = (pod.key(), Value::from(&**pod.uid()));
        let over = matches!(conditions::phase(pod.value()), "Succeeded" | "Failed");
        if !(self.forced && over) {
            let change = |value: &mut Value| {
                unchanged(&pods(), &uid, value)?;
                let status = &mut value["status"];
                conditions::set(status, "DisruptionTarget", true, self.reason, self.message, None, now);
                if self.forced {
                    status["phase"] = "Failed".into();
                }
                Ok(())
            };
            store.update(&pods(), &key.namespace, &key.name, Part::Status, change).await?;
        }
        let options = if self.forced { DeleteOptions::now() } else { DeleteOptions::default() };
        store.delete(&pods(), &key.namespace, &key.name, options.with_uid(pod.uid())).await
    }
}
