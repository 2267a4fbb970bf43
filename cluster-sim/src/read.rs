//! Get and list.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::faults::Listing;
use crate::http::{ResponseBody, json_response};
use crate::object::{Object, ObjectKey, to_bytes};
use crate::pages::Continue;
use crate::request::{Query, Target, View};
use crate::resources::Resource;
use crate::selectors::{FieldFilter, LabelFilter};

/// The two selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    pub(crate) labels: LabelFilter,
    pub(crate) fields: FieldFilter,
}

impl Selectors {
    pub(crate) fn parse(target: &Target, query: &Query) -> Result<Self, ApiError> {
        let resource = &target.resource;
        let allowed = |field: &str| match resource.builtin() {
            Some(builtin) => builtin.fields.contains(&field),
            None => resource.versions[target.version].selectable.iter().any(|s| s == field),
        };
        Ok(Self {
            labels: LabelFilter::parse(query.get("labelSelector").unwrap_or_default())?,
            fields: FieldFilter::parse(
                query.get("fieldSelector").unwrap_or_default(),
                &resource.kind,
                allowed,
            )?,
        })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

/// The object in the version and form asked for.
pub(crate) async fn shown(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    object: &Object,
    view: View,
) -> Result<Bytes, ApiError> {
    match view {
        View::Object if !resource.converts(version) => Ok(object.bytes()),
        View::Object => Ok(to_bytes(&converted(cluster, resource, version, object).await?)),
        View::Metadata => Ok(to_bytes(&partial_metadata(object.value()))),
        View::Table => {
            let value = converted(cluster, resource, version, object).await?;
            Ok(to_bytes(&crate::table::table(
                cluster,
                resource,
                version,
                &[value],
                object.resource_version(),
            )))
        }
    }
}

/// The object's value in a served version.
pub(crate) async fn converted(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    object: &Object,
) -> Result<Value, ApiError> {
    crate::crd::from_storage(cluster, resource, version, object.value()).await
}

fn partial_metadata(value: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": value.get("metadata").cloned().unwrap_or_default(),
    })
}

pub(crate) async fn get(
    cluster: &Cluster,
    target: &Target,
    view: View,
) -> Result<Response<ResponseBody>, ApiError> {
    let resource = &target.resource;
    let name = target.name.as_deref().unwrap_or_default();
    let key = ObjectKey::new(target.namespace_or_empty(), name);
    let object =
        cluster.object(&resource.storage, &key).map_err(|_| ApiError::not_found(&resource.id, name))?;
    match &*target.subresource {
        "" => {}
        "status" if resource.versions[target.version].status => {}
        "scale" if resource.versions[target.version].scale.is_some() => {
            let scale = crate::subresources::scale::show(resource, target.version, object.value())?;
            return Ok(json_response(StatusCode::OK, to_bytes(&scale)));
        }
        _ => return Err(ApiError::no_such_path()),
    }
    let bytes = shown(cluster, resource, target.version, &object, view).await?;
    Ok(json_response(StatusCode::OK, bytes))
}

/// The part of a collection that a list asks for.
struct Page {
    objects: Vec<Arc<Object>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

pub(crate) async fn list(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
    view: View,
    listing: Listing,
) -> Result<Response<ResponseBody>, ApiError> {
    let selectors = Selectors::parse(target, query)?;
    let page = page(cluster, target, query, &selectors, listing)?;
    let resource = &target.resource;
    if view == View::Table {
        let mut values = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            values.push(converted(cluster, resource, target.version, object).await?);
        }
        let mut table = crate::table::table(cluster, resource, target.version, &values, page.revision);
        if let Some(next) = page.next {
            table["metadata"]["continue"] = next.into();
        }
        return Ok(json_response(StatusCode::OK, to_bytes(&table)));
    }
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    if let Some(next) = page.next {
        metadata["continue"] = next.into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let (kind, api_version) = match view {
        View::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
        _ => (&*resource.list_kind, target.api_version()),
    };
    let head =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
    let mut body = BytesMut::with_capacity(head.len() + page.objects.len() * 1024);
    body.put_slice(head.as_bytes());
    for (i, object) in page.objects.iter().enumerate() {
        if i > 0 {
            body.put_u8(b',');
        }
        if view == View::Object && resource.builtin().is_some() && !resource.converts(target.version) {
            body.put_slice(&object.bare());
        } else {
            body.put_slice(&shown(cluster, resource, target.version, object, view).await?);
        }
    }
    body.put_slice(b"]}");
    Ok(json_response(StatusCode::OK, body.freeze()))
}

fn page(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
    selectors: &Selectors,
    listing: Listing,
) -> Result<Page, ApiError> {
    let limit = query.number("limit")?.filter(|l| *l > 0).and_then(|l| usize::try_from(l).ok());
    let token = query.get("continue").map(Continue::parse).transpose()?;
    let asked = query.number("resourceVersion")?;
    let exact = match query.get("resourceVersionMatch") {
        None | Some("NotOlderThan") => false,
        Some("Exact") => true,
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "resourceVersionMatch: Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\""
            )));
        }
    };
    let mut state = cluster.state();
    let current = state.revision;
    if let Some(asked) = asked.filter(|a| *a > current && token.is_none()) {
        return Err(ApiError::too_large_resource_version(asked, current));
    }
    let namespace = target.namespace.as_deref();
    let collection = state.collection(&target.resource.storage);
    let revision = match (&token, asked) {
        (Some(token), _) => token.revision,
        (None, Some(asked)) if exact && asked > 0 => asked,
        (None, Some(0)) if listing.lag > 0 => collection.reachable(current.saturating_sub(listing.lag)),
        _ => current,
    };
    let last = token.as_ref().map(|token| &token.last);
    let limit = limit.map_or(usize::MAX, |limit| limit.min(listing.most));
    let (objects, remaining) = if collection.is_as_of(revision) {
        first(collection.after(namespace, last), selectors, limit)
    } else {
        let all = collection.as_of(revision, namespace, last).map_err(|_| match token {
            Some(_) => Continue::expired(),
            None => {
                ApiError::expired(format!("The resourceVersion for the provided list is too old: {revision}"))
            }
        })?;
        first(all.iter(), selectors, limit)
    };
    drop(state);
    let next = (remaining > 0)
        .then(|| objects.last().map(|last| Continue { revision, last: last.key().clone() }.token()))
        .flatten();
    let remaining = (remaining > 0 && selectors.is_everything()).then_some(remaining);
    Ok(Page { objects, revision, next, remaining })
}

/// The first of those that are selected, and how many are left. What is left is not copied: a long list has many pages.
fn first<'a>(
    all: impl Iterator<Item = &'a Arc<Object>>,
    selectors: &Selectors,
    limit: usize,
) -> (Vec<Arc<Object>>, usize) {
    let mut selected = all.filter(|object| selectors.matches(object.value()));
    let objects = selected.by_ref().take(limit).cloned().collect();
    (objects, selected.count())
}
