//! Workload, as admission-controller reads it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use model::ResourceName;
use model::node::{NodeSelector, NodeSelectorTerm, Toleration};
use model::pod::{PodResources, Requirements};
use model::quantity::Written;
use model::resources::{self, ResourceList};
use model::selector::Labels;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::meta::view;
use super::runs::{Run, Runs, WrittenContainer};
use crate::api::kueue::v1beta2::{PodSetTopologyRequest, TopologyAssignment, UnhealthyNode};

view! {
    /// `kueue.x-k8s.io/v1beta2` Workload.
    pub struct Workload("Workload", crate::names::kueue::GROUP, "v1beta2", "workloads", NamespaceResourceScope) {
        /// `spec`.
        pub spec: WorkloadSpec,
        /// `status`.
        pub status: WorkloadStatus,
    }
}

impl Workload {
    /// The condition of this type, as last seen.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|one| one.type_ == kind)
    }

    /// Whether the condition of this type is True.
    pub fn holds(&self, kind: &str) -> bool {
        self.true_condition(kind).is_some()
    }

    /// Until when it is put off: `status.requeueState.requeueAt`.
    pub fn put_off_until(&self) -> Option<&Time> {
        self.status.requeue_state.as_ref().and_then(|state| state.requeue_at.as_ref())
    }

    /// The condition of this type, where it is True.
    pub fn true_condition(&self, kind: &str) -> Option<&Condition> {
        self.condition(kind).filter(|one| one.status == "True")
    }

    /// Whether a preemption gate is closed: one of which the status says nothing is.
    pub fn is_preemption_gated(&self) -> bool {
        let is_open = |name: &str| {
            self.status.preemption_gates.iter().any(|gate| gate.name == name && gate.position != "Closed")
        };
        self.spec.preemption_gates.iter().any(|gate| !is_open(&gate.name))
    }
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[PodSet]>, D::Error> {
    Vec::deserialize(deserializer).map(Arc::from)
}

/// `spec` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// `queueName`.
    pub queue_name: Option<String>,
    /// `podSets`; what many Workloads have in common is kept once (see [`model::pool`]).
    #[serde(deserialize_with = "shared")]
    pub pod_sets: Arc<[PodSet]>,
    /// `priority`.
    pub priority: Option<i32>,
    /// `priorityClassRef`.
    pub priority_class_ref: Option<PriorityClassRef>,
    /// `active`; absent is true.
    pub active: Option<bool>,
    /// `preemptionGates`.
    pub preemption_gates: Vec<PreemptionGate>,
    /// `maximumExecutionTimeSeconds`.
    pub maximum_execution_time_seconds: Option<i32>,
}

/// `spec.preemptionGates[]`, and `status.preemptionGates[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionGate {
    /// `name`.
    pub name: String,
    /// `position`, in the status only: `Open` or `Closed`.
    pub position: String,
    /// `lastTransitionTime`, in the status only.
    #[serde(deserialize_with = "super::meta::far_time")]
    pub last_transition_time: Option<Time>,
}

/// `spec.priorityClassRef`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct PriorityClassRef {
    /// `group`.
    pub group: String,
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
}

/// `spec.podSets[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// `name`.
    pub name: String,
    /// `count`; absent is 1.
    pub count: Option<i64>,
    /// `minCount`: so few pods would do.
    pub min_count: Option<i64>,
    /// `topologyRequest`.
    pub topology_request: Option<PodSetTopologyRequest>,
    /// `template`.
    pub template: PodTemplate,
}

/// `spec.podSets[].template`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// `metadata`, of which only labels and annotations count.
    #[serde(deserialize_with = "model::null_as_default")]
    pub metadata: TemplateMeta,
    /// `spec`.
    pub spec: PodSpec,
}

/// `spec.podSets[].template.metadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// `labels`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub labels: Labels,
    /// `annotations`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub annotations: BTreeMap<String, String>,
}

