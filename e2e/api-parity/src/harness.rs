use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::{Answer, Watch};

/// How the server under test reaches the webhooks of [`crate::answer_review`].
pub trait WebhookHost: Send + Sync {
    /// The `clientConfig` (a `url` or a `service`, with a `caBundle`) that leads to this path.
    fn client_config(&self, path: &str) -> Value;
}

/// A client, and a namespace of this case's own. In paths `{ns}` stands for that namespace, and in paths and bodies
/// `{u}` for a token that makes names of cluster-scoped objects unique.
#[derive(Clone)]
pub struct Harness {
    client: kube::Client,
    namespace: String,
    token: String,
    webhooks: Option<Arc<dyn WebhookHost>>,
}

impl Harness {
    /// Makes the namespace `parity-<token>`. The token must be unique on that server, and a DNS label.
    pub async fn new(client: kube::Client, token: &str) -> Result<Self> {
        let namespace = format!("parity-{token}");
        let harness = Self { client, namespace: namespace.clone(), token: token.to_owned(), webhooks: None };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        harness.post("/api/v1/namespaces", body).await?.is(201)?;
        Ok(harness)
    }

    /// With webhooks that the server can reach.
    pub fn with_webhooks(mut self, host: Arc<dyn WebhookHost>) -> Self {
        self.webhooks = Some(host);
        self
    }

    /// The `clientConfig` of a webhook at this path of [`crate::answer_review`].
    pub fn webhook(&self, path: &str) -> Result<Value> {
        Ok(self.webhooks.as_ref().context("this harness offers no webhooks")?.client_config(path))
    }

    /// The client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The namespace of this case.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The token of this case.
    pub fn token(&self) -> &str {
        &self.token
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{ns}", &self.namespace).replace("{u}", &self.token)
    }

    /// One request, whatever the answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Answer> {
        let path = self.fill(path);
        let text = body.map(|body| self.fill(&body.to_string())).unwrap_or_default();
        let mut request = Request::builder().method(method.clone()).uri(&path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(text.into_bytes()))?;
        let line = format!("{method} {path}");
        let response = self.client.send(request).await.with_context(|| line.clone())?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Answer { request: line, status, body: serde_json::from_str(&text).unwrap_or(Value::Null), text })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, &[], None).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: Value) -> Result<Answer> {
        self.send(Method::POST, path, &[("content-type", "application/json")], Some(body)).await
    }

    /// PUT of a JSON body.
    pub async fn put(&self, path: &str, body: Value) -> Result<Answer> {
        self.send(Method::PUT, path, &[("content-type", "application/json")], Some(body)).await
    }

    /// DELETE without options.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(Method::DELETE, path, &[], None).await
    }

    /// DELETE with `DeleteOptions`.
    pub async fn delete_with(&self, path: &str, options: Value) -> Result<Answer> {
        self.send(Method::DELETE, path, &[("content-type", "application/json")], Some(options)).await
    }

    /// JSON merge patch (RFC 7386).
    pub async fn merge(&self, path: &str, body: Value) -> Result<Answer> {
        self.patch("application/merge-patch+json", path, body).await
    }

    /// JSON patch (RFC 6902).
    pub async fn json_patch(&self, path: &str, body: Value) -> Result<Answer> {
        self.patch("application/json-patch+json", path, body).await
    }

    /// Strategic merge patch.
    pub async fn strategic(&self, path: &str, body: Value) -> Result<Answer> {
        self.patch("application/strategic-merge-patch+json", path, body).await
    }

    /// PATCH with this content type.
    pub async fn patch(&self, content_type: &str, path: &str, body: Value) -> Result<Answer> {
        self.send(Method::PATCH, path, &[("content-type", content_type)], Some(body)).await
    }

    /// Opens a watch; an error when the server does not answer 200.
    pub async fn watch(&self, path: &str) -> Result<Watch> {
        Watch::open(&self.client, self.fill(path)).await
    }

    /// Reads a path until the answer passes, or reports the last one after 20 seconds.
    pub async fn until(&self, path: &str, pass: impl Fn(&Answer) -> bool) -> Result<Answer> {
        for _ in 0..200 {
            let answer = self.get(path).await?;
            if pass(&answer) {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let last = self.get(path).await?;
        bail!("{}: waited 20 s in vain, last answer {} {}", last.request, last.status, last.text)
    }
}
