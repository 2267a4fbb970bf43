//! `visibility.kueue.x-k8s.io`: who waits in a queue, and at which position. An aggregated API, served by every replica.
//!
//! The task that owns the engine makes the lists; who asks waits for it, and no more than a few wait at a time. The API
//! server has asked the user for proof and checked the user's rights before it passes a request on, so all that is left to
//! check here is that it is the API server that asks ([`kit::front_proxy`]).

mod board;
mod documents;

use std::sync::Arc;

use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceSpec, ServiceReference,
};
use kit::Clock;
use kit::front_proxy::{FrontProxy, PeerCertificates, Stranger};
use quota_engine::{ClusterQueueName, LocalQueueKey};
use rustls::pki_types::UnixTime;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

pub(crate) use board::Board;

use crate::config::Configuration;
use crate::controller::Ask;

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first. They say the same.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// How many are shown where nobody says (`DefaultPendingWorkloadsLimit`).
const DEFAULT_LIMIT: i64 = 1_000;
/// How many are shown at most (`MaxPendingWorkloadsLimit`).
const MAX_LIMIT: i64 = 100_000;

/// Which queue, and which of those who wait in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) queue: QueueRef,
    /// So many are left out.
    pub(crate) offset: usize,
    /// So many are shown at most.
    pub(crate) limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueRef {
    Cluster(ClusterQueueName),
    Local(LocalQueueKey),
}

/// What the engine's task answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Not everything was seen yet.
    TooEarly,
    NoSuchQueue,
    Waiting(Vec<PendingWorkload>),
}

/// `PendingWorkload`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingWorkload {
    metadata: Metadata,
    priority: i32,
    local_queue_name: Arc<str>,
    position_in_cluster_queue: usize,
    position_in_local_queue: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Arc<str>,
    namespace: Arc<str>,
    creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// The objects that send requests for the group to this program's Service. The embedded cluster creates them; a chart has the same.
pub fn api_services(config: &Configuration) -> Vec<APIService> {
    let of_version = |version: &&str| APIService {
        metadata: kube::api::ObjectMeta { name: Some(api_service_name(version)), ..Default::default() },
        spec: Some(APIServiceSpec {
            group: Some(GROUP.to_owned()),
            group_priority_minimum: 100,
            service: Some(ServiceReference {
                name: Some(crds::names::trireme::ADMISSION_SERVICE.to_owned()),
                namespace: Some(config.namespace.clone()),
                port: None,
            }),
            version: Some((*version).to_owned()),
            version_priority: 100,
            ..APIServiceSpec::default()
        }),
        status: None,
    };
    VERSIONS.iter().map(of_version).collect()
}

/// The name of the APIService of a version.
pub fn api_service_name(version: &str) -> String {
    format!("{version}.{GROUP}")
}

#[derive(Clone)]
struct Desk {
    ask: mpsc::Sender<Ask>,
    proxy: FrontProxy,
    clock: Clock,
}

/// The group's paths, and the documents about them.
pub(crate) fn router(ask: mpsc::Sender<Ask>, proxy: FrontProxy, clock: Clock) -> Router {
    let desk = Desk { ask, proxy, clock };
    let document = |value: Value| get(move || std::future::ready(Json(value)));
    let mut router = Router::new()
        .route("/apis", get(|headers: HeaderMap| std::future::ready(groups(&headers))))
        .route(&format!("/apis/{GROUP}"), document(documents::group()))
        .route("/openapi/v2", document(documents::openapi_v2()))
        .route("/openapi/v3", document(documents::openapi_v3_index()));
    for version in VERSIONS {
        let root = format!("/apis/{GROUP}/{version}");
        let cluster_queue = get(
            move |State(desk): State<Desk>, Path(name): Path<String>, RawQuery(query): RawQuery| async move {
                let queue = QueueRef::Cluster(ClusterQueueName::from(name.as_str()));
                summary(&desk, version, queue, query.as_deref()).await
            },
        );
        let local_queue = get(
            move |State(desk): State<Desk>,
                  Path((namespace, name)): Path<(String, String)>,
                  RawQuery(query): RawQuery| async move {
                let queue = QueueRef::Local(LocalQueueKey::new(namespace, name));
                summary(&desk, version, queue, query.as_deref()).await
            },
        );
        router = router
            .route(&root, document(documents::resources(version)))
            .route(&format!("/openapi/v3{root}"), document(documents::openapi_v3(version)))
            .route(&format!("{root}/clusterqueues/{{name}}/pendingworkloads"), cluster_queue)
            .route(
                &format!("{root}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads"),
                local_queue,
            )
            .route(&format!("{root}/{{*path}}"), axum::routing::any(|| std::future::ready(no_such_path())));
    }
    let only_get = || std::future::ready(failure(405, "MethodNotAllowed", "only GET is served here", None));
    router
        .method_not_allowed_fallback(only_get)
        .route_layer(middleware::from_fn_with_state(desk.clone(), only_the_api_server))
        .with_state(desk)
}

