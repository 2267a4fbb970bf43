//! Create, update and patch: one path for every resource.
//!
//! What is decided from the stored object is decided without the lock (webhooks may be asked meanwhile) and committed
//! only if the object is still the same; a caller that gave no resourceVersion is retried, one that did gets 409.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use crate::admission::{Attempt, Operation};
use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::handle::Part;
use crate::lifecycle::metadata;
use crate::object::{Object, ObjectKey, at, metadata_mut, name, namespace, text, to_bytes};
use crate::patch::PatchKind;
use crate::read::shown;
use crate::request::{Target, View};
use crate::resources::{Feature, Resource};
use crate::store::{Expected, Origin, Verb};

/// How often an unconditional write is tried against a moving object (`maxRetryWhenPatchConflicts` is 5).
const ATTEMPTS: usize = 6;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) writer: Arc<str>,
    pub(crate) verb: Verb,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) unknown_fields: UnknownFields,
    /// See [`crate::Commit::precise`].
    pub(crate) precise: bool,
    /// Sentences for the `Warning` headers of the response.
    pub(crate) warnings: Arc<Mutex<Vec<String>>>,
}

/// What becomes of fields that a kind does not have (`fieldValidation`); they are dropped in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownFields {
    Ignore,
    Warn,
    Refuse,
}

impl UnknownFields {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        match text {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Refuse),
            Some(other) => {
                let supported = ["Ignore", "Warn", "Strict"].map(str::to_owned);
                let error = FieldError::not_supported("fieldValidation", &other.into(), &supported);
                Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]))
            }
        }
    }
}

impl Caller {
    /// One of the cluster's own controllers.
    pub(crate) fn internal(writer: &str, verb: Verb) -> Self {
        Self {
            writer: writer.into(),
            verb,
            dry_run: false,
            field_manager: None,
            unknown_fields: UnknownFields::Ignore,
            precise: false,
            warnings: Arc::default(),
        }
    }

    pub(crate) fn warn(&self, sentence: &str) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(sentence.to_owned());
    }

    /// Judges fields that the kind does not have.
    fn judge_unknown(&self, unknown: &[String]) -> Result<(), ApiError> {
        let named = || unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect::<Vec<_>>();
        match self.unknown_fields {
            UnknownFields::Ignore => {}
            UnknownFields::Warn => named().iter().for_each(|sentence| self.warn(sentence)),
            UnknownFields::Refuse if unknown.is_empty() => {}
            UnknownFields::Refuse => {
                return Err(ApiError::bad_request(format!("strict decoding error: {}", named().join(", "))));
            }
        }
        Ok(())
    }

    pub(crate) fn origin(&self, cluster: &Cluster, subresource: &str) -> Origin {
        Origin {
            writer: self.writer.clone(),
            verb: self.verb,
            subresource: subresource.into(),
            precise: self.precise,
            at: cluster.0.clock.now(),
        }
    }
}

/// The object that an update is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: usize,
    pub(crate) key: ObjectKey,
    pub(crate) part: Part,
    /// Whole objects (PUT) differ from patches in how a foreign uid and a missing resourceVersion are judged.
    pub(crate) whole: bool,
}

impl Subject {
    fn of(target: &Target, whole: bool) -> Result<Self, ApiError> {
        let version = &target.resource.versions[target.version];
        let part = match &*target.subresource {
            "" => Part::Main,
            "status" if version.status => Part::Status,
            "finalize" if target.resource.id.is("", "namespaces") => Part::Finalize,
            "ephemeralcontainers" | "resize" if target.resource.id.is("", "pods") => Part::Main,
            _ => return Err(ApiError::no_such_path()),
        };
        Ok(Self {
            resource: target.resource.clone(),
            version: target.version,
            key: ObjectKey::new(target.namespace_or_empty(), target.name.as_deref().unwrap_or_default()),
            part,
            whole,
        })
    }
}

pub(crate) async fn post(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    body: Value,
) -> Result<(StatusCode, Bytes), ApiError> {
    if !target.subresource.is_empty() {
        return crate::subresources::post(cluster, caller, target, body).await;
    }
    if target.name.is_some() {
        return Err(ApiError::method_not_allowed(&target.resource.id.resource, "POST"));
    }
    if target.resource.has(Feature::Review) {
        return Ok((StatusCode::CREATED, to_bytes(&crate::subresources::review(&target.resource, body))));
    }
    if target.resource.namespaced && target.namespace.is_none() {
        return Err(ApiError::method_not_allowed(&target.resource.id.resource, "POST"));
    }
    let object =
        create(cluster, caller, &target.resource, target.version, target.namespace_or_empty(), body).await?;
    Ok((StatusCode::CREATED, shown(cluster, &target.resource, target.version, &object, View::Object).await?))
}

