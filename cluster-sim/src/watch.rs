//! Watches: a cursor into a resource's history, so that a slow reader costs nothing and a late one gets 410.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::faults::{WatchFault, WatchInfo};
use crate::http::{ResponseBody, stream_response};
use crate::object::{Object, to_bytes};
use crate::read::{Selectors, shown};
use crate::request::{Query, Target, View};
use crate::store::{Change, ChangeKind, watch_line};

/// How long a watch lasts that names no timeout (`--min-request-timeout`; a real server adds up to as much again).
const DEFAULT_TIMEOUT: u64 = 1800;

struct Watch {
    cluster: Cluster,
    info: WatchInfo,
    target: Target,
    selectors: Selectors,
    view: View,
    bookmarks: bool,
    /// The bookmark that ends the initial events has to be sent.
    initial_end: bool,
    cursor: u64,
    deadline: Instant,
    next_bookmark: Instant,
    changed: Arc<Notify>,
    ready: VecDeque<Bytes>,
    /// Half-open: the connection stands, nothing arrives.
    silent: bool,
    closed: bool,
}

/// Answers `watch=true`.
pub(crate) fn serve(
    cluster: &Cluster,
    writer: &Arc<str>,
    target: &Target,
    query: &Query,
    view: View,
) -> Result<Response<ResponseBody>, ApiError> {
    let mut selectors = Selectors::parse(target, query)?;
    if let Some(name) = &target.name {
        selectors.fields =
            crate::selectors::FieldFilter::parse(&format!("metadata.name={name}"), "", |_| true)?;
    }
    let bookmarks = query.flag("allowWatchBookmarks");
    let streaming_list = query.flag("sendInitialEvents");
    if streaming_list && query.get("resourceVersionMatch") != Some("NotOlderThan") {
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "ListOptions",
            "",
            &[crate::error::FieldError::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )],
        ));
    }
    let asked = query.number("resourceVersion")?;
    let timeout = query.number("timeoutSeconds")?.filter(|t| *t > 0).unwrap_or(DEFAULT_TIMEOUT);
    let now = cluster.0.clock.monotonic();
    let mut state = cluster.state();
    let current = state.revision;
    let collection = state.collection(&target.resource.storage);
    let changed = collection.changed();
    let from_state = streaming_list || matches!(asked, None | Some(0));
    let initial = if from_state { collection.list(target.namespace.as_deref()) } else { Vec::new() };
    drop(state);
    let watch = Watch {
        cluster: cluster.clone(),
        info: WatchInfo { writer: writer.clone(), resource: target.resource.id.clone() },
        target: target.clone(),
        selectors,
        view,
        bookmarks,
        initial_end: streaming_list && bookmarks,
        cursor: if from_state { current } else { asked.unwrap_or(current) },
        deadline: now + Duration::from_secs(timeout),
        next_bookmark: now + cluster.0.bookmark_interval,
        changed,
        ready: VecDeque::new(),
        silent: false,
        closed: false,
    };
    let stream = futures::stream::unfold((watch, Some(initial)), |(mut watch, initial)| async move {
        if let Some(objects) = initial {
            watch.initial(objects).await;
        }
        let line = watch.next().await?;
        Some((Ok(line), (watch, None)))
    });
    Ok(stream_response(stream))
}

impl Watch {
    async fn initial(&mut self, objects: Vec<Arc<Object>>) {
        for object in objects {
            if self.selectors.matches(object.value()) {
                self.push(ChangeKind::Added, &object, None).await;
            }
        }
        if self.initial_end {
            let bookmark = self.bookmark(self.cursor, true);
            self.ready.push_back(bookmark);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.closed {
                return None;
            }
            let changed = self.changed.clone();
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            self.gather().await;
            if !self.ready.is_empty() || self.closed {
                continue;
            }
            let wake = if self.bookmarks && !self.silent {
                self.next_bookmark.min(self.deadline)
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                () = notified => {}
                () = tokio::time::sleep_until(wake) => self.timer(),
            }
        }
    }

