use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BytesMut;
use futures::StreamExt as _;
use http::Request;
use http_body_util::{BodyExt as _, BodyStream};
use kube::client::Body;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// One line of a watch.
#[derive(Clone, Debug)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: String,
    /// The object; a `Status` for `ERROR`.
    pub object: Value,
}

impl Event {
    /// `metadata.name`, empty when there is none.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// An open watch.
pub struct Watch {
    path: String,
    stream: BodyStream<Body>,
    buffer: BytesMut,
}

impl Watch {
    pub(crate) async fn open(client: &kube::Client, path: String) -> Result<Self> {
        let request = Request::get(&path).body(Body::empty())?;
        let response = client.send(request).await.with_context(|| format!("watch {path}"))?;
        let status = response.status().as_u16();
        let body = response.into_body();
        if status != 200 {
            let text = body.collect().await?.to_bytes();
            bail!("watch {path}: {status} {}", String::from_utf8_lossy(&text));
        }
        Ok(Self { path, stream: BodyStream::new(body), buffer: BytesMut::new() })
    }

    /// The next event; `None` when the server has ended the watch. An error after 20 seconds of silence.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        self.next_within(PATIENCE)
            .await?
            .with_context(|| format!("watch {}: nothing came for 20 s", self.path))
    }

    /// The next event, or the outer `None` when nothing came in that time.
    async fn next_within(&mut self, patience: Duration) -> Result<Option<Option<Event>>> {
        match tokio::time::timeout(patience, self.line()).await {
            Err(_elapsed) => Ok(None),
            Ok(line) => match line? {
                None => Ok(Some(None)),
                Some(line) => {
                    let value: Value = serde_json::from_slice(&line)?;
                    let kind = value["type"].as_str().unwrap_or_default().to_owned();
                    Ok(Some(Some(Event { kind, object: value["object"].clone() })))
                }
            },
        }
    }

    async fn line(&mut self) -> Result<Option<BytesMut>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.buffer.split_to(end + 1)));
            }
            match self.stream.next().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// The next event, which must be of this type and about the object of this name.
    pub async fn expect(&mut self, kind: &str, name: &str) -> Result<Event> {
        let event =
            self.next().await?.with_context(|| format!("watch {}: ended before {kind} {name}", self.path))?;
        ensure!(
            event.kind == kind && event.name() == name,
            "watch {}: wanted {kind} {name}, got {} {}",
            self.path,
            event.kind,
            event.object
        );
        Ok(event)
    }

    /// The next event of this type, others left out.
    pub async fn until(&mut self, kind: &str) -> Result<Event> {
        loop {
            let event =
                self.next().await?.with_context(|| format!("watch {}: ended before {kind}", self.path))?;
            if event.kind == kind {
                return Ok(event);
            }
        }
    }

    /// Nothing comes for 300 ms.
    pub async fn quiet(&mut self) -> Result<()> {
        match self.next_within(Duration::from_millis(300)).await? {
            None => Ok(()),
            Some(event) => bail!("watch {}: wanted silence, got {event:?}", self.path),
        }
    }

    /// The server ends the watch, with no event before that.
    pub async fn ends(&mut self) -> Result<()> {
        match self.next().await? {
            None => Ok(()),
            Some(event) => bail!("watch {}: wanted its end, got {event:?}", self.path),
        }
    }
}
