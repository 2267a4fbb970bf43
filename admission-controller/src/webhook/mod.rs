//! Admission webhooks and conversion, served by every replica, whether or not it leads.
//!
//! What they know of the cluster is in [`Surroundings`](crate::surroundings::Surroundings). Until that has its first lists a replica is
//! not ready, for ten seconds at most, and the Service sends it no reviews.

mod configurations;
mod defaults;
mod filled;
mod jobs;
#[cfg(test)]
mod judged;
mod owners;
mod pods;
mod review;
mod rules;
mod topology;
mod validate;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use crds::names::trireme;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::http::BODY_LIMIT;
use quota_engine::Uid;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

pub use configurations::{webhook_configurations, webhook_configurations_for};
use review::{Request, Verdict};

use crate::config::{Configuration, Owning};
use crate::jobs::controller_of;
use crate::surroundings::Surroundings;

/// The name of both webhook configurations.
pub const CONFIGURATION: &str = "trireme-admission-controller";

/// The paths of the webhooks.
pub(crate) mod paths {
    /// Suspends jobs and names their scheduler.
    pub(crate) const MUTATE_JOB: &str = "/mutate-job";
    /// Keeps queue names in place.
    pub(crate) const VALIDATE_JOB: &str = "/validate-job";
    /// Kueue's webhooks for jobs, as controller-runtime names their paths. They are asked after a takeover.
    pub(super) const KUEUES_JOBS: [&str; 18] = [
        "-v1-pod",
        "apps-v1-deployment",
        "apps-v1-statefulset",
        "batch-v1-job",
        "jobset-x-k8s-io-v1alpha2-jobset",
        "kubeflow-org-v1-jaxjob",
        "kubeflow-org-v1-paddlejob",
        "kubeflow-org-v1-pytorchjob",
        "kubeflow-org-v1-tfjob",
        "kubeflow-org-v1-xgboostjob",
        "kubeflow-org-v2beta1-mpijob",
        "leaderworkerset-x-k8s-io-v1-leaderworkerset",
        "ray-io-v1-raycluster",
        "ray-io-v1-rayjob",
        "ray-io-v1-rayservice",
        "sparkoperator-k8s-io-v1beta2-sparkapplication",
        "trainer-kubeflow-org-v1alpha1-trainjob",
        "workload-codeflare-dev-v1beta2-appwrapper",
    ];

    /// Gates pods, and names the scheduler of those whose job cannot.
    pub(crate) const MUTATE_POD: &str = "/mutate-pod";
    /// Keeps groups of pods together.
    pub(crate) const VALIDATE_POD: &str = "/validate-pod";
    /// Marks the pod templates of kinds that are managed through their pods.
    pub(crate) const MUTATE_POD_OWNER: &str = "/mutate-pod-owner";
    /// Keeps their queue and what was admitted in place.
    pub(crate) const VALIDATE_POD_OWNER: &str = "/validate-pod-owner";
    /// Kueue's kinds by their paths' last part. Whoever switches over from Kueue finds them where they were.
    pub(crate) const CLUSTER_QUEUE: &str = "clusterqueue";
    /// See [`CLUSTER_QUEUE`].
    pub(crate) const COHORT: &str = "cohort";
    /// See [`CLUSTER_QUEUE`].
    pub(crate) const RESOURCE_FLAVOR: &str = "resourceflavor";
    /// See [`CLUSTER_QUEUE`].
    pub(crate) const WORKLOAD: &str = "workload";

    /// Checks one of Kueue's kinds.
    pub(crate) fn validate(kind: &str) -> String {
        format!("/validate-kueue-x-k8s-io-v1beta2-{kind}")
    }

    /// Fills in one of Kueue's kinds.
    pub(crate) fn default(kind: &str) -> String {
        format!("/mutate-kueue-x-k8s-io-v1beta2-{kind}")
    }
}

/// What jobs are judged by.
#[derive(Clone)]
struct Site {
    config: Arc<Configuration>,
    surroundings: watch::Receiver<Surroundings>,
}

