//! Serves the webhooks of the api-parity suite over TLS on 127.0.0.1.

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
use tokio_rustls::TlsAcceptor;

use crate::pki::Authority;

/// Webhooks of this run.
pub(crate) struct Webhooks {
    port: u16,
    ca_bundle: String,
}

impl Webhooks {
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
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                own.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(answer);
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A connection that breaks is the caller's to report.
                    let _closed = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&authority.certificate);
        Ok(Arc::new(Self { port, ca_bundle }))
    }
}

impl WebhookHost for Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle})
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let reply = async {
        let body = request.into_body().collect().await.context("reading a review")?.to_bytes();
        let review: Value = serde_json::from_slice(&body)?;
        anyhow::Ok(api_parity::answer_review(&path, &review))
    };
    let reply = reply.await.unwrap_or_else(|error| json!({"error": error.to_string()}));
    let mut response = Response::new(Full::new(Bytes::from(reply.to_string())));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}
