//! The yardstick: the least that an admission can cost. One number per cohort, one merge patch per admission; no flavors, no
//! limits, no preemption, no status, no events.
//!
//! Who is at least as fast with full semantics has nothing left to gain but fewer and smaller writes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

use anyhow::Result;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::workload::Workload;
use futures::stream::{FuturesUnordered, StreamExt as _};
use kit::context::ServiceTable;
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::watch::{Change, watch};
use kit::{Clients, Clock, Context, Identity, Rng, Tasks};
use kube::Api;
use kube::runtime::watcher::Config;
use serde_json::json;

/// Under which it writes.
pub(crate) const NAME: &str = "stub";
/// Requests in flight: as many as the shipped program has.
const IN_FLIGHT: usize = 64;

/// A pending workload.
struct Waiting {
    uid: String,
    namespace: String,
    name: String,
    queue: String,
    count: i64,
}

#[derive(Default)]
struct Cohort {
    free: i64,
    /// By priority, then by size; each first in, first out.
    pending: BTreeMap<(Reverse<i32>, i64), VecDeque<Waiting>>,
}

#[derive(Default)]
struct Stub {
    cohort_of: HashMap<String, String>,
    cohorts: BTreeMap<String, Cohort>,
    /// By uid.
    seen: HashMap<String, Seen>,
    /// Whose write failed.
    again: Vec<Waiting>,
}

/// What is known of a workload.
struct Seen {
    cohort: String,
    amount: i64,
    /// Whether it has the amount.
    holds: bool,
}

/// Admits whatever comes, until it is killed.
pub(crate) async fn run(kubeconfig: &Path) -> Result<()> {
    let Clients { write, watch: watches, lease } = kit::client::connect(Some(kubeconfig), None, NAME).await?;
    let ctx = Context {
        clients: Clients { write: write.clone(), watch: watches.clone(), lease },
        clock: Clock::System,
        rng: Rng::from_entropy(),
        tasks: Tasks::new(),
        identity: Identity::new(NAME),
        services: ServiceTable::new(),
    };
    let mut stub = Stub::default();
    let mut queues = Box::pin(watch(&ctx, Api::<ClusterQueue>::all(watches.clone()), Config::default()));
    while let Some(change) = queues.next().await {
        match change {
            Change::Applied(queue) => stub.queue(&queue),
            Change::Synced { .. } => break,
            Change::Restarted | Change::Deleted(_) => {}
        }
    }
    let mut workloads = Box::pin(watch(&ctx, Api::<Workload>::all(watches), Config::default()));
    let mut writes = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(failed) = writes.next(), if !writes.is_empty() => stub.again.extend(failed),
            Some(change) = workloads.next() => match change {
                Change::Applied(workload) => stub.workload(&workload),
                Change::Deleted(workload) => stub.gone(&workload),
                Change::Restarted | Change::Synced { .. } => {}
            },
        }
        while writes.len() < IN_FLIGHT {
            let Some(one) = stub.next() else { break };
            writes.push(admit(write.clone(), one));
        }
    }
}

async fn admit(client: kube::Client, one: Waiting) -> Option<Waiting> {
    let now = Clock::System.now().to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now});
    let body = json!({"status": {
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": one.queue, "podSetAssignments": [{"name": "main", "count": one.count}]},
    }});
    let api = Api::<Workload>::namespaced(client, &one.namespace);
    let target = Target::new(&one.name, &one.uid);
    match patch::merge::<_, Written>(&api, &target, body, Subresource::Status).await {
        Ok(_) | Err(WriteError::Gone) => None,
        Err(_) => Some(one),
    }
}

/// Thousandths of a core that it asks for in all.
fn asked(workload: &Workload) -> i64 {
    let of_set = |set: &crds::view::workload::PodSet| {
        let requests = set.template.spec.resources.effective_requests().unwrap_or_default();
        let cpu = requests.iter().find(|(name, _)| name.as_str() == "cpu").map_or(0, |(_, amount)| *amount);
        cpu.saturating_mul(set.count.unwrap_or(1))
    };
    workload.spec.pod_sets.iter().map(of_set).sum()
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

impl Stub {
    fn queue(&mut self, queue: &ClusterQueue) {
        let name = text(queue.metadata.name.as_ref());
        let cohort = queue.spec.cohort_name.clone().unwrap_or_else(|| name.clone());
        let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
        let quotas = flavors.flat_map(|flavor| &flavor.resources);
        let cpu = quotas.filter(|quota| quota.name.as_str() == "cpu");
        let nominal = cpu.filter_map(|quota| quota.nominal_quota.quantity().ok()?.milli_value()).sum::<i64>();
        self.cohorts.entry(cohort.clone()).or_default().free += nominal;
        self.cohort_of.insert(name, cohort);
    }

    fn workload(&mut self, view: &Workload) {
        let uid = text(view.metadata.uid.as_ref());
        if view.holds("Finished") {
            return self.release(&uid);
        }
        if self.seen.contains_key(&uid) {
            return;
        }
        // The load names its LocalQueues after their ClusterQueues.
        let queue = view.spec.queue_name.clone().unwrap_or_default();
        let Some(cohort) = self.cohort_of.get(&queue) else { return };
        let amount = asked(view);
        self.seen.insert(uid.clone(), Seen { cohort: cohort.clone(), amount, holds: false });
        let one = Waiting {
            uid,
            namespace: text(view.metadata.namespace.as_ref()),
            name: text(view.metadata.name.as_ref()),
            queue,
            count: view.spec.pod_sets.first().and_then(|set| set.count).unwrap_or(1),
        };
        let key = (Reverse(view.spec.priority.unwrap_or_default()), amount);
        if let Some(cohort) = self.cohorts.get_mut(cohort) {
            cohort.pending.entry(key).or_default().push_back(one);
        }
    }

    fn gone(&mut self, view: &Workload) {
        self.release(view.metadata.uid.as_deref().unwrap_or_default());
    }

    fn release(&mut self, uid: &str) {
        let Some(seen) = self.seen.get_mut(uid) else { return };
        if std::mem::take(&mut seen.holds)
            && let Some(cohort) = self.cohorts.get_mut(&seen.cohort)
        {
            cohort.free += seen.amount;
        }
    }

    /// The next that fits, charged.
    fn next(&mut self) -> Option<Waiting> {
        if let Some(again) = self.again.pop() {
            return Some(again);
        }
        for cohort in self.cohorts.values_mut() {
            for ((_, amount), line) in &mut cohort.pending {
                if *amount > cohort.free {
                    continue;
                }
                if let Some(one) = line.pop_front() {
                    cohort.free -= amount;
                    if let Some(seen) = self.seen.get_mut(&one.uid) {
                        seen.holds = true;
                    }
                    return Some(one);
                }
            }
        }
        None
    }
}