impl Site {
    /// Whether what names this queue in this namespace is managed.
    fn manages(&self, namespace: &str, queue: Option<&str>) -> bool {
        self.config.manages(namespace, queue) && !self.surroundings.borrow().leaves_alone(namespace)
    }

    /// Whether a job is part of what is managed instead of it, as far as is known of what owns it.
    fn is_part(&self, metadata: &ObjectMeta) -> bool {
        let Some(owner) = controller_of(metadata) else { return false };
        let (around, uid) = (self.surroundings.borrow(), Uid::from(owner.uid.as_str()));
        // Most of what a kind that is switched off makes is nobody's part.
        let may_be = match self.config.owning(owner) {
            Owning::Seen => around.is_passed(&uid),
            Owning::Managed | Owning::Unknown => self.config.is_part(metadata),
        };
        may_be && !around.owns_nothing(&uid)
    }
}

/// A ConversionReview holds a whole list, as somebody reads it: `kubectl` asks for 500 objects at a time.
const CONVERSION_LIMIT: usize = 64 << 20;

/// All of them.
pub fn router(config: Arc<Configuration>, surroundings: watch::Receiver<Surroundings>) -> Router {
    let gates = config.gates();
    let site = Site { config, surroundings };
    let handler = |judge: fn(&Site, &Request) -> Verdict| {
        let site = site.clone();
        post(move |body: Body| {
            let verdict = |request: &Request| judge(&site, request).review(&request.uid, &request.object);
            std::future::ready(answer(body, verdict))
        })
    };
    let fill = post(move |body: Body| {
        let verdict =
            |request: &Request| defaults::default(gates, request).review(&request.uid, &request.object);
        std::future::ready(answer(body, verdict))
    });
    let validate = post(move |body: Body| {
        let verdict =
            |request: &Request<_>| validate::validate(gates, request).review(&request.uid, &Value::Null);
        std::future::ready(answer(body, verdict))
    });
    let convert = post(|body: Body| {
        let answer = body.map_or_else(
            |rejection| unread(&rejection, CONVERSION_LIMIT),
            |body| json(crds::conversion::convert_review(&body)),
        );
        std::future::ready(answer)
    });
    let mut router = Router::new()
        .route(paths::MUTATE_JOB, handler(jobs::mutate))
        .route(paths::VALIDATE_JOB, handler(jobs::validate))
        .route(paths::MUTATE_POD, handler(pods::mutate))
        .route(paths::VALIDATE_POD, handler(pods::validate))
        .route(paths::MUTATE_POD_OWNER, handler(owners::mutate))
        .route(paths::VALIDATE_POD_OWNER, handler(owners::validate))
        .route(trireme::CONVERT_PATH, convert.layer(DefaultBodyLimit::max(CONVERSION_LIMIT)));
    for kind in paths::KUEUES_JOBS {
        router = router
            .route(&format!("/mutate-{kind}"), handler(jobs::mutate_or_warn))
            .route(&format!("/validate-{kind}"), handler(jobs::validate_any));
    }
    for kind in [paths::CLUSTER_QUEUE, paths::COHORT, paths::RESOURCE_FLAVOR, paths::WORKLOAD] {
        router = router.route(&paths::validate(kind), validate.clone());
    }
    for kind in [paths::CLUSTER_QUEUE, paths::RESOURCE_FLAVOR, paths::WORKLOAD] {
        router = router.route(&paths::default(kind), fill.clone());
    }
    router
}

type Body = Result<Bytes, BytesRejection>;

/// A body that is not read to its end.
fn unread(rejection: &BytesRejection, limit: usize) -> Response {
    let words = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => format!("the review is larger than {limit} bytes\n"),
        _ => format!("the review cannot be read: {rejection}\n"),
    };
    (rejection.status(), words).into_response()
}

fn answer<Object: DeserializeOwned + Default>(
    body: Body,
    judge: impl FnOnce(&Request<Object>) -> Vec<u8>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unread(&rejection, BODY_LIMIT),
    };
    match Request::parse(&body) {
        Ok(request) => json(judge(&request)),
        Err(words) => (StatusCode::BAD_REQUEST, format!("{words}\n")).into_response(),
    }
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
