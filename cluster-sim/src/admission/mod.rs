//! Admission: the server's own plugins, and webhooks called through the table of in-process services.
//!
//! `matchConditions` are not evaluated: a webhook that has them is called as if they held.

pub(crate) mod builtin;
mod call;
mod hooks;
mod limits;

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) use call::call;
use hooks::Hook;
pub(crate) use hooks::Hooks;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::object::{at, object_mut, text};
use crate::resources::Resource;
use crate::write::Caller;

/// What is done to the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// A write as the webhooks are told of it. Objects are in the storage version.
pub(crate) struct Attempt<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) caller: &'a Caller,
    pub(crate) resource: &'a Resource,
    pub(crate) operation: Operation,
    pub(crate) subresource: &'a str,
    pub(crate) old: Option<&'a Value>,
}

impl Attempt<'_> {
    /// The webhooks, where there are any that may be asked.
    fn hooks(&self) -> Option<Arc<Hooks>> {
        let hooks = self.cluster.state().hooks.clone();
        let exempt = &*self.resource.id.group == "admissionregistration.k8s.io";
        (!exempt && !hooks.is_empty()).then_some(hooks)
    }

    /// Asks the validating webhooks: after the object was found valid, as the real server does
    /// (`Store.Create` of `k8s.io/apiserver`).
    pub(crate) async fn validate(&self, new: &Value) -> Result<(), ApiError> {
        let Some(hooks) = self.hooks() else { return Ok(()) };
        for hook in hooks.validating() {
            if let Some(version) = self.matches(hook, new) {
                self.ask(hook, version, new).await?;
            }
        }
        Ok(())
    }

    /// Asks the mutating webhooks. Returns the object as they left it.
    pub(crate) async fn mutate(&self, mut new: Value) -> Result<Value, ApiError> {
        let Some(hooks) = self.hooks() else { return Ok(new) };
        // What each hook left behind when it was last asked, to know which are to be asked again.
        let mut seen: Vec<(&Hook, Value)> = Vec::new();
        for hook in hooks.mutating() {
            let Some(version) = self.matches(hook, &new) else { continue };
            if let Some(patched) = self.ask(hook, version, &new).await? {
                new = patched;
            }
            if hook.reinvoke {
                seen.push((hook, new.clone()));
            }
        }
        for (hook, left) in seen {
            if left == new {
                continue;
            }
            let Some(version) = self.matches(hook, &new) else { continue };
            if let Some(patched) = self.ask(hook, version, &new).await? {
                new = patched;
            }
        }
        Ok(new)
    }

    /// The version in which the hook wants the object, if it wants it at all.
    fn matches(&self, hook: &Hook, new: &Value) -> Option<usize> {
        let version = hook.version(self.resource, self.operation, self.subresource)?;
        let labels = |v: &Value| hook.objects.matches(v);
        let object = (!new.is_null() && labels(new)) || self.old.is_some_and(labels);
        (object && self.namespace_matches(hook, new)).then_some(version)
    }

    fn namespace_matches(&self, hook: &Hook, new: &Value) -> bool {
        if hook.namespaces.is_everything() {
            return true;
        }
        let subject = if new.is_null() { self.old.unwrap_or(new) } else { new };
        if self.resource.id.is("", "namespaces") {
            return hook.namespaces.matches(subject);
        }
        let namespace = crate::object::namespace(subject);
        if namespace.is_empty() {
            return true;
        }
        let id = crate::GroupResource::core("namespaces");
        let found = self.cluster.state().get(&id, &crate::ObjectKey::new("", namespace));
        found.is_none_or(|n| hook.namespaces.matches(n.value()))
    }

    /// Calls one hook; returns the object if it changed it.
    async fn ask(&self, hook: &Hook, version: usize, new: &Value) -> Result<Option<Value>, ApiError> {
        let object = self.shown(version, new).await?;
        let old = match self.old {
            Some(old) => self.shown(version, old).await?,
            None => Value::Null,
        };
        let uid = format!("{:016x}{:016x}", self.cluster.revision(), self.cluster.0.rng.u64(..));
        let review = self.review(&uid, version, &object, old);
        let answer = match call(self.cluster, &hook.client, &review, hook.timeout).await {
            Ok(answer) => answer,
            Err(why) if hook.ignore_failure => {
                tracing::debug!(hook = hook.name, why, "webhook failed and is ignored");
                return Ok(None);
            }
            Err(why) => {
                let why = format!("failed calling webhook \"{}\": failed to call webhook: {why}", hook.name);
                return Err(ApiError::internal(why));
            }
        };
        let response = at(&answer, &["response"]);
        if text(response, &["uid"]) != uid {
            let why =
                format!("failed calling webhook \"{}\": response.uid does not match the request", hook.name);
            return Err(ApiError::internal(why));
        }
        for warning in crate::object::items(response, &["warnings"]).iter().filter_map(Value::as_str) {
            self.caller.warn(warning);
        }
        if at(response, &["allowed"]) != &Value::Bool(true) {
            return Err(denied(&hook.name, at(response, &["status"])));
        }
        if !hook.mutating || text(response, &["patch"]).is_empty() {
            return Ok(None);
        }
        let patched = apply(&hook.name, object, text(response, &["patch"]))?;
        let mut patched =
            crate::crd::to_storage(self.cluster, self.resource, version, patched, &mut Vec::new()).await?;
        crate::validation::default(self.resource, &mut patched);
        Ok(Some(patched))
    }

    async fn shown(&self, version: usize, value: &Value) -> Result<Value, ApiError> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        crate::crd::from_storage(self.cluster, self.resource, version, value).await
    }

    fn review(&self, uid: &str, version: usize, object: &Value, old: Value) -> Value {
        let resource = self.resource;
        let subject = if object.is_null() { &old } else { object };
        let group = &*resource.id.group;
        let version = &*resource.versions[version].name;
        let kind = json!({ "group": group, "version": version, "kind": &*resource.kind });
        let plural = json!({ "group": group, "version": version, "resource": &*resource.id.resource });
        let mut request = json!({
            "uid": uid, "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
            "name": crate::object::name(subject), "operation": self.operation.as_str(),
            "userInfo": { "username": &*self.caller.writer, "groups": ["system:masters", "system:authenticated"] },
            "object": object, "dryRun": self.caller.dry_run,
            "options": { "kind": self.operation.options(), "apiVersion": "meta.k8s.io/v1" },
        });
        if resource.namespaced || resource.id.is("", "namespaces") {
            let namespace = if resource.namespaced {
                crate::object::namespace(subject)
            } else {
                crate::object::name(subject)
            };
            request["namespace"] = namespace.into();
        }
        if !self.subresource.is_empty() {
            request["subResource"] = self.subresource.into();
            request["requestSubResource"] = self.subresource.into();
        }
        object_mut(&mut request).insert("oldObject".into(), old);
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
    }
}

fn apply(hook: &str, mut object: Value, patch: &str) -> Result<Value, ApiError> {
    let failed = |why: String| {
        ApiError::internal(format!("webhook \"{hook}\" sent a patch that cannot be used: {why}"))
    };
    let bytes = STANDARD.decode(patch).map_err(|e| failed(e.to_string()))?;
    let patch: json_patch::Patch = serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()))?;
    json_patch::patch(&mut object, &patch).map_err(|e| failed(e.to_string()))?;
    Ok(object)
}

/// A denial as the server passes it on: below 400 is no code for a refusal.
fn denied(hook: &str, status: &Value) -> ApiError {
    let message = text(status, &["message"]);
    let reason = text(status, &["reason"]);
    let why = match (message, reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let code = at(status, &["code"])
        .as_u64()
        .and_then(|c| u16::try_from(c).ok())
        .filter(|c| *c >= 400)
        .unwrap_or(400);
    let mut error = ApiError::new(code, "", format!("admission webhook \"{hook}\" denied the request{why}"));
    error.reason = Cow::Owned(reason.to_owned());
    if let Some(details) = status.get("details").filter(|d| d.is_object()) {
        error.details = Some(Box::new(details.clone()));
    }
    error
}
