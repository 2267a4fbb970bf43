//! What the watches tell, as one stream: each begins when it is first needed.

use std::pin::Pin;

use crds::names::kueue;
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
use futures::stream::{SelectAll, Stream, StreamExt, select_all};
use kit::Context;
use kit::watch::{Change, Reports, Watch};
use kube::Api;
use kube::runtime::watcher::Config as WatchConfig;
use tokio::sync::watch;

use crate::config::Configuration;
use crate::jobs::{JobKind, JobObject, JobResource};
use crate::pods::{self, PodOwner, Shape};

/// What some watch told.
pub(crate) enum Seen {
    Workload(Change<Workload>),
    ClusterQueue(Change<ClusterQueue>),
    LocalQueue(Change<LocalQueue>),
    AdmissionCheck(Change<AdmissionCheck>),
    ProvisioningRequestConfig(Change<ProvisioningRequestConfig>),
    ProvisioningRequest(Change<ProvisioningRequest>),
    Flavor(Change<ResourceFlavor>),
    Cohort(Change<Cohort>),
    Namespace(Change<Namespace>),
    WorkloadPriorityClass(Change<WorkloadPriorityClass>),
    PriorityClass(Change<PriorityClass>),
    LimitRange(Change<LimitRange>),
    RuntimeClass(Change<RuntimeClass>),
    Job(&'static JobKind, Change<JobObject>),
    Pod(Change<JobObject>),
    PodOwner(&'static PodOwner, Change<JobObject>),
    Topology(Change<Topology>),
    Node(Change<Node>),
    GroundPod(Change<PlacedPod>),
    SlicePod(Change<PlacedPod>),
}

pub(crate) type Feeds = SelectAll<Pin<Box<dyn Stream<Item = Seen> + Send>>>;

/// All watches, each begun when first polled. Kinds of jobs whose CRD is not there yet are asked for from time to time.
///
/// `wants_places` becomes true when nodes, and the pods on them, are of concern; `wants_slices` when pods of elastic jobs are.
pub(crate) fn feeds(
    ctx: &Context,
    config: &Configuration,
    reports: Option<&Reports>,
    wants_places: &watch::Receiver<bool>,
    wants_slices: Option<&watch::Receiver<bool>>,
) -> Feeds {
    let client = ctx.clients.watch.clone();
    macro_rules! all {
        ($($view:ident),*) => {
            vec![$(
                reported(Watch::new(ctx, Api::<$view>::all(client.clone()), WatchConfig::default()), reports)
                    .stream()
                    .map(Seen::$view)
                    .boxed()
            ),*]
        };
    }
    type Flavor = ResourceFlavor;
    let mut feeds = all!(
        Flavor,
        Cohort,
        ClusterQueue,
        LocalQueue,
        AdmissionCheck,
        ProvisioningRequestConfig,
        Namespace,
        WorkloadPriorityClass,
        PriorityClass,
        LimitRange,
        RuntimeClass,
        Topology
    );
    // There are many of them, and they change all the time.
    let workloads = Watch::new(ctx, Api::<Workload>::all(client.clone()), WatchConfig::default());
    feeds.push(reported(workloads, reports).read_ahead().map(Seen::Workload).boxed());
    let requests = Watch::new(ctx, Api::<ProvisioningRequest>::all(client.clone()), WatchConfig::default());
    let requests = reported(requests, reports).optional().stream().map(Seen::ProvisioningRequest);
    feeds.push(requests.boxed());
    for kind in config.watched_kinds() {
        let api = Api::<JobObject>::all_with(client.clone(), &JobResource::from(kind));
        let watch = reported(Watch::new(ctx, api, WatchConfig::default()), reports).optional();
        feeds.push(watch.stream().map(move |change| Seen::Job(kind, change)).boxed());
    }
    if config.watches_pods() {
        // Nobody else's pods are of interest.
        let ours = WatchConfig::default().labels(&format!("{}=true", kueue::MANAGED));
        let api = Api::<JobObject>::all_with(client.clone(), &JobResource::from(pods::POD));
        let watch = reported(Watch::new(ctx, api, ours), reports);
        feeds.push(watch.stream().map(|change| Seen::Pod(slim(change))).boxed());
    }
    for owner in config.pod_owners().filter(|owner| !matches!(owner.shape, Shape::EachPod)) {
        let ours = match config.manage_jobs_without_queue_name {
            true => WatchConfig::default(),
            false => WatchConfig::default().labels(kueue::QUEUE_NAME),
        };
        let api = Api::<JobObject>::all_with(client.clone(), &JobResource::from(owner.kind));
        let watch = reported(Watch::new(ctx, api, ours), reports).optional();
        feeds.push(watch.stream().map(move |change| Seen::PodOwner(owner, change)).boxed());
    }
    if let Some(wanted) = wants_slices {
        // Pods of admitted jobs.
        let admitted = WatchConfig::default().labels(kueue::PODSET);
        let pods = Watch::new(ctx, Api::<PlacedPod>::all(client.clone()), admitted);
        let pods = reported(pods, reports).stream().map(Seen::SlicePod);
        feeds.push(begun_when(wanted, pods).boxed());
    }
    let nodes = Watch::new(ctx, Api::<Node>::all(client.clone()), WatchConfig::default());
    let nodes = reported(nodes, reports).stream().map(Seen::Node);
    feeds.push(begun_when(wants_places, nodes).boxed());
    let pods = Watch::new(ctx, Api::<PlacedPod>::all(client), WatchConfig::default());
    let pods = reported(pods, reports).stream().map(Seen::GroundPod);
    feeds.push(begun_when(wants_places, pods).boxed());
    select_all(feeds)
}

/// A watch that is polled first, and so begun, when it is wanted.
pub(crate) fn begun_when<S: Stream>(
    wanted: &watch::Receiver<bool>,
    watch: S,
) -> impl Stream<Item = S::Item> + use<S> {
    let mut wanted = wanted.clone();
    let begin = async move {
        // Who would say so is gone only when everything ends.
        let _nobody = wanted.wait_for(|wanted| *wanted).await;
        watch
    };
    futures::stream::once(begin).flatten()
}

fn slim(change: Change<JobObject>) -> Change<JobObject> {
    match change {
        Change::Applied(pod) => Change::Applied(pods::slim(pod)),
        other => other,
    }
}

/// Without reports nothing is counted, and no event is written about objects that cannot be read.
fn reported<K>(watch: Watch<K>, reports: Option<&Reports>) -> Watch<K>
where
    K: kube::Resource<DynamicType: Default> + serde::de::DeserializeOwned + Send + 'static,
{
    match reports {
        Some(reports) => watch.reports(reports),
        None => watch,
    }
}
