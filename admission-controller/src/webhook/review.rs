//! AdmissionReviews, read and answered.

use std::collections::HashMap;

use base64_of_patch::encode;
use crds::validation::FieldError;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the API server asks about an object: that is a tree, which can be changed, or the text of one that is only judged.
#[derive(Clone, Debug)]
pub(super) struct Request<Object = Value> {
    pub(super) uid: String,
    /// `CREATE`, `UPDATE`, …
    pub(super) operation: String,
    /// The object's group.
    pub(super) group: String,
    /// The object's kind.
    pub(super) kind: String,
    /// The object's namespace; empty for cluster-scoped kinds.
    pub(super) namespace: String,
    /// The object as it would be stored.
    pub(super) object: Object,
    /// The object as it is stored; null on creation.
    pub(super) old: Object,
}

impl<Object: DeserializeOwned + Default> Request<Object> {
    /// Reads an AdmissionReview; what is none is the sender's mistake.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        const NOT_ONE: &str = "the body is no AdmissionReview of admission.k8s.io/v1";
        let no_json = |error: serde_json::Error| format!("the body is no JSON: {error}");
        let review: Fields<'_> = serde_json::from_slice(body)
            .map_err(|error| if error.is_data() { NOT_ONE.to_owned() } else { no_json(error) })?;
        if text(&review, "kind") != "AdmissionReview" || text(&review, "apiVersion") != "admission.k8s.io/v1"
        {
            return Err(NOT_ONE.to_owned());
        }
        let request = fields(&review, "request");
        let uid = text(&request, "uid");
        if uid.is_empty() {
            return Err("the AdmissionReview has no request.uid".to_owned());
        }
        let kind = fields(&request, "kind");
        let object =
            |field| request.get(field).map_or(Ok(Object::default()), |raw| serde_json::from_str(raw.get()));
        Ok(Self {
            uid,
            operation: text(&request, "operation"),
            group: text(&kind, "group"),
            kind: text(&kind, "kind"),
            namespace: text(&request, "namespace"),
            object: object("object").map_err(no_json)?,
            old: object("oldObject").map_err(no_json)?,
        })
    }
}

/// An object whose fields nobody has read yet.
type Fields<'a> = HashMap<String, &'a RawValue>;

fn fields<'a>(of: &Fields<'a>, name: &str) -> Fields<'a> {
    of.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn text(of: &Fields<'_>, name: &str) -> String {
    of.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
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

    /// Changed where something is.
    pub(super) fn becoming(before: &Value, after: Value) -> Self {
        if after == *before { Self::Allow } else { Self::Change(after) }
    }

    /// As the API server wants it. `object` is what it asked about: changes are told as a patch of that.
    pub(super) fn review(self, uid: &str, object: &Value) -> Vec<u8> {
        let mut response = json!({ "uid": uid, "allowed": true });
        match self {
            Self::Allow => {}
            Self::Warn(words) => response["warnings"] = json!([words]),
            Self::Change(changed) => {
                let patch = json_patch::diff(object, &changed);
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
