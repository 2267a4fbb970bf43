//! APIServices: groups that other servers serve, behind this one.

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, header, request::Parts};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::http::ResponseBody;
use crate::object::{at, text};
use crate::resources::GroupResource;

/// Group and version of every APIService that names a service.
pub(crate) fn versions(cluster: &Cluster) -> Vec<(String, String)> {
    let services = cluster.store("aggregator").list(&id(), None);
    let named = services.iter().filter(|one| !text(one.value(), &["spec", "service", "name"]).is_empty());
    named
        .map(|one| {
            (text(one.value(), &["spec", "group"]).into(), text(one.value(), &["spec", "version"]).into())
        })
        .collect()
}

fn id() -> GroupResource {
    GroupResource::new("apiregistration.k8s.io", "apiservices")
}

/// Passes a request on to one of the replicas of the service that serves its group and version, with the caller's name; `None`
/// where there is no such APIService.
pub(crate) async fn pass_on(
    cluster: &Cluster,
    user: &str,
    parts: &Parts,
    body: Bytes,
) -> Option<Response<ResponseBody>> {
    let mut segments = parts.uri.path().split('/').filter(|segment| !segment.is_empty());
    let (Some("apis"), Some(group), Some(version)) = (segments.next(), segments.next(), segments.next())
    else {
        return None;
    };
    let registered = cluster.store("aggregator").get(&id(), "", &format!("{version}.{group}"))?;
    let service = at(registered.value(), &["spec", "service"]);
    let (namespace, name) = (text(service, &["namespace"]), text(service, &["name"]));
    if name.is_empty() {
        return None;
    }
    let mut replicas = cluster.0.services.resolve(namespace, name);
    if replicas.is_empty() {
        let words = format!("no endpoints available for service {name:?}");
        return Some(crate::http::refused(ApiError::new(503, "ServiceUnavailable", words)));
    }
    let chosen = match replicas.len() {
        1 => 0,
        n => usize::try_from(cluster.0.rng.u64(0..n as u64)).unwrap_or(0),
    };
    let mut request =
        Request::builder().method(parts.method.clone()).uri(parts.uri.clone()).body(Body::from(body)).ok()?;
    *request.headers_mut() = parts.headers.clone();
    request.headers_mut().remove(header::AUTHORIZATION);
    request.headers_mut().insert("x-remote-user", header::HeaderValue::from_str(user).ok()?);
    let Ok(response) = replicas.swap_remove(chosen).oneshot(request).await;
    let (head, body) = response.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Some(crate::http::refused(ApiError::internal(error.to_string()))),
    };
    Some(Response::from_parts(head, ResponseBody::Full(Some(body))))
}
