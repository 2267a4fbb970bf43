//! Writes that led nowhere: the API server refuses them, or they changed nothing. Each is left alone for a while; what else is to
//! be written of the same unit goes on.

use std::time::Duration;

use crds::view::workload::Workload;

use super::Controller;
use super::pump::Op;
use super::world::Unit;
use crate::lifetime::End;
use crate::pods::PodsStep;
use crate::reconcile::Step;

/// What of a unit a write changes. One that is refused keeps nobody from writing the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aim {
    /// The status of its Workload.
    Status,
    /// Its Workload, beside the status.
    Workload,
    /// The status of its job.
    JobStatus,
    /// Its job beside that, a pod, a request for nodes.
    Other,
}

impl Step {
    /// What the step changes.
    pub(super) fn aim(&self) -> Aim {
        match self {
            Self::Finish { .. } | Self::Reclaim(_) | Self::Release | Self::Hold(_) | Self::EndHold => {
                Aim::Status
            }
            Self::Nothing
            | Self::CreateWorkload
            | Self::UpdateWorkload
            | Self::CannotCompose(_)
            | Self::Adopt
            | Self::Compare
            | Self::DeleteWorkload
            | Self::RemoveFinalizer
            | Self::ChangeQueue(_)
            | Self::ChangeGates(_)
            | Self::ChangePriority => Aim::Workload,
            Self::Stop | Self::Restore | Self::Start => Aim::Other,
        }
    }
}

impl PodsStep {
    /// What the step changes.
    pub(super) fn aim(&self) -> Aim {
        match self {
            Self::Job(step) => step.aim(),
            Self::NameConflict | Self::AddOwners(_) => Aim::Workload,
            Self::Replacements(_) => Aim::Status,
        }
    }
}

impl End {
    /// What such an end changes.
    pub(super) fn aim(&self) -> Aim {
        match self {
            Self::Target { .. } | Self::Evict | Self::Forget => Aim::Status,
            Self::Deactivate | Self::DeleteWorkload => Aim::Workload,
            Self::DeleteJob => Aim::Other,
        }
    }
}

impl Controller {
    /// Does not write this again for a while, unless what it was worked out from changes.
    pub(super) fn remember_refused(&mut self, unit: &Unit, op: &Op, delay: Duration) {
        let until = self.ctx.clock.monotonic() + delay;
        self.due.insert((until, unit.clone()));
        self.refused.entry(unit.clone()).or_default().insert((op.aim, op.versions.clone()), until);
    }

    /// Whether a write of a unit that was worked out from these versions led nowhere a moment ago.
    pub(super) fn is_refused(&self, unit: &Unit, aim: Aim, versions: &str) -> bool {
        let Some(all) = self.refused.get(unit) else { return false };
        all.get(&(aim, versions.to_owned())).is_some_and(|until| *until > self.ctx.clock.monotonic())
    }

    /// The same of a write about a Workload.
    pub(super) fn is_aim_refused(&self, unit: &Unit, workload: &Workload, aim: Aim) -> bool {
        self.refused.contains_key(unit) && self.is_refused(unit, aim, &self.versions_of(unit, workload))
    }

    /// The same of its status.
    pub(super) fn is_status_refused(&self, unit: &Unit, workload: &Workload) -> bool {
        self.is_aim_refused(unit, workload, Aim::Status)
    }

    /// The same of what it has beside that.
    pub(super) fn is_change_refused(&self, unit: &Unit, workload: &Workload) -> bool {
        self.is_aim_refused(unit, workload, Aim::Workload)
    }

    /// Forgets what was refused of a unit until now.
    pub(super) fn forget_refused(&mut self, unit: &Unit) {
        let now = self.ctx.clock.monotonic();
        if let Some(all) = self.refused.get_mut(unit) {
            all.retain(|_, until| *until > now);
            if all.is_empty() {
                self.refused.remove(unit);
            }
        }
    }
}
