//! An autoscaler: whoever asks it for nodes gets them, sooner or later, or not; and some have to give them back.

use std::hash::{DefaultHasher, Hash, Hasher};

use cluster_sim::{GroupResource, Store};
use serde_json::{Value, json};

use super::checks::stamp;
use super::world::{holds, items, text, uid};
use crate::objects;

/// The check of queues whose nodes have to be asked for.
pub(super) const CHECK: &str = "nodes";

/// The controller that such checks name: admission-controller itself.
pub(super) const CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";

/// The longest that it looks for nodes, in milliseconds.
const LONGEST_SEARCH: u64 = 45_000;

/// So long after the search what is given is taken back, if it is, in milliseconds.
const TAKEN_BACK_AFTER: i64 = 60_000;

/// The definition of what it is asked by, and the settings by which it is asked.
pub(super) fn setup() -> [Value; 2] {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "provisioningrequests.autoscaling.x-k8s.io" },
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "ProvisioningRequest", "listKind": "ProvisioningRequestList",
                "plural": "provisioningrequests", "singular": "provisioningrequest",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": anything, "status": anything },
                } },
            }],
        },
    });
    let settings = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig", "metadata": { "name": CHECK },
        "spec": {
            "provisioningClassName": "fuzz.example.com",
            "retryStrategy": { "backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 30 },
        },
    });
    [definition, settings]
}

/// What the check says.
pub(super) fn check_spec() -> Value {
    json!({
        "controllerName": CONTROLLER,
        "parameters": { "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CHECK },
    })
}

/// Looks at everything that was asked for. Once all is calm everybody gets it, and keeps it.
pub(super) async fn round(client: &kube::Client, store: &Store, now: i64, calm: bool) {
    let requests = GroupResource::new("autoscaling.x-k8s.io", "provisioningrequests");
    for request in store.list(&requests, None) {
        let request = request.value();
        let Some(kind) = turn(request, now, calm) else { continue };
        let mut conditions: Vec<Value> = items(request, "/status/conditions").cloned().collect();
        conditions.push(json!({
            "type": kind, "status": "True", "reason": "Fuzzed", "message": "the fuzzer has its reasons",
            "lastTransitionTime": stamp(now),
        }));
        // If it is refused there will be another round.
        let _ =
            objects::patch_status(client, request, &json!({ "status": { "conditions": conditions } })).await;
    }
}

/// Which condition of a request becomes true now: always the same about the same.
fn turn(request: &Value, now: i64, calm: bool) -> Option<&'static str> {
    let mut hasher = DefaultHasher::new();
    uid(request).hash(&mut hasher);
    let drawn = hasher.finish();
    let made = text(request, "/metadata/creationTimestamp").parse::<jiff::Timestamp>();
    let found =
        made.map_or(0, jiff::Timestamp::as_millisecond).saturating_add_unsigned(drawn % LONGEST_SEARCH);
    let fate = if calm { 19 } else { drawn / LONGEST_SEARCH % 20 };
    let is = |kind| holds(request, kind);
    match fate {
        _ if found > now || is("Failed") || is("CapacityRevoked") || is("BookingExpired") => None,
        0..=3 if !is("Provisioned") => Some("Failed"),
        _ if !is("Provisioned") => Some("Provisioned"),
        4 if found + TAKEN_BACK_AFTER <= now => Some("CapacityRevoked"),
        5 | 6 if found + TAKEN_BACK_AFTER <= now => Some("BookingExpired"),
        _ => None,
    }
}
