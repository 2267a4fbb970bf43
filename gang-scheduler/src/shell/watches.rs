//! The eight watches, as one stream of steps for the core.

use std::collections::BTreeSet;

use crds::view;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kit::Context;
use kit::watch::{Change, Reports, Watch};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use placement_engine::PodUid;
use serde::de::DeserializeOwned;

use crate::core::Core;
use crate::grouping::Key;

/// At so many steps the consequences are drawn even if more are waiting.
const BATCH: usize = 1_000;

/// One kind: its watch, and what is known to exist.
struct Kind<K> {
    stream: BoxStream<'static, Change<K>>,
    known: BTreeSet<(Key, String)>,
    listed: Option<BTreeSet<(Key, String)>>,
    synced: bool,
}

/// What one change means.
enum Told<K> {
    Applied(Box<K>),
    Gone(Vec<(Key, String)>),
}

impl<K> Kind<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    fn new(ctx: &Context, reports: &Reports, optional: bool) -> Self {
        Self {
            stream: Self::open(ctx, reports, optional),
            known: BTreeSet::new(),
            listed: None,
            synced: false,
        }
    }

    fn open(ctx: &Context, reports: &Reports, optional: bool) -> BoxStream<'static, Change<K>> {
        let api = Api::<K>::all(ctx.clients.watch.clone());
        let watch = Watch::new(ctx, api, kube::runtime::watcher::Config::default()).reports(reports);
        let watch = if optional { watch.optional() } else { watch };
        watch.stream().boxed()
    }

    /// Lists anew; not synced before that is done.
    fn restart(&mut self, ctx: &Context, reports: &Reports, optional: bool) {
        self.stream = Self::open(ctx, reports, optional);
        self.synced = false;
    }

    fn take(&mut self, change: Change<K>) -> Told<K> {
        match change {
            Change::Restarted => {
                self.listed = Some(BTreeSet::new());
                Told::Gone(Vec::new())
            }
            Change::Applied(object) => {
                let id = id_of(&object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(id.clone());
                }
                self.known.insert(id);
                Told::Applied(Box::new(object))
            }
            Change::Synced { .. } => {
                self.synced = true;
                let Some(listed) = self.listed.take() else { return Told::Gone(Vec::new()) };
                let gone: Vec<_> = self.known.difference(&listed).cloned().collect();
                self.known = listed;
                Told::Gone(gone)
            }
            Change::Deleted(object) => {
                let id = id_of(&object);
                self.known.remove(&id);
                Told::Gone(vec![id])
            }
        }
    }

    /// The names of what is gone that nobody has now: of kinds without a namespace, where a namesake may have come since.
    fn freed<'a>(&'a self, gone: &'a [(Key, String)]) -> impl Iterator<Item = &'a str> {
        let names = gone.iter().map(|((_, name), _)| name.as_ref());
        names.filter(|name| !self.known.iter().any(|(key, _)| key.1.as_ref() == *name))
    }
}

fn id_of<K: Resource>(object: &K) -> (Key, String) {
    let key = (object.namespace().unwrap_or_default().into(), object.name_any().into());
    (key, object.uid().unwrap_or_default())
}

/// All that is watched.
pub(crate) struct Watches {
    reports: Reports,
    nodes: Kind<view::Node>,
    gpu_nodes: Kind<view::GpuNodeDevices>,
    groups: Kind<view::PodGroup>,
    workloads: Kind<view::WorkloadPlacement>,
    jobs: Kind<view::JobOwner>,
    priorities: Kind<view::priority::PriorityClass>,
    placements: Kind<view::GangPlacement>,
    pods: Kind<view::Pod>,
}

#[expect(clippy::large_enum_variant, reason = "one at a time, moved at once")]
enum Seen {
    Node(Change<view::Node>),
    GpuNode(Change<view::GpuNodeDevices>),
    Group(Change<view::PodGroup>),
    Workload(Change<view::WorkloadPlacement>),
    Job(Change<view::JobOwner>),
    Priority(Change<view::priority::PriorityClass>),
    Placement(Change<view::GangPlacement>),
    Pod(Change<view::Pod>),
}

impl Watches {
    /// Opens the watches. Kinds that neighbours bring may be missing.
    pub(crate) fn new(ctx: &Context, reports: &Reports) -> Self {
        Self {
            reports: reports.clone(),
            nodes: Kind::new(ctx, reports, false),
            gpu_nodes: Kind::new(ctx, reports, true),
            groups: Kind::new(ctx, reports, true),
            workloads: Kind::new(ctx, reports, true),
            jobs: Kind::new(ctx, reports, false),
            priorities: Kind::new(ctx, reports, false),
            placements: Kind::new(ctx, reports, true),
            pods: Kind::new(ctx, reports, false),
        }
    }

    /// Lists pods and plans anew: what a predecessor bound last may not have been told yet, and nothing must be decided
    /// before it has. What is said of objects that are left out was not said by this replica before: it is said again.
    pub(crate) fn refresh(&mut self, ctx: &Context) {
        self.reports.repeat();
        self.pods.restart(ctx, &self.reports, false);
        self.placements.restart(ctx, &self.reports, true);
    }

