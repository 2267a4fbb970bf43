//! The load, as Kueue's own runner makes it: workloads come on schedule, each admitted one is finished when its time is over,
//! and an evicted one gives its reservation back.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crds::view::workload::Workload;
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kit::Context;
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::watch::{Change, watch};
use kube::Api;
use kube::runtime::watcher::Config;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::plan::{Plan, Series};
use crate::server::{collection, post};

/// Requests of the load in flight: creations, and as many others.
const IN_FLIGHT: usize = 64;
/// A write that failed is tried again after so long.
const AGAIN: Duration = Duration::from_millis(50);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From the first creation to the last end.
    pub(crate) makespan: Duration,
    /// Whether everything ended within the time limit.
    pub(crate) finished: usize,
    /// For each class: how many were admitted, and for how long they waited.
    pub(crate) waits: Vec<Waits>,
    /// Times that an admitted workload had to leave.
    pub(crate) evictions: u64,
    /// The share of all quota that was in use, on average, in percent.
    pub(crate) usage_percent: f64,
}

/// Waits of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) all: Vec<Duration>,
}

impl Waits {
    /// Their mean, in seconds.
    pub(crate) fn mean(&self) -> f64 {
        let sum: f64 = self.all.iter().map(Duration::as_secs_f64).sum();
        if self.all.is_empty() { 0.0 } else { sum / self.all.len() as f64 }
    }

    /// The 99th percentile, in seconds.
    pub(crate) fn p99(&self) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort();
        sorted.get(sorted.len().saturating_sub(1) * 99 / 100).map_or(0.0, Duration::as_secs_f64)
    }
}

type Key = (Arc<str>, String);

/// One workload as the load knows it.
struct Item {
    class: usize,
    runtime: Duration,
    milli: i64,
    created: Option<Instant>,
    admitted: Option<Instant>,
    /// Since when it runs; none while it is not admitted.
    runs_since: Option<Instant>,
    finished: bool,
    /// What of it counts as in use: from its admission until its end or its leave is on the way.
    counted: i64,
    /// As last seen.
    uid: String,
    version: String,
    conditions: Vec<Condition>,
    /// The version that a write in flight is for.
    writing: Option<String>,
    /// What was refused because somebody else wrote too: it waits until the watch brings that version.
    refused: Option<Todo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Todo {
    Finish,
    Clear,
}

enum Created {
    One(Key, Instant),
    Failed(anyhow::Error),
}

struct Load {
    items: HashMap<Key, Item>,
    due: BTreeSet<(Instant, Key, Todo)>,
    waits: Vec<Waits>,
    evictions: u64,
    finished: usize,
    used_milli_seconds: f64,
    in_use: i64,
    most_in_use: i64,
}

/// Makes the objects that are there from the beginning.
pub(crate) async fn set_up(ctx: &Context, plan: &Plan) -> Result<()> {
    // Namespaces before what is in them.
    let is_namespace = |object: &&Value| object["kind"] == "Namespace";
    for namespaces in [true, false] {
        let objects = plan.setup.iter().filter(|object| is_namespace(object) == namespaces);
        let posts = objects.map(|object| async {
            let path = collection(object)?;
            post(&ctx.clients.write, &path, object).await?;
            if object["kind"] == "Node" { open(&ctx.clients.write, &path, object).await } else { Ok(()) }
        });
        let mut posts = futures::stream::iter(posts).buffer_unordered(IN_FLIGHT);
        while let Some(done) = posts.next().await {
            done?;
        }
    }
    Ok(())
}

/// The API server taints new nodes as not ready, and nobody runs here who would take that away.
async fn open(client: &kube::Client, nodes: &str, node: &Value) -> Result<()> {
    let path = format!("{nodes}/{}", node["metadata"]["name"].as_str().unwrap_or_default());
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&json!({"spec": {"taints": null}}))?)?;
    client.request::<Value>(request).await.map(drop).context("taking a node's taints away")
}