    fn timer(&mut self) {
        let now = self.cluster.0.clock.monotonic();
        if now >= self.deadline {
            self.closed = true;
        }
        if self.bookmarks && !self.silent {
            self.next_bookmark = now + self.cluster.0.bookmark_interval;
            let bookmark = self.bookmark(self.cursor, false);
            self.ready.push_back(bookmark);
        }
    }

    /// Takes what happened since the cursor.
    async fn gather(&mut self) {
        let (changes, current) = {
            let mut state = self.cluster.state();
            let current = state.revision;
            (state.collection(&self.target.resource.storage).since(self.cursor), current)
        };
        let Ok(changes) = changes else {
            self.expire();
            return;
        };
        if changes.is_empty() {
            self.cursor = self.cursor.max(current);
            return;
        }
        for change in changes {
            self.cursor = change.object.resource_version();
            if self.silent {
                continue;
            }
            let Some(kind) = self.seen_as(&change) else { continue };
            let fault = self.cluster.faults().on_watch_event(&self.info);
            if self.suffer(fault, kind, &change).await {
                return;
            }
        }
    }

    /// Applies a fault to one event. Returns true when the watch has ended.
    async fn suffer(&mut self, fault: Option<WatchFault>, kind: ChangeKind, change: &Arc<Change>) -> bool {
        match fault {
            None => {}
            Some(WatchFault::Delay(delay)) => self.cluster.0.clock.sleep(delay).await,
            Some(WatchFault::Duplicate) => self.push_change(kind, change).await,
            Some(WatchFault::Silence) => {
                self.silent = true;
                return false;
            }
            Some(WatchFault::Close) => {
                self.closed = true;
                return true;
            }
            Some(WatchFault::Expire) => {
                self.expire();
                return true;
            }
        }
        self.push_change(kind, change).await;
        false
    }

    /// What the change is to someone who sees only what the selectors match.
    fn seen_as(&self, change: &Change) -> Option<ChangeKind> {
        if let Some(namespace) = &self.target.namespace
            && *namespace != *change.object.key().namespace
        {
            return None;
        }
        if self.selectors.is_everything() {
            return Some(change.kind);
        }
        let now = change.kind != ChangeKind::Deleted && self.selectors.matches(change.object.value());
        let before = change.previous.as_ref().is_some_and(|p| self.selectors.matches(p.value()));
        match (before, now) {
            (false, false) => None,
            (false, true) => Some(ChangeKind::Added),
            (true, true) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::Deleted),
        }
    }

    async fn push_change(&mut self, kind: ChangeKind, change: &Arc<Change>) {
        match &change.previous {
            // Who watched by a selector last saw the state that still matched.
            Some(previous) if kind == ChangeKind::Deleted && change.kind == ChangeKind::Modified => {
                let last = Object::relabelled(previous, change.object.resource_version());
                self.push(kind, &last, None).await;
            }
            _ => self.push(kind, &change.object, Some(change)).await,
        }
    }

    async fn push(&mut self, kind: ChangeKind, object: &Object, change: Option<&Arc<Change>>) {
        let resource = self.target.resource.clone();
        let plain = self.view == View::Object && !resource.converts(self.target.version);
        if let Some(change) = change.filter(|c| plain && c.kind == kind) {
            self.ready.push_back(change.line());
            return;
        }
        match shown(&self.cluster, &resource, self.target.version, object, self.view).await {
            Ok(bytes) => self.ready.push_back(watch_line(kind.as_str(), &bytes)),
            Err(error) => self.fail(&error),
        }
    }

    fn expire(&mut self) {
        self.fail(&ApiError::expired(format!("too old resource version: {}", self.cursor)));
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(watch_line("ERROR", &to_bytes(&error.status())));
        self.closed = true;
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata =
            json!({ "resourceVersion": revision.to_string(), "creationTimestamp": Value::Null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.view {
            View::Object => json!({
                "kind": &*self.target.resource.kind, "apiVersion": self.target.api_version(), "metadata": metadata,
            }),
            View::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            View::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": null, "rows": null,
                "metadata": metadata,
            }),
        };
        watch_line("BOOKMARK", &to_bytes(&object))
    }
}
