//! Plain pods and groups of pods: managed one by one, kept from being scheduled by a gate until they are admitted, and
//! deleted when they are evicted.
//!
//! Deployments, StatefulSets and LeaderWorkerSets are managed through their pods, too: see [`owners`].

mod compose;
mod group;
mod member;
mod owners;
mod plan;
mod role;
mod start;

use quota_engine::Uid;

pub use compose::{compose, owner};
pub use group::Group;
pub use member::{Member, TERMINATION_TARGET, group_name, has_claims, is_of_group, prebuilt, slim};
pub use owners::{OWNERS, Part, PodOwner, Shape, of_kind};
pub use plan::{Known, Plan, PodStep, PodsStep, Stop, plan};
pub use role::{changed_shape, hash};
pub use start::{gated, start};

use crate::jobs::JobKind;
use crate::jobs::table;

/// The name of plain pods in the configuration's `integrations.frameworks`.
pub const FRAMEWORK: &str = "pod";

/// Which pods are managed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodsKey {
    /// A pod by itself.
    One(Uid),
    /// The pods of a namespace that name the same group. Apart, as what names one of these is kept for every workload.
    Group(Box<GroupName>),
}

/// Who a group of pods is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupName {
    /// The namespace.
    pub namespace: String,
    /// The group's name, and its Workload's.
    pub name: String,
}

impl PodsKey {
    /// That of a group.
    pub fn group(namespace: &str, name: &str) -> Self {
        Self::Group(Box::new(GroupName { namespace: namespace.to_owned(), name: name.to_owned() }))
    }
}

/// Pods, as events and priorities see them: like a job.
pub static POD: &JobKind = &table::POD;