/// Runs the whole plan, or what of it comes to an end within the limit.
pub(crate) async fn run(ctx: &Context, mut plan: Plan, limit: Duration) -> Result<Outcome> {
    let total = plan.len();
    let mut load = Load {
        items: HashMap::with_capacity(total),
        due: BTreeSet::new(),
        waits: vec![Waits::default(); plan.classes.len()],
        evictions: 0,
        finished: 0,
        used_milli_seconds: 0.0,
        in_use: 0,
        most_in_use: 0,
    };
    let clock = &ctx.clock;
    let mut changes =
        Box::pin(watch(ctx, Api::<Workload>::all(ctx.clients.watch.clone()), Config::default()));
    while !matches!(changes.next().await.context("the watch ended")?, Change::Synced { .. }) {}

    let begun = clock.monotonic();
    for series in &plan.series {
        for planned in &series.workloads {
            load.items.insert((series.namespace.clone(), planned.name.clone()), Item::of(planned));
        }
    }
    let (report, mut created) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    for series in std::mem::take(&mut plan.series) {
        ctx.tasks.spawn(create(ctx.clone(), series, room.clone(), report.clone()));
    }
    drop(report);

    let mut writes = FuturesUnordered::new();
    let mut waiting: VecDeque<(Key, Todo)> = VecDeque::new();
    while load.finished < total && clock.monotonic() - begun < limit {
        let next = load.due.first().map_or(begun + limit, |(at, _, _)| *at);
        tokio::select! {
            biased;
            Some(change) = changes.next() => {
                if let Change::Applied(view) = change {
                    load.seen(view, clock.monotonic());
                }
            }
            Some(one) = created.recv() => match one {
                Created::One(key, at) => load.created(&key, at),
                Created::Failed(error) => return Err(error),
            },
            Some((key, todo, outcome)) = writes.next(), if !writes.is_empty() => {
                load.written(&key, todo, outcome, clock.monotonic());
            }
            () = clock.sleep_until(next) => {}
        }
        let now = clock.monotonic();
        while let Some(due) = load.due.first().filter(|(at, _, _)| *at <= now).cloned() {
            load.due.remove(&due);
            waiting.push_back((due.1, due.2));
        }
        while writes.len() < IN_FLIGHT {
            let Some((key, todo)) = waiting.pop_front() else { break };
            if let Some((target, body)) = load.body(&key, todo, ctx) {
                let api = Api::<Workload>::namespaced(ctx.clients.write.clone(), &key.0);
                writes.push(async move {
                    let done = patch::merge::<_, Written>(&api, &target, body, Subresource::Status).await;
                    (key, todo, done)
                });
            }
        }
    }
    let makespan = clock.monotonic() - begun;
    let (most, quota) = (load.most_in_use, plan.quota_milli);
    ensure!(most <= quota, "{most} m were in use at once, and there are {quota} m");
    let capacity = plan.quota_milli as f64 * makespan.as_secs_f64();
    Ok(Outcome {
        makespan,
        finished: load.finished,
        waits: load.waits,
        evictions: load.evictions,
        usage_percent: if capacity > 0.0 { 100.0 * load.used_milli_seconds / capacity } else { 0.0 },
    })
}

async fn create(ctx: Context, series: Series, room: Arc<Semaphore>, report: mpsc::UnboundedSender<Created>) {
    for planned in series.workloads {
        ctx.clock.sleep(series.interval).await;
        let Ok(_permit) = room.acquire().await else { return };
        let at = ctx.clock.monotonic();
        let made = async { post(&ctx.clients.write, &collection(&planned.object)?, &planned.object).await };
        let told = match made.await {
            Ok(_) => Created::One((series.namespace.clone(), planned.name), at),
            Err(error) => Created::Failed(error),
        };
        if report.send(told).is_err() {
            return;
        }
    }
}

impl Item {
    fn of(planned: &crate::plan::Planned) -> Self {
        Self {
            class: planned.class,
            runtime: planned.runtime,
            milli: planned.milli,
            created: None,
            admitted: None,
            runs_since: None,
            finished: false,
            counted: 0,
            uid: String::new(),
            version: String::new(),
            conditions: Vec::new(),
            writing: None,
            refused: None,
        }
    }

    fn holds(&self, kind: &str) -> bool {
        self.conditions.iter().any(|one| one.type_ == kind && one.status == "True")
    }
}

