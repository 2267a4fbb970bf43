//! What the engine is told: the objects of `kueue.x-k8s.io`, read, checked and reduced to what decides.

mod quota;
mod workload;

use std::sync::Arc;

use model::ResourceList;
use model::selector::Labels;

use crate::history::Amounts;
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey};
use crate::topology::Node;
use crate::uid::Uid;

pub use quota::*;
pub use workload::*;

/// One change of the world. Deletions name the uid, so that a late one cannot remove a successor of the same name.
#[derive(Clone, Debug)]
pub enum Event {
    /// A ResourceFlavor was added or changed.
    Flavor(Flavor),
    /// A ResourceFlavor is gone.
    FlavorGone(FlavorName, Uid),
    /// A Topology was added or changed: its name and the node labels of its levels, outermost first.
    Topology(String, Vec<String>),
    /// A Topology is gone.
    TopologyGone(String),
    /// A node was added or changed.
    Node(Node),
    /// A node is gone.
    NodeGone(Arc<str>),
    /// A pod that is not placed by topology asks for this much of this node.
    Pod(Uid, Arc<str>, Arc<ResourceList>),
    /// Such a pod is gone, or has ended.
    PodGone(Uid),
    /// A ClusterQueue was added or changed.
    ClusterQueue(ClusterQueue),
    /// A ClusterQueue is gone.
    ClusterQueueGone(ClusterQueueName, Uid),
    /// A Cohort was added or changed.
    Cohort(Cohort),
    /// A Cohort is gone; queues that name it still share an implicit one without limits.
    CohortGone(CohortName, Uid),
    /// A LocalQueue was added or changed.
    LocalQueue(LocalQueue),
    /// A LocalQueue is gone.
    LocalQueueGone(LocalQueueKey, Uid),
    /// What the status of a LocalQueue says it has used. It counts until the engine decides: from then on it keeps account
    /// itself.
    LocalQueueHistory(LocalQueueKey, Amounts),
    /// An AdmissionCheck was added or changed.
    AdmissionCheck(AdmissionCheck),
    /// An AdmissionCheck is gone.
    AdmissionCheckGone(CheckName, Uid),
    /// A namespace was added, or its labels changed.
    Namespace(Arc<str>, Labels),
    /// A namespace is gone.
    NamespaceGone(Arc<str>),
    /// A Workload was added or changed.
    Workload(Box<Workload>),
    /// A Workload's pods will ask for something else than was known, though the Workload itself did not change: what the
    /// API server adds to pods has changed. Given are its pod sets and its defect. Who holds quota keeps what was granted.
    Requests(Uid, Arc<[PodSet]>, Option<String>),
    /// A Workload is gone.
    WorkloadGone(Uid),
}
