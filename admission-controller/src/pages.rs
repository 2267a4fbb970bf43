//! The pages that tell what the task knows that owns the engine.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use kit::admin;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::controller::Ask;

/// The page of one workload, looked at closely.
pub(crate) fn close_look(ask: mpsc::Sender<Ask>) -> Router {
    let page = move |Path((namespace, name)): Path<(String, String)>| {
        let ask = ask.clone();
        async move {
            let (send, receive) = oneshot::channel();
            let question = Ask::Closely(namespace.clone(), name.clone(), send);
            let asked = ask.send(question).await.is_ok();
            let told = if asked { receive.await.ok().flatten() } else { None };
            let Some(told) = told else {
                let words = "not everything is known yet; ask again in a moment\n";
                return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
            };
            if ["workloads", "jobs"].iter().any(|of| told[of].as_array().is_some_and(|all| !all.is_empty())) {
                return Json(told).into_response();
            }
            let words = format!(
                "no Workload in namespace {namespace} is called {name}, and none belongs to what is called so, nor is there a job of \
                 a kind that is managed\n"
            );
            (StatusCode::NOT_FOUND, words).into_response()
        }
    };
    Router::new().route("/debug/state/{namespace}/{name}", get(page))
}

/// The source of `/debug/state`.
pub(crate) fn state(ask: mpsc::Sender<Ask>) -> admin::StateSource {
    Arc::new(move || {
        let ask = ask.clone();
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            if ask.send(Ask::State(send)).await.is_err() {
                return Value::Null;
            }
            receive.await.unwrap_or_default()
        })
    })
}
