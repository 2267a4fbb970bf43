//! What the engine remembers of a gang, and how its members are counted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{GangSpec, PodInfo, PodPhase};
use crate::ids::{NodeIndex, PodUid, ShapeId};
use crate::nodes::Load;
use crate::reason::{Hold, Refusal, Why};

/// A pod as the engine knows it.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) info: PodInfo,
    pub(crate) shape: Option<ShapeId>,
    pub(crate) spot: Spot,
    pub(crate) load: Load,
    /// Its deletion was decided and has not been seen.
    pub(crate) undone: bool,
}

/// Where a pod's resources are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Nowhere: it waits, or it has ended.
    Nowhere,
    /// A decision of ours that the server has neither confirmed nor refused.
    Assumed(NodeIndex),
    /// `spec.nodeName` says so.
    Bound(NodeIndex),
}

impl Spot {
    pub(crate) fn node(self) -> Option<NodeIndex> {
        match self {
            Self::Nowhere => None,
            Self::Assumed(node) | Self::Bound(node) => Some(node),
        }
    }
}

/// A gang as the engine knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gang {
    pub(crate) spec: Option<GangSpec>,
    pub(crate) members: BTreeSet<PodUid>,
    /// Something about it changed since it was last looked at.
    pub(crate) dirty: bool,
    /// The engine's count of freed capacity when it was last tried.
    pub(crate) tried: u64,
    /// Nothing of it is placed before this time.
    pub(crate) retry_at: Option<i64>,
    /// What was refused last.
    pub(crate) refusal: Refusal,
    /// When that was.
    pub(crate) refused_at: Option<i64>,
    /// Refusals without a longer quiet time in between.
    pub(crate) failures: u32,
    /// Nodes that refused a member, and until when they are left alone.
    pub(crate) avoid: BTreeMap<Arc<str>, i64>,
    /// Since when it runs with fewer than its minimum.
    pub(crate) below_since: Option<i64>,
    /// Members with scheduling gates, when it was last looked at.
    pub(crate) gated: usize,
    /// What was last said about why it waits.
    pub(crate) said: Option<(Why, BTreeMap<PodUid, Why>)>,
}

/// The members of a gang by what can be done with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    /// May be placed, by priority, length of name and name: `worker-2` before `worker-10`.
    pub(crate) waiting: Vec<PodUid>,
    pub(crate) held: BTreeMap<PodUid, Hold>,
    pub(crate) gated: usize,
    pub(crate) assumed: usize,
    /// Bound, running or about to.
    pub(crate) bound: Vec<PodUid>,
    pub(crate) succeeded: usize,
    /// Failed after having run.
    pub(crate) failed: usize,
    /// Whose deletion was decided and has not been seen: until it is, nothing begins anew.
    pub(crate) undone: usize,
    pub(crate) priority: i32,
    /// By role: members that need no place any more.
    settled: BTreeMap<Arc<str>, usize>,
}

impl Census {
    pub(crate) fn of(members: &BTreeSet<PodUid>, pods: &BTreeMap<PodUid, Pod>) -> Self {
        let mut census = Self { priority: i32::MIN, ..Self::default() };
        for (uid, pod) in members.iter().filter_map(|uid| pods.get_key_value(uid)) {
            let info = &pod.info;
            census.priority = census.priority.max(info.priority);
            if let (Some(role), true) = (&info.role, settled(pod)) {
                *census.settled.entry(role.clone()).or_default() += 1;
            }
            census.undone += usize::from(pod.undone);
            match (info.phase, pod.spot) {
                (PodPhase::Active, Spot::Assumed(_)) => census.assumed += 1,
                // However it ends: it is soon gone, and may have been sent away.
                _ if info.deleting => {}
                (PodPhase::Succeeded, _) => census.succeeded += 1,
                (PodPhase::Failed, _) => census.failed += 1,
                (PodPhase::Rejected, _) => {}
                (PodPhase::Active, Spot::Bound(_)) => census.bound.push(uid.clone()),
                (PodPhase::Active, Spot::Nowhere) if info.gated => census.gated += 1,
                (PodPhase::Active, Spot::Nowhere) => match &info.hold {
                    Some(hold) => {
                        census.held.insert(uid.clone(), hold.clone());
                    }
                    None => census.waiting.push(uid.clone()),
                },
            }
        }
        census.waiting.sort_by_key(|uid| {
            let info = pods.get(uid).map(|pod| &pod.info);
            info.map(|info| (Reverse(info.priority), info.name.len(), info.name.clone(), uid.clone()))
        });
        census
    }

    pub(crate) fn placed(&self) -> usize {
        self.bound.len() + self.assumed
    }

    /// Members that need no place any more. One that failed counts as long as others of its generation run: whether the
    /// job goes on without it is for its controller to say; when nothing runs, what comes next is a new attempt.
    pub(crate) fn satisfied(&self) -> usize {
        self.succeeded + if self.placed() > 0 { self.failed } else { 0 }
    }

    /// So many more of each role must be placed together with the rest, and how many there are.
    ///
    /// Roles with smaller minima than the gang's have no say (Volcano's `CheckTaskReady`): when the minimum of the gang is
    /// below their sum, they are not looked at.
    pub(crate) fn missing_of_roles(&self, spec: &GangSpec) -> BTreeMap<Arc<str>, (usize, usize)> {
        let sum = spec.roles.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        if spec.min_member < sum {
            return BTreeMap::new();
        }
        let missing = spec.roles.iter().map(|(role, need)| {
            let have = self.settled.get(role).copied().unwrap_or(0);
            (role.clone(), (usize::try_from(*need).unwrap_or(usize::MAX).saturating_sub(have), have))
        });
        missing.filter(|(_, (missing, _))| *missing > 0).collect()
    }

    /// Whether the minimum is bound. Until then nobody joins: a bind outside the plan could come first, and be all that is
    /// left of the gang after a crash.
    pub(crate) fn stands(&self, min_member: u32) -> bool {
        self.bound.len() + self.satisfied() >= usize::try_from(min_member).unwrap_or(usize::MAX)
    }

    /// So many more must be placed together.
    pub(crate) fn missing(&self, min_member: u32) -> usize {
        let minimum = usize::try_from(min_member).unwrap_or(usize::MAX);
        minimum.saturating_sub(self.placed() + self.satisfied())
    }
}

/// Whether the pod counts towards its role's minimum without being placed.
fn settled(pod: &Pod) -> bool {
    let counts = match pod.info.phase {
        PodPhase::Succeeded | PodPhase::Failed => true,
        PodPhase::Rejected => false,
        PodPhase::Active => pod.spot != Spot::Nowhere,
    };
    counts && !pod.info.deleting
}
