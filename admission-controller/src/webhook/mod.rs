//! Admission webhooks and conversion: served by every replica, before caches and leadership, since they need neither.

mod configurations;
mod jobs;
mod review;
mod validate;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use crds::names::trireme;
use kit::http::BODY_LIMIT;

pub use configurations::{webhook_configurations, webhook_configurations_for};
use review::{Request, Verdict};

use crate::config::Configuration;

/// The name of both webhook configurations.
pub const CONFIGURATION: &str = "trireme-admission-controller";

/// The paths of the webhooks.
pub(crate) mod paths {
    /// Suspends jobs and names their scheduler.
    pub(crate) const MUTATE_JOB: &str = "/mutate-job";
    /// Keeps queue names in place.
    pub(crate) const VALIDATE_JOB: &str = "/validate-job";
    /// Checks Kueue's kinds.
    pub(crate) const VALIDATE_KUEUE: &str = "/validate-kueue";
}

/// All of them.
pub fn router(config: Arc<Configuration>) -> Router {
    let handler = |judge: fn(&Configuration, &Request) -> Verdict| {
        let config = config.clone();
        post(move |body: Body| std::future::ready(answer(body, |request| judge(&config, request))))
    };
    Router::new()
        .route(paths::MUTATE_JOB, handler(jobs::mutate))
        .route(paths::VALIDATE_JOB, handler(jobs::validate))
        .route(paths::VALIDATE_KUEUE, handler(|_, request| validate::validate(request)))
        .route(
            trireme::CONVERT_PATH,
            post(|body: Body| {
                let answer = body.map_or_else(unread, |body| json(crds::conversion::convert_review(&body)));
                std::future::ready(answer)
            }),
        )
}

type Body = Result<Bytes, BytesRejection>;

/// A body that is not read to its end.
fn unread(rejection: BytesRejection) -> Response {
    let words = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => format!("the review is larger than {BODY_LIMIT} bytes\n"),
        _ => format!("the review cannot be read: {rejection}\n"),
    };
    (rejection.status(), words).into_response()
}

fn answer(body: Body, judge: impl FnOnce(&Request) -> Verdict) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unread(rejection),
    };
    match Request::parse(&body) {
        Ok(request) => json(judge(&request).review(&request)),
        Err(words) => (StatusCode::BAD_REQUEST, format!("{words}\n")).into_response(),
    }
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
