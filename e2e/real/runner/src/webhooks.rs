//! Serves the webhooks of the api-parity suite over TLS on 127.0.0.1, and one that holds requests back.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api_parity::WebhookHost;
use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::pki::Authority;

/// Webhooks of this run.
pub(crate) struct Webhooks {
    port: u16,
    ca_bundle: String,
    gate: Arc<Gate>,
}

/// The path of the webhook that holds back what [`Webhooks::hold`] says. It refuses ConfigMaps: that is how its
/// configuration is seen to be in effect.
pub(crate) const HOLD: &str = "/hold";

/// Lets through all requests, or only so many.
#[derive(Debug)]
struct Gate {
    passes: watch::Sender<Option<usize>>,
    waiting: watch::Sender<usize>,
}

impl Gate {
    /// Ends when the request may go on.
    async fn pass(&self) {
        let mut changes = self.passes.subscribe();
        let mut waiting = None;
        loop {
            let mut through = false;
            self.passes.send_if_modified(|passes| {
                through = *passes != Some(0);
                *passes = passes.map(|left| left.saturating_sub(1));
                false
            });
            if through {
                return;
            }
            waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// One request at the gate. It goes away with the request, also when its sender has died.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Webhooks {
    /// From now on only so many of the requests that come to [`HOLD`] are let through.
    pub(crate) fn hold(&self, after: usize) {
        self.gate.passes.send_replace(Some(after));
    }

    /// All are let through again.
    pub(crate) fn release(&self) {
        self.gate.passes.send_replace(None);
    }

    /// How many requests are held back.
    pub(crate) fn held(&self) -> usize {
        *self.gate.waiting.borrow()
    }

    /// Serves until the tasks are told to stop.
    pub(crate) async fn serve(authority: &Authority, tasks: &kit::Tasks) -> Result<Arc<Self>> {
        let pair = authority.serving(&["127.0.0.1"])?;
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let own = tasks.clone();
        let gate = Arc::new(Gate { passes: watch::Sender::new(None), waiting: watch::Sender::new(0) });
        let at_gate = gate.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, gate) = (acceptor.clone(), at_gate.clone());
                own.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| answer(gate.clone(), request));
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A connection that breaks is the caller's to report.
                    let _closed = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&authority.certificate);
        Ok(Arc::new(Self { port, ca_bundle, gate }))
    }
}

impl WebhookHost for Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle})
    }
}

async fn answer(gate: Arc<Gate>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let reply = async {
        let body = request.into_body().collect().await.context("reading a review")?.to_bytes();
        let review: Value = serde_json::from_slice(&body)?;
        if path != HOLD {
            return anyhow::Ok(api_parity::answer_review(&path, &review));
        }
        let probe = review["request"]["resource"]["resource"] == "configmaps";
        if !probe {
            gate.pass().await;
        }
        Ok(api_parity::answer_review(if probe { "/deny" } else { "/allow" }, &review))
    };
    let reply = reply.await.unwrap_or_else(|error| json!({"error": error.to_string()}));
    let mut response = Response::new(Full::new(Bytes::from(reply.to_string())));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}