impl Load {
    /// The API server has a workload: it waits from when it was sent.
    fn created(&mut self, key: &Key, at: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            item.created = Some(at);
            if let Some(admitted) = item.admitted {
                self.waits[item.class].all.push(admitted.saturating_duration_since(at));
            }
        }
    }

    fn seen(&mut self, view: Workload, now: Instant) {
        let key =
            (Arc::from(view.metadata.namespace.unwrap_or_default()), view.metadata.name.unwrap_or_default());
        let Some(item) = self.items.get_mut(&key) else { return };
        if item.finished {
            return;
        }
        item.uid = view.metadata.uid.unwrap_or_default();
        item.version = view.metadata.resource_version.unwrap_or_default();
        item.conditions = view.status.conditions;
        if let Some(todo) = item.refused.take() {
            self.due.insert((now, key.clone(), todo));
        }
        let (admitted, evicted) = (item.holds("Admitted"), item.holds("Evicted"));
        if evicted || !admitted {
            if let Some(since) = item.runs_since.take() {
                self.used_milli_seconds += item.milli as f64 * (now - since).as_secs_f64();
                self.evictions += 1;
                self.in_use -= std::mem::take(&mut item.counted);
            }
            if evicted && item.holds("QuotaReserved") {
                self.due.insert((now, key, Todo::Clear));
            }
        } else if item.runs_since.is_none() {
            item.runs_since = Some(now);
            item.counted = item.milli;
            self.in_use += item.milli;
            self.most_in_use = self.most_in_use.max(self.in_use);
            if item.admitted.is_none() {
                item.admitted = Some(now);
                if let Some(created) = item.created {
                    self.waits[item.class].all.push(now.saturating_duration_since(created));
                }
            }
            self.due.insert((now + item.runtime, key, Todo::Finish));
        }
    }

    /// The patch, if it is still to be written.
    fn body(&mut self, key: &Key, todo: Todo, ctx: &Context) -> Option<(Target, Value)> {
        let now = ctx.clock.monotonic();
        let item = self.items.get_mut(key)?;
        let wanted = match todo {
            Todo::Finish => item.runs_since.is_some_and(|since| since + item.runtime <= now),
            Todo::Clear => item.holds("Evicted") && item.holds("QuotaReserved"),
        };
        if item.finished || !wanted {
            return None;
        }
        if item.writing.is_some() {
            // It was evicted while its end was on the way: one of the two fails, and then the other is still to be done.
            self.due.insert((now + AGAIN, key.clone(), todo));
            return None;
        }
        item.writing = Some(item.version.clone());
        if todo == Todo::Finish {
            self.in_use -= std::mem::take(&mut item.counted);
        }
        let time = ctx.clock.now().to_string();
        let time = format!("{}Z", time.split(['.', 'Z']).next().unwrap_or_default());
        let set = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "by the load", "lastTransitionTime": time});
        let changed = match todo {
            Todo::Finish => vec![set("Finished", "True", "JobFinished")],
            Todo::Clear => {
                vec![set("QuotaReserved", "False", "Pending"), set("Admitted", "False", "NoReservation")]
            }
        };
        let kept =
            item.conditions.iter().filter(|one| changed.iter().all(|new| new["type"] != one.type_.as_str()));
        let mut conditions: Vec<Value> = kept.map(|one| json!(one)).collect();
        conditions.extend(changed);
        let mut body = json!({"status": {"conditions": conditions}});
        if todo == Todo::Clear {
            body["status"]["admission"] = Value::Null;
        }
        Some((Target::new(&key.1, &item.uid).at(&item.version), body))
    }

    fn written(&mut self, key: &Key, todo: Todo, outcome: Result<Written, WriteError>, now: Instant) {
        let Some(item) = self.items.get_mut(key) else { return };
        let written = item.writing.take();
        match (todo, outcome) {
            (Todo::Finish, Ok(_)) => {
                item.finished = true;
                self.finished += 1;
                if let Some(since) = item.runs_since.take() {
                    self.used_milli_seconds += item.milli as f64 * (now - since).as_secs_f64();
                }
            }
            (Todo::Clear, Ok(_)) => {}
            // Somebody else wrote: the watch brings what; then it is seen whether it is still to be done. Trying sooner
            // would only load the server, which has fallen behind already.
            (_, Err(WriteError::Conflict(_))) if written.as_ref() == Some(&item.version) => {
                item.refused = Some(todo);
            }
            (_, Err(_)) => {
                self.due.insert((now + AGAIN, key.clone(), todo));
            }
        }
    }
}