/// What of a pod decides about quota and flavors.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "WrittenPodSpec")]
pub struct PodSpec {
    /// What it asks for.
    pub resources: PodResources,
    /// `nodeSelector`.
    pub node_selector: Labels,
    /// `affinity`.
    pub affinity: Affinity,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `resourceClaims`, which are not supported yet: only how many.
    pub resource_claims: Vec<ResourceClaim>,
    /// `priorityClassName`.
    pub priority_class_name: Option<String>,
    /// `runtimeClassName`.
    pub runtime_class_name: Option<String>,
    /// What its containers run.
    pub runs: Runs,
}

/// The same as it is written, side by side. To flatten the resources would read every template twice, and templates are
/// most of what is listed at a start.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenPodSpec {
    #[serde(deserialize_with = "model::null_as_default")]
    init_containers: Vec<WrittenContainer>,
    #[serde(deserialize_with = "model::null_as_default")]
    containers: Vec<WrittenContainer>,
    #[serde(deserialize_with = "model::null_as_default")]
    overhead: BTreeMap<ResourceName, Written>,
    resources: Option<Requirements>,
    #[serde(deserialize_with = "model::null_as_default")]
    node_selector: Labels,
    #[serde(deserialize_with = "model::null_as_default")]
    affinity: Affinity,
    #[serde(deserialize_with = "model::null_as_default")]
    tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "model::null_as_default")]
    resource_claims: Vec<ResourceClaim>,
    priority_class_name: Option<String>,
    runtime_class_name: Option<String>,
}

impl From<WrittenPodSpec> for PodSpec {
    fn from(written: WrittenPodSpec) -> Self {
        let apart = |all: Vec<WrittenContainer>| all.into_iter().map(WrittenContainer::apart).unzip();
        let (init_containers, initial): (_, Vec<Run>) = apart(written.init_containers);
        let (containers, lasting): (_, Vec<Run>) = apart(written.containers);
        Self {
            runs: Runs::of(&initial, &lasting),
            resources: PodResources {
                init_containers,
                containers,
                overhead: written.overhead,
                resources: written.resources,
            },
            node_selector: written.node_selector,
            affinity: written.affinity,
            tolerations: written.tolerations,
            resource_claims: written.resource_claims,
            priority_class_name: written.priority_class_name,
            runtime_class_name: written.runtime_class_name,
        }
    }
}

/// `resourceClaims[]` of a pod: that there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct ResourceClaim {}

/// `affinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// `nodeAffinity`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_affinity: NodeAffinity,
}

/// `affinity.nodeAffinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// `preferredDuringSchedulingIgnoredDuringExecution`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredTerm>,
}

/// A term of preferred node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct PreferredTerm {
    /// `weight`.
    pub weight: i64,
    /// `preference`.
    pub preference: NodeSelectorTerm,
}

/// `status` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// `admission`.
    pub admission: Option<Admission>,
    /// `requeueState`.
    pub requeue_state: Option<RequeueState>,
    /// `schedulingStats`.
    pub scheduling_stats: SchedulingStats,
    /// `preemptionGates`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub preemption_gates: Vec<PreemptionGate>,
    /// `reclaimablePods`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// `admissionChecks`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// `clusterName`: only whether it is there.
    pub cluster_name: Option<IgnoredAny>,
    /// `nominatedClusterNames`: only whether they are there.
    pub nominated_cluster_names: Option<IgnoredAny>,
    /// `resourceRequests`.
    #[serde(deserialize_with = "requested")]
    pub resource_requests: Option<Requested>,
    /// `unhealthyNodes`: nodes that failed under it.
    #[serde(deserialize_with = "model::null_as_default")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// `accumulatedPastExecutionTimeSeconds`.
    pub accumulated_past_execution_time_seconds: Option<i32>,
}

impl WorkloadStatus {
    /// Whether other clusters have it, or were offered it.
    pub fn is_offered(&self) -> bool {
        self.cluster_name.is_some() || self.nominated_cluster_names.is_some()
    }
}

/// `status.resourceRequests`, of which only matters whether they are those that would be written: every workload that waits
/// has them, so they are kept as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requested(NonZeroU64);

