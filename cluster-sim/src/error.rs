use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

use crate::resources::GroupResource;

/// A refusal, as the API server words it: it becomes the `Status` object of the response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason (`NotFound`, `Conflict`, …); empty for none.
    pub reason: Cow<'static, str>,
    /// What happened, for people.
    pub message: String,
    /// `details` of the Status.
    pub details: Option<Box<Value>>,
    /// Seconds after which to try again, sent as a `Retry-After` header too.
    pub retry_after: Option<u32>,
}

/// One field that is wrong (`field.Error` of apimachinery).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub(crate) reason: &'static str,
    /// Path of the field, as in `spec.containers[0].name`.
    pub(crate) field: String,
    /// The whole sentence without the path.
    pub(crate) detail: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let detail =
            if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", field: field.into(), detail }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            detail: format!("Invalid value: {}: {}", shown(value), detail.as_ref()),
        }
    }

    /// As the API server words a value of the wrong JSON type: the type's name stands where the value would.
    pub(crate) fn type_invalid(field: impl Into<String>, found: &str, detail: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            field: field.into(),
            detail: format!("Invalid value: \"{found}\": {}", detail.as_ref()),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            detail: format!("Forbidden: {}", detail.as_ref()),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            detail: format!("Duplicate value: {}", shown(value)),
        }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            detail: format!("Unsupported value: {}: supported values: {list}", shown(value)),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            detail: format!("Too long: may not be more than {limit} bytes"),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, limit: u64) -> Self {
        Self {
            reason: "FieldValueTooMany",
            field: field.into(),
            detail: format!("Too many: {actual}: must have at most {limit} items"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        other => other.to_string(),
    }
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            retry_after: None,
        }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let mut details = json!({ "kind": &*resource.resource });
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !resource.group.is_empty() {
            details["group"] = (*resource.group).into();
        }
        self.details = Some(Box::new(details));
        self
    }

    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_with(|| Box::new(json!({})));
        let mut cause = json!({ "reason": reason, "message": message });
        if !field.is_empty() {
            cause["field"] = field.into();
        }
        match details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => details["causes"] = json!([cause]),
        }
        self
    }

    /// 404 for an object.
    pub(crate) fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// 404 for a path that nothing serves.
    pub(crate) fn no_such_path() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::new(json!({})));
        error
    }

    pub(crate) fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    pub(crate) fn conflict(resource: &GroupResource, name: &str, why: impl AsRef<str>) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {}", why.as_ref()),
        )
        .about(resource, name)
    }

    /// The conflict of optimistic concurrency: the caller's resourceVersion is not the current one.
    pub(crate) fn stale(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(resource: &GroupResource, name: &str, why: impl AsRef<str>) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {}", why.as_ref())
        } else {
            format!("{resource} \"{name}\" is forbidden: {}", why.as_ref())
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 422 with one cause per field.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let said = |e: &FieldError| {
            if e.field.is_empty() { e.detail.clone() } else { format!("{}: {}", e.field, e.detail) }
        };
        let list = match errors {
            [one] => said(one),
            many => format!("[{}]", many.iter().map(said).collect::<Vec<_>>().join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut error = Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}"));
        let mut details = json!({ "kind": kind });
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        error.details = Some(Box::new(details));
        for e in errors {
            error = error.with_cause(e.reason, &e.detail, &e.field);
        }
        error
    }

    /// 410: the resourceVersion is older than what the history still holds.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 504 with the cause by which clients know that they asked for the future.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let mut error =
            Self::new(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"));
        error.details = Some(Box::new(json!({ "retryAfterSeconds": 1 })));
        error.retry_after = Some(1);
        error.with_cause("ResourceVersionTooLarge", "Too large resource version", "")
    }

    pub(crate) fn method_not_allowed(resource: &str, verb: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{verb} is not supported on resources of kind \"{resource}\""),
        )
    }

    pub(crate) fn unsupported_media_type(content_type: &str) -> Self {
        Self::unknown_format(
            content_type,
            "application/json, application/yaml, application/vnd.kubernetes.protobuf (built-in kinds)",
        )
    }

    pub(crate) fn unsupported_patch(content_type: &str) -> Self {
        Self::unknown_format(
            content_type,
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
             application/apply-patch+yaml",
        )
    }

    fn unknown_format(content_type: &str, accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format ({content_type}) - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn internal(message: impl AsRef<str>) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {}", message.as_ref()))
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error.retry_after = Some(seconds);
        error.details = Some(Box::new(json!({ "retryAfterSeconds": seconds })));
        error
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = (*self.reason).into();
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status
    }
}

/// Where in an object a walk is; written out only when something is to be said about it.
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