pub(crate) async fn put(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    body: Value,
) -> Result<Bytes, ApiError> {
    if &*target.subresource == "scale" {
        let scale = crate::subresources::scale::replace(cluster, caller, target, &body).await?;
        return Ok(to_bytes(&scale));
    }
    let subject = Subject::of(target, true)?;
    let object = update(cluster, caller, &subject, &mut |_| Ok(body.clone())).await?;
    shown(cluster, &target.resource, target.version, &object, View::Object).await
}

pub(crate) async fn patch(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    patch: PatchKind,
) -> Result<(StatusCode, Bytes), ApiError> {
    if &*target.subresource == "scale" {
        let scale = crate::subresources::scale::patch(cluster, caller, target, &patch).await?;
        return Ok((StatusCode::OK, to_bytes(&scale)));
    }
    let subject = Subject::of(target, false)?;
    let builtin = target.resource.builtin().is_some();
    let kind = target.resource.kind.clone();
    if let PatchKind::Apply(body) = &patch {
        if caller.field_manager.is_none() {
            return Err(ApiError::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        if subject.part == Part::Main && cluster.object(&target.resource.storage, &subject.key).is_err() {
            let mut body = body.clone();
            let metadata = metadata_mut(&mut body);
            metadata.insert("name".into(), (*subject.key.name).into());
            metadata.remove("managedFields");
            let object =
                create(cluster, caller, &target.resource, target.version, &subject.key.namespace, body)
                    .await?;
            return Ok((
                StatusCode::CREATED,
                shown(cluster, &target.resource, target.version, &object, View::Object).await?,
            ));
        }
    }
    let object =
        update(cluster, caller, &subject, &mut |current| patch.apply(current, builtin, &kind)).await?;
    Ok((StatusCode::OK, shown(cluster, &target.resource, target.version, &object, View::Object).await?))
}

/// Creates an object given in a served version.
pub(crate) async fn create(
    cluster: &Cluster,
    caller: &Caller,
    resource: &Arc<Resource>,
    version: usize,
    wanted_namespace: &str,
    mut value: Value,
) -> Result<Arc<Object>, ApiError> {
    check_type(resource, version, &value)?;
    set_namespace(resource, wanted_namespace, &mut value)?;
    if !text(&value, &["metadata", "resourceVersion"]).is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let mut unknown = Vec::new();
    let mut value = crate::crd::to_storage(cluster, resource, version, value, &mut unknown).await?;
    caller.judge_unknown(&unknown)?;
    metadata::stamp_new(cluster, resource, &mut value)?;
    crate::validation::prepare_new(resource, &mut value);
    crate::validation::default(resource, &mut value);
    check_namespace(cluster, resource, &value)?;
    crate::admission::builtin::on_create(cluster, resource, &mut value)?;
    let attempt =
        Attempt { cluster, caller, resource, operation: Operation::Create, subresource: "", old: None };
    let value = attempt.mutate(value).await?;
    let errors = crate::validation::validate(resource, &value, None);
    refuse(resource, &value, errors)?;
    attempt.validate(&value).await?;
    crate::admission::builtin::on_quota(cluster, resource, &value)?;
    if caller.dry_run {
        let revision = cluster.revision();
        return Ok(Arc::new(Object::new(value, revision)));
    }
    let created =
        cluster.state().put(caller.origin(cluster, ""), &resource.storage, value, Expected::Absent)?;
    crate::lifecycle::after_create(cluster, resource, &created);
    Ok(created)
}

fn refuse(resource: &Resource, value: &Value, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&resource.id.group, &resource.kind, name(value), &errors))
}

