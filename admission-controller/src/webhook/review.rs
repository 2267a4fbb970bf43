use base64_of_patch::encode;
use crds::validation::FieldError;
use serde_json::{Value, json};

/// What the API server asks.
#[derive(Clone, Debug)]
pub(super) struct Request {
    uid: String,
    /// `CREATE`, `UPDATE`, …
    pub(super) operation: String,
    /// The object's group.
    pub(super) group: String,
    /// The object's kind.
    pub(super) kind: String,
    /// The object's namespace; empty for cluster-scoped kinds.
    pub(super) namespace: String,
    /// The object as it would be stored.
    pub(super) object: Value,
    /// The object as it is stored; null on creation.
    pub(super) old: Value,
}

impl Request {
    /// Reads an AdmissionReview; what is none is the sender's mistake.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut review: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
        if review["kind"] != "AdmissionReview" || review["apiVersion"] != "admission.k8s.io/v1" {
            return Err("the body is no AdmissionReview of admission.k8s.io/v1".to_owned());
        }
        let mut request = review["request"].take();
        let text =
            |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = text("/uid");
        if uid.is_empty() {
            return Err("the AdmissionReview has no request.uid".to_owned());
        }
        let [operation, group, kind, namespace] =
            ["/operation", "/kind/group", "/kind/kind", "/namespace"].map(text);
        let [object, old] = ["object", "oldObject"].map(|field| request[field].take());
        Ok(Self { uid, operation, group, kind, namespace, object, old })
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// As it is.
    Allow,
    /// As it is, but its owner should know this.
    Warn(String),
    /// As this object.
    Change(Value),
    /// Not at all, for what is wrong with it.
    Deny(Vec<FieldError>),
    /// Not at all: it is not what it says it is.
    Unreadable(String),
}

impl Verdict {
    /// Denied where something is wrong.
    pub(super) fn of(errors: Vec<FieldError>) -> Self {
        if errors.is_empty() { Self::Allow } else { Self::Deny(errors) }
    }

    /// As the API server wants it.
    pub(super) fn review(self, request: &Request) -> Vec<u8> {
        let mut response = json!({ "uid": request.uid, "allowed": true });
        match self {
            Self::Allow => {}
            Self::Warn(words) => response["warnings"] = json!([words]),
            Self::Change(changed) => {
                let patch = json_patch::diff(&request.object, &changed);
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(encode(json!(patch).to_string().as_bytes()));
            }
            Self::Deny(errors) => {
                response["allowed"] = json!(false);
                response["status"] = denial(&errors);
            }
            Self::Unreadable(words) => {
                response["allowed"] = json!(false);
                response["status"] = json!({ "code": 400, "reason": "BadRequest", "message": words });
            }
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
            .to_string()
            .into_bytes()
    }
}

/// The message as Kueue's webhooks put it together, and each error for itself for those who look for a field.
fn denial(errors: &[FieldError]) -> Value {
    let causes: Vec<Value> = errors
        .iter()
        .map(|error| json!({ "reason": error.kind.token(), "field": error.field, "message": error.body() }))
        .collect();
    let message = match errors {
        [error] => error.to_string(),
        errors => format!("[{}]", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    json!({ "code": 403, "reason": "Forbidden", "message": message, "details": { "causes": causes } })
}

mod base64_of_patch {
    use k8s_openapi::ByteString;

    /// Base64, as the API writes bytes.
    pub(super) fn encode(bytes: &[u8]) -> String {
        match serde_json::to_value(ByteString(bytes.to_vec())) {
            Ok(serde_json::Value::String(text)) => text,
            _ => String::new(),
        }
    }
}
