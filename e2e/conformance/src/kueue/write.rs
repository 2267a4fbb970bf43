//! What becomes of an object when a patch is written: in place, or through the client the programs write with.

use std::sync::{Arc, Mutex, PoisonError};

use crds::view::workload::Workload;
use http_body_util::BodyExt;
use kit::patch::{Subresource, Target, WriteError};
use kube::Api;
use kube::client::Body;
use serde_json::{Value, json};

/// The object after this merge patch; as it was without one.
pub(super) fn merged(object: &Value, patch: Option<&Value>) -> Value {
    let mut object = object.clone();
    if let Some(patch) = patch {
        json_patch::merge(&mut object, patch);
    }
    object
}

/// Type, status, reason and generation of an object's conditions, in the order of types.
pub(super) fn conditions(object: &Value) -> Vec<Vec<Value>> {
    fields(object, &["type", "status", "reason", "observedGeneration"])
}

/// The same with their times.
pub(super) fn conditions_with_times(object: &Value) -> Vec<Vec<Value>> {
    fields(object, &["type", "status", "reason", "observedGeneration", "lastTransitionTime"])
}

fn fields(object: &Value, names: &[&str]) -> Vec<Vec<Value>> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let one = |condition: &Value| names.iter().map(|name| condition[*name].clone()).collect();
    let mut all: Vec<Vec<Value>> = conditions.into_iter().flatten().map(one).collect();
    all.sort_by_key(|fields| fields[0].as_str().map(str::to_owned));
    all
}

/// Writes the status of a Workload to a server that refuses it with these words, or else takes it: the server's words as
/// they came back, and the object as it is then.
pub(super) fn through_client(
    object: &Value,
    body: &Value,
    refusal: Option<&str>,
) -> Result<(Option<String>, Value), String> {
    let stored = Arc::new(Mutex::new(object.clone()));
    let refusal = refusal.map(str::to_owned);
    let store = Arc::clone(&stored);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (store, refusal) = (Arc::clone(&store), refusal.clone());
        async move {
            let sent = request.into_body().collect().await?.to_bytes();
            let (code, answer) = match refusal {
                Some(message) => (
                    422,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "Invalid", "code": 422, "message": message,
                    }),
                ),
                None => {
                    let mut object = store.lock().unwrap_or_else(PoisonError::into_inner);
                    json_patch::merge(&mut object, &serde_json::from_slice(&sent)?);
                    (200, object.clone())
                }
            };
            let answer =
                http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let written = runtime.block_on(async {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let api: Api<Workload> = Api::namespaced(kube::Client::new(service, "default"), &text("namespace"));
        let target = Target::new(text("name"), text("uid"));
        kit::patch::merge::<_, Workload>(&api, &target, body.clone(), Subresource::Status).await
    });
    let refused = match written {
        Ok(_) => None,
        Err(WriteError::Refused(status)) => Some(status.message.clone()),
        Err(error) => return Err(error.to_string()),
    };
    let stored = stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((refused, stored))
}