impl Requested {
    /// What these pod sets ask for, in base units.
    pub fn of(pod_sets: &[(impl AsRef<str>, ResourceList)]) -> Self {
        let mut hasher = DefaultHasher::new();
        for (name, amounts) in pod_sets {
            name.as_ref().hash(&mut hasher);
            amounts.len().hash(&mut hasher);
            for (resource, amount) in amounts {
                // No quantity is below that, so this is what the very least reads as.
                (resource, (*amount).max(-i64::MAX)).hash(&mut hasher);
            }
        }
        Self(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
    }
}

/// `status.resourceRequests[]`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodSetRequest {
    name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    resources: BTreeMap<ResourceName, Written>,
}

fn requested<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Requested>, D::Error> {
    let written = Option::<Vec<PodSetRequest>>::deserialize(deserializer)?;
    let read = |one: PodSetRequest| -> (String, ResourceList) {
        let amounts = one.resources.into_iter().map(|(resource, written)| {
            let (amount, _) = resources::read(&resource, &written);
            (resource, amount)
        });
        (one.name, amounts.collect())
    };
    Ok(written.map(|list| Requested::of(&list.into_iter().map(read).collect::<Vec<_>>())))
}

/// `status.reclaimablePods[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReclaimablePod {
    /// `name`: the pod set's.
    pub name: String,
    /// `count`: pods that need their quota no more.
    pub count: i64,
}

/// `status.admissionChecks[]`, whole: a list is replaced as one, and what others wrote of theirs must stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckState {
    /// `name`: the AdmissionCheck's.
    pub name: String,
    /// `state`.
    pub state: CheckState,
    /// `lastTransitionTime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "super::meta::far_time")]
    pub last_transition_time: Option<Time>,
    /// `message`.
    pub message: String,
    /// `requeueAfterSeconds`: counted from the last transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    /// `retryCount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// `podSetUpdates`, word for word; see [`PodSetUpdate`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "model::null_as_default")]
    pub pod_set_updates: Vec<serde_json::Value>,
}

/// `status.admissionChecks[].podSetUpdates[]`: what pods of a set get when their job is started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetUpdate {
    /// `name`: the pod set's.
    pub name: String,
    /// `labels`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub labels: Labels,
    /// `annotations`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// `nodeSelector`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_selector: Labels,
    /// `tolerations`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub tolerations: Vec<Toleration>,
}

/// `status.admissionChecks[].state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckState {
    /// Not known yet.
    #[default]
    Pending,
    /// Passed.
    Ready,
    /// Not now: the workload gives its quota back and tries again.
    Retry,
    /// Never: the workload is deactivated.
    Rejected,
}

/// `status.schedulingStats`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulingStats {
    /// `evictions`.
    pub evictions: Vec<Evictions>,
}

/// `status.schedulingStats.evictions[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evictions {
    /// `reason`: of condition Evicted.
    pub reason: String,
    /// `underlyingCause`: what deactivated it; empty otherwise.
    pub underlying_cause: String,
    /// `count`.
    pub count: i32,
}

/// `status.requeueState`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeueState {
    /// `count`: how often it was put off.
    pub count: Option<i32>,
    /// `requeueAt`.
    #[serde(deserialize_with = "super::meta::far_time")]
    pub requeue_at: Option<Time>,
}

/// `status.admission`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// `clusterQueue`.
    pub cluster_queue: String,
    /// `podSetAssignments`.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// `status.admission.podSetAssignments[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetAssignment {
    /// `name`.
    pub name: String,
    /// `flavors`.
    pub flavors: BTreeMap<ResourceName, String>,
    /// `resourceUsage`: of all the pod set's pods together.
    pub resource_usage: BTreeMap<ResourceName, Written>,
    /// `count`.
    pub count: Option<i64>,
    /// `topologyAssignment`.
    pub topology_assignment: Option<TopologyAssignment>,
    /// `delayedTopologyRequest`: `Pending` or `Ready`.
    pub delayed_topology_request: Option<String>,
}
