use std::collections::BTreeMap;
use std::sync::Arc;

use model::node::Taint;
use model::resources::ResourceList;

use crate::devices::{Device, DeviceChoice};
use crate::ids::{GangId, PodUid};
use crate::reason::Hold;
use crate::shape::PodRules;

/// Something the engine must know. Fed by the one task that owns it, in the order in which it was learnt.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node is there, or changed.
    NodeApplied(NodeInfo),
    /// The node of this name is gone.
    NodeDeleted(Arc<str>),
    /// The devices of a node, from its `GpuNode` (whole GPUs, `nvidia.com/gpu`). Empty: unknown, only counts matter.
    DevicesApplied {
        /// The node's name.
        node: Arc<str>,
        /// Its devices.
        devices: Vec<Device>,
    },
    /// A pod is there, or changed: ours to place or bound by whomever.
    PodApplied(Box<PodInfo>),
    /// The pod with this uid is gone.
    PodDeleted(PodUid),
    /// A gang's rules are known, or changed.
    GangApplied(GangSpec),
    /// The gang is gone. Its pods, if any are left, are no longer placed.
    GangDeleted(GangId),
    /// The API server refused the bind of an assumed placement: the pod waits again and avoids that node for a while.
    BindRefused {
        /// The pod.
        pod: PodUid,
        /// What the server said.
        problem: Arc<str>,
    },
    /// A gang's plan could not be made durable, through no node's fault: nothing of it is placed for a while. Its
    /// placements are dropped one by one.
    PlanRefused {
        /// The gang.
        gang: GangId,
        /// What the server said.
        problem: Arc<str>,
    },
    /// The write of an assumed placement was never sent, or is pointless by now: the pod waits again.
    PlacementDropped(PodUid),
    /// A durable plan that this process did not make itself: its unbound members are assumed where it says, as far as
    /// that is still possible ([`Engine::assumed`](crate::Engine::assumed) tells).
    PlanFound(Vec<(PodUid, Arc<str>, DeviceChoice)>),
    /// A deletion of an [`Undo`](crate::Undo) ended without effect, or nobody knows: decide again.
    UndoFailed(PodUid),
    /// Leadership was lost: forget what was assumed; whoever leads says what becomes of it.
    StoodDown,
}

/// What placement depends on in a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInfo {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// `status.allocatable`, in base units.
    pub allocatable: ResourceList,
}

/// What became of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Pending, running or unknown: it holds its node's resources.
    #[default]
    Active,
    /// `Succeeded`.
    Succeeded,
    /// `Failed` after it ran.
    Failed,
    /// `Failed` without having run: the kubelet refused to start it (`OutOf…`, `UnexpectedAdmissionError`, `NodeAffinity`,
    /// …), or it was ended before it had a node.
    Rejected,
}

/// What placement depends on in a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInfo {
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The gang it is a member of. `None`: another scheduler's pod, only counted.
    pub gang: Option<GangId>,
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    /// What became of it.
    pub phase: PodPhase,
    /// It has scheduling gates: never touched.
    pub gated: bool,
    /// It has a deletion timestamp: never placed, and no longer counted as a member.
    pub deleting: bool,
    /// It has a controller that recreates it when it is deleted.
    pub has_controller: bool,
    /// `spec.priority`.
    pub priority: i32,
    /// Effective requests in base units, without `pods` (the engine adds one).
    pub requests: ResourceList,
    /// Where it may run.
    pub rules: PodRules,
    /// Per container, what it asks of resources that come in devices.
    pub devices_asked: BTreeMap<String, ResourceList>,
    /// The devices it was given (annotation `trireme.dev/devices`), when it is bound.
    pub devices: DeviceChoice,
    /// Why it must not be placed although it could be.
    pub hold: Option<Hold>,
    /// What the kubelet said, when it rejected the pod.
    pub rejection: Option<Arc<str>>,
    /// What it is in its gang (Volcano's task): members of one role count towards the role's own minimum.
    pub role: Option<Arc<str>>,
}

/// The rules of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangSpec {
    /// Its id.
    pub id: GangId,
    /// So many members run together, or none does. 0 and 1 mean: each pod on its own.
    pub min_member: u32,
    /// So many members must exist before the first decision (at least `min_member` must in any case).
    pub expected: u32,
    /// Creation of the object that defines it, milliseconds since the Unix epoch: the second key of the order.
    pub created_ms: i64,
    /// What the order between gangs looks at first. `None`: the highest priority of its members.
    pub priority: Option<i32>,
    /// So many members of a role run, or none does (Volcano's `minTaskMember`).
    pub roles: BTreeMap<Arc<str>, u32>,
    /// Why none of it may be placed although it could be.
    pub hold: Option<Hold>,
}
