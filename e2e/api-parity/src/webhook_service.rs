use base64::Engine as _;
use serde_json::{Value, json};

/// What the webhooks of this suite answer to an `AdmissionReview` posted to a path, as a pure function for the host to serve:
/// `/label` adds the label `parity.trireme.dev/mutated`, `/deny` refuses with code 422, `/deny-deletes` refuses with no code
/// of its own, `/echo` puts operation, user and dry-run of the request into annotations, `/warn` allows with a warning,
/// `/broken` answers something that is no review.
pub fn answer_review(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    match path {
        "/label" => {
            let patch = if request["object"]["metadata"]["labels"].is_null() {
                json!([{"op": "add", "path": "/metadata/labels", "value": {"parity.trireme.dev/mutated": "true"}}])
            } else {
                json!([{"op": "add", "path": "/metadata/labels/parity.trireme.dev~1mutated", "value": "true"}])
            };
            set_patch(&mut response, &patch);
        }
        "/echo" => {
            let annotations = json!({
                "operation": request["operation"],
                "resource": request["resource"]["resource"],
                "kind": request["kind"]["kind"],
                "dry-run": request["dryRun"].as_bool().unwrap_or(false).to_string(),
                "had-old": (!request["oldObject"].is_null()).to_string(),
                "subresource": request["subResource"].as_str().unwrap_or("none"),
                "user-known": (request["userInfo"]["username"].as_str().is_some_and(|name| !name.is_empty())).to_string(),
            });
            let mut merged =
                request["object"]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            merged.extend(annotations.as_object().cloned().unwrap_or_default());
            set_patch(
                &mut response,
                &json!([{"op": "add", "path": "/metadata/annotations", "value": merged}]),
            );
        }
        "/deny" => {
            response["allowed"] = json!(false);
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": "not in this house"});
        }
        "/deny-deletes" => {
            response["allowed"] = json!(request["operation"] != "DELETE");
        }
        "/warn" => response["warnings"] = json!(["mind the gap"]),
        "/broken" => return json!({"kind": "Nonsense"}),
        _ => {}
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn set_patch(response: &mut Value, patch: &Value) {
    response["patchType"] = json!("JSONPatch");
    response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(patch.to_string()));
}
