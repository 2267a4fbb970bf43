//! Somebody else's mutating webhook, before ours or after them: it edits what users submit, notes on every write of a job or a
//! Workload that it was there, and marks pods and their templates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use fastrand::Rng;
use k8s_openapi::ByteString;
use kit::ServiceTable;
use serde_json::{Value, json};

use super::scenario::{Act, CALM_AFTER, Chapter, instant};
use super::world::text;

/// Told apart from what else is drawn from the seed, so that this can change without changing that.
const SALT: u64 = 0x696e_6a65;

/// Its namespace, and its name there.
const SERVICE: (&str, &str) = ("default", "injector");

/// What it marks.
const MARK: &str = "injector.fuzz.trireme.dev";

/// Where jobs have the templates of their pods.
const TEMPLATES: [&str; 4] = [
    "/spec/template",
    "/spec/pytorchReplicaSpecs/Master/template",
    "/spec/pytorchReplicaSpecs/Worker/template",
    "/spec/replicatedJobs/0/template/spec/template",
];

/// In one episode of four it is installed at some time, and in half of these taken away again.
pub(super) fn draw(seed: u64) -> Chapter {
    let rng = &mut Rng::with_seed(seed ^ SALT);
    let mut chapter = Chapter::default();
    if rng.u8(..4) == 0 {
        let at = instant(rng, CALM_AFTER.mul_f64(0.5));
        let object = configuration(rng);
        if rng.bool() {
            let after = at + Duration::from_secs(rng.u64(30..=300));
            chapter.story.push((after, Act::Delete(object.clone())));
        }
        chapter.story.push((at, Act::Apply(object)));
    }
    chapter
}

/// It is asked in the order of names: before ours or after.
fn configuration(rng: &mut Rng) -> Value {
    let rule = |groups: &[&str], resources: &[&str], operations: &[&str]| {
        json!({
            "apiGroups": groups, "apiVersions": ["*"], "resources": resources, "operations": operations,
        })
    };
    let name = ["a-injector", "z-injector"][rng.usize(..2)];
    let again = ["Never", "IfNeeded"][rng.usize(..2)];
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [{
            "name": "injector.fuzz.trireme.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "reinvocationPolicy": again,
            "clientConfig": { "service": { "namespace": SERVICE.0, "name": SERVICE.1 } },
            "rules": [
                rule(&["batch", "kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io"],
                    &["jobs", "pytorchjobs", "jobsets", "workloads"], &["CREATE", "UPDATE"]),
                rule(&[""], &["pods"], &["CREATE"]),
            ],
        }],
    })
}

/// Answers whoever asks.
pub(super) fn serve(services: &ServiceTable) {
    let asked = Arc::new(AtomicU64::new(0));
    let answer = move |Json(review): Json<Value>| {
        let count = asked.fetch_add(1, Ordering::Relaxed);
        async move { Json(reviewed(&review["request"], count)) }
    };
    services.register(SERVICE.0, SERVICE.1, "only", Router::new().route("/", post(answer)));
}

fn reviewed(request: &Value, count: u64) -> Value {
    let patch = Value::from(edits(&request["object"], request["oldObject"].is_null(), count)).to_string();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": ByteString(patch.into_bytes()),
        },
    })
}

/// A JSON patch (RFC 6902) of what it changes: the templates of what users submit, since what has started may not change its own, and
/// what is made of it has been changed before.
fn edits(object: &Value, is_new: bool, count: u64) -> Vec<Value> {
    let mut edits = marked(object, "", &count.to_string());
    let is_submitted = is_new && object.pointer("/metadata/ownerReferences").is_none();
    for template in TEMPLATES.into_iter().filter(|path| is_submitted && object.pointer(path).is_some()) {
        edits.extend(marked(object, template, "template"));
        // It knows better what the program needs.
        let asked = format!("{template}/spec/containers/0/resources/requests/cpu");
        if let Ok(cpu) = text(object, &asked).parse::<i64>() {
            edits.push(json!({ "op": "replace", "path": asked, "value": (cpu + 1).to_string() }));
        }
    }
    edits
}

fn marked(object: &Value, above: &str, mark: &str) -> Vec<Value> {
    let add = |path: String, value: Value| json!({ "op": "add", "path": path, "value": value });
    let missing = ["metadata", "metadata/annotations"].map(|part| format!("{above}/{part}"));
    let missing = missing.into_iter().filter(|path| object.pointer(path).is_none());
    let mut edits: Vec<Value> = missing.map(|path| add(path, json!({}))).collect();
    edits.push(add(format!("{above}/metadata/annotations/{MARK}"), json!(mark)));
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_submit_is_edited_and_what_is_made_of_it_is_marked() {
        let mut job = json!({ "metadata": {}, "spec": { "template": { "spec": { "containers": [
            { "resources": { "requests": { "cpu": "3" } } },
        ] } } } });
        let paths = |job: &Value, is_new| -> Vec<String> {
            edits(job, is_new, 7).iter().map(|edit| text(edit, "/path").to_owned()).collect()
        };
        assert!(
            paths(&job, true).contains(&"/spec/template/spec/containers/0/resources/requests/cpu".to_owned())
        );
        let marks = ["/metadata/annotations", "/metadata/annotations/injector.fuzz.trireme.dev"];
        assert_eq!(paths(&job, false), marks);
        job["metadata"]["ownerReferences"] = json!([{}]);
        assert_eq!(paths(&job, true), marks);
    }
}
