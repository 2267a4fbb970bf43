use base64_of_patch::encode;
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
        let request = review["request"].take();
        let text =
            |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = text("/uid");
        if uid.is_empty() {
            return Err("the AdmissionReview has no request.uid".to_owned());
        }
        Ok(Self {
            uid,
            operation: text("/operation"),
            group: text("/kind/group"),
            kind: text("/kind/kind"),
            namespace: text("/namespace"),
            object: request["object"].clone(),
            old: request["oldObject"].clone(),
        })
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// As it is.
    Allow,
    /// As this object.
    Change(Value),
    /// Not at all, for these reasons.
    Deny(Vec<String>),
}

impl Verdict {
    /// Denied where there is a reason to.
    pub(super) fn of(reasons: Vec<String>) -> Self {
        if reasons.is_empty() { Self::Allow } else { Self::Deny(reasons) }
    }

    /// As the API server wants it.
    pub(super) fn review(self, request: &Request) -> Vec<u8> {
        let mut response = json!({ "uid": request.uid, "allowed": true });
        match self {
            Self::Allow => {}
            Self::Change(changed) => {
                let patch = json_patch::diff(&request.object, &changed);
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(encode(json!(patch).to_string().as_bytes()));
            }
            Self::Deny(reasons) => {
                response["allowed"] = json!(false);
                response["status"] =
                    json!({ "code": 403, "reason": "Forbidden", "message": reasons.join("; ") });
            }
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
            .to_string()
            .into_bytes()
    }
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