fn check_type(resource: &Resource, version: usize, value: &Value) -> Result<(), ApiError> {
    if !value.is_object() {
        return Err(ApiError::bad_request("the object provided is unrecognized (must be a JSON object)"));
    }
    let kind = text(value, &["kind"]);
    let api_version = text(value, &["apiVersion"]);
    if resource.builtin().is_none() && (kind.is_empty() || api_version.is_empty()) {
        return Err(ApiError::bad_request(
            "Object 'Kind' is missing in the body: custom resources must name kind and apiVersion",
        ));
    }
    if kind != &*resource.kind && resource.builtin().is_none() {
        let why = format!("must be {}", resource.kind);
        let error = FieldError::invalid("kind", &kind.into(), why);
        return Err(ApiError::invalid(&resource.id.group, &resource.kind, name(value), &[error]));
    }
    if !kind.is_empty() && kind != &*resource.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{api_version}\" cannot be handled as a {}: the object has another kind",
            resource.kind
        )));
    }
    let expected = resource.api_version(version);
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(())
}

fn set_namespace(resource: &Resource, wanted: &str, value: &mut Value) -> Result<(), ApiError> {
    if !resource.namespaced {
        metadata_mut(value).remove("namespace");
        return Ok(());
    }
    let given = namespace(value);
    if !given.is_empty() && given != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata_mut(value).insert("namespace".into(), wanted.into());
    Ok(())
}

fn check_namespace(cluster: &Cluster, resource: &Resource, value: &Value) -> Result<(), ApiError> {
    if !resource.namespaced {
        return Ok(());
    }
    let id = crate::resources::GroupResource::core("namespaces");
    let wanted = namespace(value);
    let found = cluster.object(&id, &ObjectKey::new("", wanted))?;
    if found.is_terminating() {
        let why =
            format!("unable to create new content in namespace {wanted} because it is being terminated");
        let message = format!("namespace {wanted} is being terminated");
        return Err(ApiError::forbidden(&resource.id, name(value), why).with_cause(
            "NamespaceTerminating",
            &message,
            "metadata.namespace",
        ));
    }
    Ok(())
}

/// Changes an object: `change` gets it in the subject's version and returns it changed.
pub(crate) async fn update(
    cluster: &Cluster,
    caller: &Caller,
    subject: &Subject,
    change: &mut (dyn FnMut(&Value) -> Result<Value, ApiError> + Send),
) -> Result<Arc<Object>, ApiError> {
    let resource = &subject.resource;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let old = cluster
            .object(&resource.storage, &subject.key)
            .map_err(|_| ApiError::not_found(&resource.id, &subject.key.name))?;
        let changed = if resource.converts(subject.version) {
            change(&crate::crd::from_storage(cluster, resource, subject.version, old.value()).await?)?
        } else {
            change(old.value())?
        };
        let conditional = !text(&changed, &["metadata", "resourceVersion"]).is_empty();
        match once(cluster, caller, subject, &old, changed).await {
            Err(error)
                if error.code == 409
                    && error.reason == "Conflict"
                    && may_retry(caller, conditional, attempt, cluster, subject, &old) => {}
            result => return result,
        }
    }
}

/// A write that named no resourceVersion is tried again when someone else's came between. A patched object always
/// carries the one it was made from, so that only a real change of the stored object counts.
fn may_retry(
    caller: &Caller,
    conditional: bool,
    attempt: usize,
    cluster: &Cluster,
    subject: &Subject,
    old: &Object,
) -> bool {
    let moved = cluster
        .object(&subject.resource.storage, &subject.key)
        .is_ok_and(|now| now.resource_version() != old.resource_version() && now.uid() == old.uid());
    attempt < ATTEMPTS && moved && (caller.verb == Verb::Patch || !conditional)
}