async fn only_the_api_server(
    State(desk): State<Desk>,
    shown: Option<Extension<PeerCertificates>>,
    request: Request,
    next: Next,
) -> Response {
    let millis = u64::try_from(desk.clock.unix_millis()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_millis(millis));
    match desk.proxy.judge(shown.as_ref().map(|Extension(shown)| shown), now) {
        Ok(()) => next.run(request).await,
        Err(stranger @ Stranger::TooEarly) => unavailable(&stranger.to_string()),
        Err(stranger @ Stranger::Unproven) => failure(401, "Unauthorized", &stranger.to_string(), None),
    }
}

fn groups(headers: &HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wanted = |option: &&str| {
        option.contains("g=apidiscovery.k8s.io") && option.contains("as=APIGroupDiscoveryList")
    };
    let mut options = accept.split(',').filter(wanted).filter(|option| !option.contains("protobuf"));
    if options.any(|option| option.contains("v=v2;") || option.ends_with("v=v2")) {
        let kind =
            HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        return ([(header::CONTENT_TYPE, kind)], Json(documents::aggregated()).0.to_string()).into_response();
    }
    Json(documents::groups()).into_response()
}

async fn summary(desk: &Desk, version: &str, queue: QueueRef, query: Option<&str>) -> Response {
    let (offset, limit) = match window(query.unwrap_or_default()) {
        Ok(window) => window,
        Err(words) => return failure(400, "BadRequest", &words, None),
    };
    let (kind, name) = match &queue {
        QueueRef::Cluster(name) => ("clusterqueue", name.as_str().to_owned()),
        QueueRef::Local(key) => ("localqueue", key.name.to_string()),
    };
    let (send, receive) = oneshot::channel();
    if desk.ask.try_send(Ask::Pending(Question { queue, offset, limit }, send)).is_err() {
        let mut response = failure(429, "TooManyRequests", "too many ask at a time; try again", None);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    match receive.await {
        Ok(Answer::Waiting(items)) => Json(json!({
            "kind": "PendingWorkloadsSummary",
            "apiVersion": format!("{GROUP}/{version}"),
            "metadata": {},
            "items": items,
        }))
        .into_response(),
        Ok(Answer::NoSuchQueue) => {
            let details = json!({ "name": name, "group": GROUP, "kind": kind });
            failure(404, "NotFound", &format!("{kind}.{GROUP} {name:?} not found"), Some(details))
        }
        Ok(Answer::TooEarly) | Err(_) => unavailable("this replica has not seen every object yet"),
    }
}

/// `offset` and `limit` of a query, within their bounds. As in Kueue, a limit of 0 is none said, and one below it shows nobody.
fn window(query: &str) -> Result<(usize, usize), String> {
    let number = |key: &str| {
        let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let Some((_, text)) = pairs.find(|(name, _)| *name == key) else { return Ok(0) };
        text.parse::<i64>().map_err(|_| format!("{key}: {text:?} is no whole number of 64 bits"))
    };
    let (offset, limit) = (number("offset")?, number("limit")?);
    let limit = if limit == 0 { DEFAULT_LIMIT } else { limit.clamp(0, MAX_LIMIT) };
    let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
    Ok((count(offset), count(limit)))
}

fn no_such_path() -> Response {
    failure(404, "NotFound", "the server could not find the requested resource", Some(json!({})))
}

fn unavailable(words: &str) -> Response {
    let mut response = failure(503, "ServiceUnavailable", words, Some(json!({ "retryAfterSeconds": 1 })));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn failure(code: u16, reason: &str, message: &str, details: Option<Value>) -> Response {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code,
    });
    if let Some(details) = details {
        status["details"] = details;
    }
    (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_bounded() {
        for (query, wanted) in [
            ("", Ok((0, 1_000))),
            ("limit=5&offset=3", Ok((3, 5))),
            ("limit=0", Ok((0, 1_000))),
            ("limit=-1", Ok((0, 0))),
            ("limit=2000000000", Ok((0, 100_000))),
            ("offset=-7&limit=9223372036854775807", Ok((0, 100_000))),
            ("offset=9223372036854775807", Ok((usize::MAX / 2, 1_000))),
            ("limit=9223372036854775808", Err(())),
            ("limit=", Err(())),
            ("limit=1e3", Err(())),
            ("limit=2&limit=x", Ok((0, 2))),
            ("unknown=x", Ok((0, 1_000))),
        ] {
            assert_eq!(window(query).map_err(|_| ()), wanted, "{query}");
        }
    }
}