    /// Whether every kind has been listed.
    pub(crate) fn synced(&self) -> bool {
        self.nodes.synced
            && self.gpu_nodes.synced
            && self.groups.synced
            && self.workloads.synced
            && self.jobs.synced
            && self.priorities.synced
            && self.placements.synced
            && self.pods.synced
    }

    /// Waits for something to be seen, and tells the core of it and of what else is there already. Nothing is lost when
    /// it is dropped while it waits.
    pub(crate) async fn tell(&mut self, core: &mut Core, now: impl Fn() -> i64) {
        let mut seen = Some(self.next().await);
        for _ in 0..BATCH {
            let Some(change) = seen else { break };
            self.apply(core, now(), change);
            seen = self.next().now_or_never();
        }
        if let Some(change) = seen {
            self.apply(core, now(), change);
        }
        core.digest(now());
    }

    /// The kinds that say what pods mean come before pods. A stream that ends never speaks again; they never end.
    async fn next(&mut self) -> Seen {
        tokio::select! {
            biased;
            Some(change) = self.nodes.stream.next() => Seen::Node(change),
            Some(change) = self.gpu_nodes.stream.next() => Seen::GpuNode(change),
            Some(change) = self.priorities.stream.next() => Seen::Priority(change),
            Some(change) = self.workloads.stream.next() => Seen::Workload(change),
            Some(change) = self.groups.stream.next() => Seen::Group(change),
            Some(change) = self.jobs.stream.next() => Seen::Job(change),
            Some(change) = self.placements.stream.next() => Seen::Placement(change),
            Some(change) = self.pods.stream.next() => Seen::Pod(change),
            else => std::future::pending().await,
        }
    }

    fn apply(&mut self, core: &mut Core, now: i64, seen: Seen) {
        match seen {
            Seen::Node(change) => match self.nodes.take(change) {
                Told::Applied(node) => core.node_applied(now, &node),
                Told::Gone(gone) => self.nodes.freed(&gone).for_each(|name| core.node_deleted(now, name)),
            },
            Seen::GpuNode(change) => match self.gpu_nodes.take(change) {
                Told::Applied(node) => core.gpu_node_applied(now, &node),
                Told::Gone(gone) => {
                    self.gpu_nodes.freed(&gone).for_each(|name| core.gpu_node_deleted(now, name))
                }
            },
            Seen::Group(change) => match self.groups.take(change) {
                Told::Applied(group) => core.group_applied(now, *group),
                Told::Gone(gone) => gone.iter().for_each(|(key, uid)| core.group_deleted(now, key, uid)),
            },
            Seen::Workload(change) => match self.workloads.take(change) {
                Told::Applied(workload) => core.workload_applied(now, &workload),
                Told::Gone(gone) => gone.iter().for_each(|(_, uid)| core.workload_deleted(now, uid)),
            },
            Seen::Job(change) => match self.jobs.take(change) {
                Told::Applied(job) => core.job_applied(now, &job),
                Told::Gone(gone) => gone.iter().for_each(|(_, uid)| core.job_deleted(uid)),
            },
            Seen::Priority(change) => match self.priorities.take(change) {
                Told::Applied(class) => {
                    core.priority_class(
                        now,
                        class.metadata.name.as_deref().unwrap_or_default(),
                        Some(class.value),
                    );
                }
                Told::Gone(gone) => {
                    self.priorities.freed(&gone).for_each(|name| core.priority_class(now, name, None));
                }
            },
            Seen::Placement(change) => match self.placements.take(change) {
                Told::Applied(placement) => core.placement_applied(&placement),
                Told::Gone(gone) => gone.iter().for_each(|(_, uid)| core.placement_deleted(uid)),
            },
            Seen::Pod(change) => match self.pods.take(change) {
                Told::Applied(pod) => core.pod_applied(now, &pod),
                Told::Gone(gone) => {
                    gone.iter().for_each(|(_, uid)| core.pod_deleted(now, &PodUid::new(uid.as_str())));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, uid: &str) -> view::Node {
        let text = format!(r#"{{"metadata": {{"name": "{name}", "uid": "{uid}"}}}}"#);
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Each of a list's objects, and the names that are free after it.
    #[test]
    fn a_name_that_another_has_by_now_is_not_free() {
        for (listed, free) in [
            (&[("a", "1"), ("b", "2")][..], &[][..]),
            (&[("a", "3"), ("b", "2")], &[]),
            (&[("b", "4")], &["a"]),
            (&[], &["a", "b"]),
        ] {
            let stream = futures::stream::pending().boxed();
            let mut kind = Kind::<view::Node> { stream, known: BTreeSet::new(), listed: None, synced: false };
            kind.take(Change::Applied(node("a", "1")));
            kind.take(Change::Applied(node("b", "2")));
            kind.take(Change::Restarted);
            for (name, uid) in listed {
                kind.take(Change::Applied(node(name, uid)));
            }
            let Told::Gone(gone) = kind.take(Change::Synced { as_of: Some(9) }) else { unreachable!() };
            assert_eq!(kind.freed(&gone).collect::<Vec<_>>(), free, "{listed:?}");
        }
    }
}
