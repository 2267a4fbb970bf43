//! A stream of events in a file: one JSON object a line, as `kubectl get --watch --output-watch-events -o json` has them, with the
//! time at which each was seen.
//!
//! ```json
//! {"time":"2026-01-01T00:00:00.250Z","type":"ADDED","object":{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",…}}
//! {"time":"2026-01-01T00:00:00.251Z","type":"SYNCED","object":{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload"}}
//! ```
//!
//! `ADDED`, `MODIFIED` and `DELETED` hold an object. `RESTARTED` begins a list of a kind and `SYNCED` ends it: decisions begin when
//! the first list of every kind has ended. `BOOKMARK` is passed over, and `ENDED`, which has no object, says until when nothing more
//! happened. A line without a time is of the time of the line before.

use std::io::{BufRead, Write};
use std::marker::PhantomData;

use crds::view::Node;
use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::limits::{LimitRange, RuntimeClass};
use crds::view::local_queue::LocalQueue;
use crds::view::namespace::Namespace;
use crds::view::placed_pod::PlacedPod;
use crds::view::priority::{PriorityClass, WorkloadPriorityClass};
use crds::view::provisioning::{ProvisioningRequest, ProvisioningRequestConfig};
use crds::view::topology::Topology;
use crds::view::workload::Workload;
use futures::stream::{BoxStream, StreamExt, select_all};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::Context;
use kit::watch::{Change, Watch};
use kube::runtime::watcher::Config as WatchConfig;
use kube::{Api, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::controller::feeds::{Seen, begun_when};

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("line {line}: {source}")]
    Unreadable {
        /// Which, from 1.
        line: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A line is none of a recording.
    #[error("line {line}: {reason}")]
    Wrong {
        /// Which, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// There is nothing that decisions could rest on.
    #[error("not every kind has a line of type SYNCED: the recording ends before its first lists do")]
    NeverSynced,
}

/// A line of a recording.
pub(super) struct Line {
    pub(super) time: Option<Timestamp>,
    pub(super) seen: Option<Seen>,
}

#[derive(Deserialize)]
struct Written {
    time: Option<Timestamp>,
    r#type: String,
    #[serde(default)]
    object: Value,
}

/// The lines that are not empty.
pub(super) fn lines(recording: impl BufRead) -> impl Iterator<Item = Result<Line, ReplayError>> {
    recording.lines().enumerate().filter_map(|(index, text)| {
        let line = index + 1;
        match text {
            Ok(text) if text.trim().is_empty() => None,
            Ok(text) => Some(read(&text).map_err(|reason| ReplayError::Wrong { line, reason })),
            Err(source) => Some(Err(ReplayError::Unreadable { line, source })),
        }
    })
}

fn read(text: &str) -> Result<Line, String> {
    let Written { time, r#type, object } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if r#type == "ENDED" {
        return Ok(Line { time, seen: None });
    }
    let word = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (word("apiVersion"), word("kind"));
    macro_rules! seen {
        ($($version:literal $name:literal $variant:ident $view:ty),* $(,)?) => {
            match (version.as_str(), kind.as_str()) {
                $(($version, $name) => change::<$view>(&r#type, object)?.map(Seen::$variant),)*
                _ => return Err(format!("{kind} of {version} is no kind that decisions rest on")),
            }
        };
    }
    let seen = seen! {
        "kueue.x-k8s.io/v1beta2" "Workload" Workload Workload,
        "kueue.x-k8s.io/v1beta2" "ClusterQueue" ClusterQueue ClusterQueue,
        "kueue.x-k8s.io/v1beta2" "LocalQueue" LocalQueue LocalQueue,
        "kueue.x-k8s.io/v1beta2" "ResourceFlavor" Flavor ResourceFlavor,
        "kueue.x-k8s.io/v1beta2" "Cohort" Cohort Cohort,
        "kueue.x-k8s.io/v1beta2" "WorkloadPriorityClass" WorkloadPriorityClass WorkloadPriorityClass,
        "kueue.x-k8s.io/v1beta2" "AdmissionCheck" AdmissionCheck AdmissionCheck,
        "kueue.x-k8s.io/v1beta2" "ProvisioningRequestConfig" ProvisioningRequestConfig ProvisioningRequestConfig,
        "autoscaling.x-k8s.io/v1" "ProvisioningRequest" ProvisioningRequest ProvisioningRequest,
        "kueue.x-k8s.io/v1beta2" "Topology" Topology Topology,
        "v1" "Node" Node Node,
        "v1" "Pod" GroundPod PlacedPod,
        "v1" "Namespace" Namespace Namespace,
        "v1" "LimitRange" LimitRange LimitRange,
        "scheduling.k8s.io/v1" "PriorityClass" PriorityClass PriorityClass,
        "node.k8s.io/v1" "RuntimeClass" RuntimeClass RuntimeClass,
    };
    Ok(Line { time, seen })
}

fn change<V: for<'de> Deserialize<'de>>(kind: &str, object: Value) -> Result<Option<Change<V>>, String> {
    let object = || serde_json::from_value::<V>(object).map_err(|error| error.to_string());
    Ok(Some(match kind {
        "ADDED" | "MODIFIED" => Change::Applied(object()?),
        "DELETED" => Change::Deleted(object()?),
        "RESTARTED" => Change::Restarted,
        "SYNCED" => Change::Synced { as_of: None },
        "BOOKMARK" => return Ok(None),
        other => return Err(format!("{other:?} is no type of event")),
    }))
}

/// An object of the kind that `V` reads, whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Whole<V> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    rest: Map<String, Value>,
    #[serde(skip)]
    of: PhantomData<V>,
}

impl<V: Resource<DynamicType = ()>> Resource for Whole<V> {
    type DynamicType = ();
    type Scope = V::Scope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        V::kind(&())
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        V::group(&())
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        V::version(&())
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        V::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Type and object of a line.
type Event = (&'static str, Value);

fn events<V>(ctx: &Context) -> BoxStream<'static, Event>
where
    V: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + 'static,
{
    let api = Api::<Whole<V>>::all(ctx.clients.watch.clone());
    let kind = || json!({ "apiVersion": V::api_version(&()), "kind": V::kind(&()) });
    let whole = move |mut object: Whole<V>| {
        object.metadata.managed_fields = None;
        let mut value = kind();
        if let (Value::Object(value), Ok(Value::Object(read))) = (&mut value, serde_json::to_value(&object)) {
            value.extend(read.into_iter().filter(|(field, _)| field != "apiVersion" && field != "kind"));
        }
        value
    };
    let event = move |change| match change {
        Change::Restarted => ("RESTARTED", kind()),
        Change::Synced { .. } => ("SYNCED", kind()),
        Change::Applied(object) => ("ADDED", whole(object)),
        Change::Deleted(object) => ("DELETED", whole(object)),
    };
    Watch::new(ctx, api, WatchConfig::default()).optional().stream().map(event).boxed()
}

/// Writes every event that decisions rest on, as it is seen, until the context's tasks stop. Only the context's reading client
/// is used.
///
/// # Errors
/// When `output` cannot be written.
pub async fn record(ctx: Context, mut output: impl Write) -> std::io::Result<()> {
    // Nodes and the pods on them count where some flavor has a topology.
    let (wants_places, wanted) = watch::channel(false);
    let mut all = select_all([
        events::<ResourceFlavor>(&ctx),
        events::<Cohort>(&ctx),
        events::<ClusterQueue>(&ctx),
        events::<LocalQueue>(&ctx),
        events::<Namespace>(&ctx),
        events::<WorkloadPriorityClass>(&ctx),
        events::<PriorityClass>(&ctx),
        events::<LimitRange>(&ctx),
        events::<RuntimeClass>(&ctx),
        events::<Workload>(&ctx),
        events::<AdmissionCheck>(&ctx),
        events::<ProvisioningRequestConfig>(&ctx),
        events::<ProvisioningRequest>(&ctx),
        events::<Topology>(&ctx),
        begun_when(&wanted, events::<Node>(&ctx)).boxed(),
        begun_when(&wanted, events::<PlacedPod>(&ctx)).boxed(),
    ]);
    loop {
        let (kind, object) = tokio::select! {
            biased;
            () = ctx.tasks.stopping() => {
                writeln!(output, "{}", json!({ "time": stamp(&ctx), "type": "ENDED" }))?;
                return output.flush();
            }
            Some(event) = all.next() => event,
        };
        if object["kind"] == "ResourceFlavor" && object["spec"]["topologyName"].is_string() {
            wants_places.send_replace(true);
        }
        writeln!(output, "{}", json!({ "time": stamp(&ctx), "type": kind, "object": object }))?;
    }
}

fn stamp(ctx: &Context) -> String {
    ctx.clock.now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_none_are_named() {
        for (text, words) in [
            ("{", "line 1: EOF"),
            (
                r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret"}}"#,
                "line 1: Secret of v1 is no kind",
            ),
            (
                r#"{"type":"SEEN","object":{"apiVersion":"v1","kind":"Namespace"}}"#,
                "line 1: \"SEEN\" is no type",
            ),
            (
                r#"{"type":"ADDED","object":{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Workload"}}"#,
                "Workload of kueue.x-k8s.io/v1beta1",
            ),
        ] {
            let error = lines(text.as_bytes()).next().unwrap().err().unwrap().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(lines(&b"\n\n"[..]).next().is_none());
    }
}