async fn once(
    cluster: &Cluster,
    caller: &Caller,
    subject: &Subject,
    old: &Arc<Object>,
    changed: Value,
) -> Result<Arc<Object>, ApiError> {
    let resource = &subject.resource;
    check_type(resource, subject.version, &changed)?;
    check_same_object(subject, &changed)?;
    check_preconditions(subject, old, &changed)?;
    let mut unknown = Vec::new();
    let mut new = crate::crd::to_storage(cluster, resource, subject.version, changed, &mut unknown).await?;
    caller.judge_unknown(&unknown)?;
    metadata::carry_over(old.value(), &mut new);
    split(subject, old.value(), &mut new);
    crate::validation::default(resource, &mut new);
    let subresource = subject.part.as_str();
    let operation = Operation::Update;
    let attempt = Attempt { cluster, caller, resource, operation, subresource, old: Some(old.value()) };
    let mut new = attempt.mutate(new).await?;
    metadata::bump_generation(resource, old.value(), &mut new);
    let mut errors = metadata::validate_update(old.value(), &new);
    errors.extend(crate::validation::validate(resource, &new, Some((old.value(), subject.part))));
    refuse(resource, &new, errors)?;
    attempt.validate(&new).await?;
    if new == *old.value() {
        return Ok(old.clone());
    }
    if caller.dry_run {
        return Ok(Arc::new(Object::new(new, old.resource_version())));
    }
    let origin = caller.origin(cluster, subresource);
    let done = {
        let mut state = cluster.state();
        if metadata::deletion_is_complete(resource, &new) {
            // The answer is what the request made of the object, with the resourceVersion that it still had: only watches tell the
            // revision of the removal (`Store.deleteWithoutFinalizers` of k8s.io/apiserver).
            state.remove(origin, &resource.storage, old.key(), old.resource_version())?;
            Arc::new(Object::new(new, old.resource_version()))
        } else {
            state.put(origin, &resource.storage, new, Expected::Revision(old.resource_version()))?
        }
    };
    crate::lifecycle::after_update(cluster, resource, old, &done);
    Ok(done)
}

fn check_same_object(subject: &Subject, changed: &Value) -> Result<(), ApiError> {
    let given = name(changed);
    if given != &*subject.key.name && !(subject.whole && given.is_empty()) {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({})",
            subject.key.name
        )));
    }
    let given = namespace(changed);
    if subject.resource.namespaced && !given.is_empty() && given != &*subject.key.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn check_preconditions(subject: &Subject, old: &Object, changed: &Value) -> Result<(), ApiError> {
    let resource = &subject.resource;
    let uid = text(changed, &["metadata", "uid"]);
    let foreign = !uid.is_empty() && uid != &**old.uid();
    if foreign && subject.whole {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.uid());
        return Err(ApiError::conflict(&resource.id, &subject.key.name, why));
    }
    let invalid = |error| ApiError::invalid(&resource.id.group, &resource.kind, &subject.key.name, &[error]);
    let revision = at(changed, &["metadata", "resourceVersion"]);
    let conditional = match revision {
        Value::Null => false,
        Value::String(text) if text.is_empty() => false,
        Value::String(text) if text.parse() == Ok(old.resource_version()) => true,
        Value::String(text) if text.parse::<u64>().is_ok() => {
            return Err(ApiError::stale(&resource.id, &subject.key.name));
        }
        other => {
            let why = "must be a number in a string";
            return Err(invalid(FieldError::invalid("metadata.resourceVersion", other, why)));
        }
    };
    // A patch is applied to whatever is there; that it brings another uid is only seen when the result is validated.
    if foreign {
        return Err(invalid(FieldError::invalid("metadata.uid", &uid.into(), "field is immutable")));
    }
    let conditional_only = resource.builtin().is_none() || resource.has(Feature::ConditionalUpdateOnly);
    if subject.whole && conditional_only && !conditional {
        let zero = serde_json::json!(0);
        return Err(invalid(FieldError::invalid(
            "metadata.resourceVersion",
            &zero,
            "must be specified for an update",
        )));
    }
    Ok(())
}

/// Leaves alone what the written part does not own.
fn split(subject: &Subject, old: &Value, new: &mut Value) {
    let copy = |new: &mut Value, key: &str| {
        if new.get(key) == old.get(key) {
            return;
        }
        let map = crate::object::object_mut(new);
        match old.get(key) {
            Some(value) => map.insert(key.to_owned(), value.clone()),
            None => map.remove(key),
        };
    };
    match subject.part {
        Part::Main => {
            if subject.resource.versions[subject.version].status {
                copy(new, "status");
            }
        }
        Part::Status => {
            let keys: Vec<String> =
                old.as_object().into_iter().chain(new.as_object()).flat_map(|m| m.keys().cloned()).collect();
            for key in keys {
                let own = key == "status" || (key == "metadata" && subject.resource.builtin().is_some());
                if !own {
                    copy(new, &key);
                }
            }
        }
        Part::Binding => {}
        Part::Finalize => {
            let finalizers = at(new, &["spec", "finalizers"]).clone();
            *new = old.clone();
            crate::object::entry(new, "spec").insert("finalizers".into(), finalizers);
        }
    }
}
