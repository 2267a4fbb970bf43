//! What an earlier leader may have started, as a watch that lags does not tell yet. The list with which a term begins holds Workloads
//! alone; before one of those gives its quota back, or goes, what runs by it is read.

use crds::names::kueue;
use crds::view::workload::Workload;
use kit::patch::WriteError;
use kube::Api;
use kube::api::ListParams;

use super::Controller;
use super::pump::{About, Answer, Op, text};
use super::refused::Aim;
use super::world::{Unit, controller_of};
use crate::jobs::{JobObject, JobResource};
use crate::pods::{self, GroupName, PodsKey};
use crate::reconcile::{Job, Step};

impl Step {
    /// Whether nothing may run by the Workload when this is done.
    fn needs_nothing_to_run(&self) -> bool {
        match self {
            Self::Finish { .. }
            | Self::Release
            | Self::Hold(_)
            | Self::DeleteWorkload
            | Self::RemoveFinalizer => true,
            Self::Nothing
            | Self::Stop
            | Self::Restore
            | Self::CreateWorkload
            | Self::UpdateWorkload
            | Self::CannotCompose(_)
            | Self::Start
            | Self::Reclaim(_)
            | Self::EndHold
            | Self::Adopt
            | Self::Compare
            | Self::ChangeQueue(_)
            | Self::ChangeGates(_)
            | Self::ChangePriority => false,
        }
    }
}

impl Controller {
    /// Reads what runs by a Workload before this step, where an earlier leader may have started it. Returns whether the step has to
    /// wait.
    pub(super) fn reads_first(
        &mut self,
        unit: &Unit,
        job: Option<&Job>,
        workload: Option<&Workload>,
        step: &Step,
    ) -> bool {
        if !step.needs_nothing_to_run() || !self.unread.contains(unit) {
            return false;
        }
        let Some((workload, about)) = workload.and_then(|one| Some((one, self.what_runs(unit, job, one)?)))
        else {
            return false;
        };
        // Told apart from the versions of steps: what is read may be in this very version.
        let op = Op::new(about, format!("unread {}", self.versions_of(unit, workload)));
        if !self.is_refused(unit, Aim::Other, &op.versions) {
            self.read_again(unit.clone(), Op { reads: true, ..op });
        }
        true
    }

    fn what_runs(&self, unit: &Unit, job: Option<&Job>, workload: &Workload) -> Option<About> {
        let namespace = text(workload.metadata.namespace.as_ref());
        let owner = || controller_of(&workload.metadata);
        match unit {
            Unit::PodOwner(_) => {
                let Job { kind, object, .. } = job?;
                Some(About::Job { kind, namespace, name: text(object.metadata.name.as_ref()) })
            }
            Unit::Job(_) => {
                let named = || self.config.file.kind_of(&owner()?.api_version, &owner()?.kind);
                let kind = job.map(|job| job.kind).or_else(named)?;
                Some(About::Job { kind, namespace, name: owner()?.name.clone() })
            }
            Unit::Pods(PodsKey::One(_)) => Some(About::Pod { namespace, name: owner()?.name.clone() }),
            Unit::Pods(PodsKey::Group(group)) => Some(About::Pods((**group).clone())),
            _ => None,
        }
    }

    /// Takes note of a read that is done.
    pub(super) fn was_read(&mut self, unit: &Unit, about: &About) {
        let is_all = match unit {
            Unit::Job(_) | Unit::PodOwner(_) => matches!(about, About::Job { .. }),
            Unit::Pods(PodsKey::One(_)) => matches!(about, About::Pod { .. }),
            Unit::Pods(PodsKey::Group(_)) => matches!(about, About::Pods(_)),
            _ => false,
        };
        if is_all {
            self.unread.remove(unit);
        }
    }
}

/// The pods of a group that are managed.
pub(super) async fn read_group(client: kube::Client, group: &GroupName) -> Result<Answer, WriteError> {
    let api = Api::<JobObject>::namespaced_with(client, &group.namespace, &JobResource::from(pods::POD));
    let ours = format!("{}=true,{}={}", kueue::MANAGED, kueue::POD_GROUP_NAME, group.name);
    let listed = api.list(&ListParams::default().labels(&ours)).await?;
    Ok(Answer::Pods(listed.items))
}
