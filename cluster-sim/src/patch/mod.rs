//! The four ways to patch: JSON patch, merge patch, strategic merge patch, and apply.

pub(crate) mod strategic;

use serde_json::Value;

use crate::error::ApiError;
use crate::http::parse;

/// A patch and how it is to be applied.
#[derive(Clone, Debug)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Merge, with lists of built-in types merged by their keys.
    Strategic(Value),
    /// Server-side apply, as a create-or-strategic-merge: fields that an earlier apply set and this one leaves out stay,
    /// and nobody else's ownership is ever in conflict.
    Apply(Value),
}

impl PatchKind {
    pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => {
                let patch = serde_json::from_slice(body).map_err(|e| {
                    ApiError::bad_request(format!("error decoding patch: the JSON patch is malformed: {e}"))
                })?;
                Ok(Self::Json(patch))
            }
            "application/merge-patch+json" => Ok(Self::Merge(object(parse(body, media)?)?)),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(object(parse(body, media)?)?)),
            "application/apply-patch+yaml" | "application/apply-patch+json" => {
                Ok(Self::Apply(object(parse(body, "application/yaml")?)?))
            }
            other => Err(ApiError::unsupported_patch(other)),
        }
    }

    /// The patched object. `group`, `kind` choose the merge keys of a strategic merge; custom resources have none.
    pub(crate) fn apply(&self, current: &Value, builtin: bool, kind: &str) -> Result<Value, ApiError> {
        let mut value = current.clone();
        match self {
            Self::Json(patch) => json_patch::patch(&mut value, patch).map_err(|e| {
                let mut error = ApiError::new(
                    422,
                    "Invalid",
                    format!("the server rejected our request due to an error in our request: {e}"),
                );
                error.details = Some(Box::new(serde_json::json!({})));
                error
            })?,
            Self::Merge(patch) => merge(&mut value, patch),
            Self::Strategic(_) if !builtin => {
                return Err(ApiError::unsupported_patch("application/strategic-merge-patch+json"));
            }
            Self::Strategic(patch) => strategic::apply(&mut value, patch, kind)?,
            Self::Apply(patch) if builtin => {
                strategic::apply(&mut value, &without_managed_fields(patch), kind)?;
            }
            Self::Apply(patch) => merge(&mut value, &without_managed_fields(patch)),
        }
        Ok(value)
    }
}

fn object(value: Value) -> Result<Value, ApiError> {
    if value.is_object() { Ok(value) } else { Err(ApiError::bad_request("the patch must be a JSON object")) }
}

fn without_managed_fields(patch: &Value) -> Value {
    let mut patch = patch.clone();
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    patch
}

/// RFC 7386 in place: null removes, objects merge, everything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    let target = crate::object::object_mut(target);
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else if value.is_object() {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_follow_rfc_7386() {
        for (target, patch, expected) in [
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            (json!({"a": [1]}), json!({"a": [2, 3]}), json!({"a": [2, 3]})),
            (json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({"a": "x"}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            let mut value = target.clone();
            merge(&mut value, &patch);
            assert_eq!(value, expected, "{target} + {patch}");
        }
    }
}
