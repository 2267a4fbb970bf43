//! Which Workloads are whose: those of a job or pod, and the unit in which each is written.

use std::collections::BTreeSet;

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use quota_engine::Uid;

use super::kept::{Kept, Owner};
use super::{Unit, World, controller_of};
use crate::jobs::{other_scheduler, other_schedulers};
use crate::pods::of_kind;
use crate::reconcile::Job;

impl World {
    /// The units in which something may run: jobs, pods, and the objects that these are made by.
    pub(in crate::controller) fn units_in_use(&self) -> BTreeSet<Unit> {
        let makes_pods = |owner: &&Owner| of_kind(owner.group(), &owner.kind).is_some();
        let mut units = BTreeSet::new();
        for kept in self.workloads.iter().filter(|kept| kept.is_in_use()) {
            units.extend(kept.owners().filter(makes_pods).map(|owner| Unit::PodOwner(owner.uid.clone())));
            units.insert(self.unit_of(kept));
        }
        units
    }

    /// The Workloads that a job of this namespace controls; where nobody knows of the job, all that name it. First the one that counts:
    /// who has quota, then who is being deleted, then the oldest; last those that have ended.
    pub(in crate::controller) fn workloads_of(&self, job: &Uid, namespace: Option<&str>) -> Vec<Workload> {
        let mut workloads: Vec<Workload> =
            self.uids_of(job, namespace).filter_map(|uid| self.workloads.get(uid)).collect();
        workloads.sort_by_key(|one| {
            let metadata = &one.metadata;
            let (over, holds) = (one.holds(tokens::FINISHED), one.holds(tokens::QUOTA_RESERVED));
            let stays = metadata.deletion_timestamp.is_none();
            (over, !holds, stays, metadata.creation_timestamp.clone(), metadata.uid.clone())
        });
        workloads
    }

    /// The Workloads of other namespaces that name a job of this one as their controller, which it is not.
    pub(in crate::controller) fn strangers_of(&self, job: &Uid, namespace: &str) -> Vec<Workload> {
        let strange = self.uids_of(job, None).filter(|uid| !self.is_in(uid, namespace));
        strange.filter_map(|uid| self.workloads.get(uid)).collect()
    }

    /// Whether a job of this namespace controls a Workload.
    pub(in crate::controller) fn has_workload(&self, job: &Uid, namespace: &str) -> bool {
        self.uids_of(job, Some(namespace)).next().is_some()
    }

    pub(super) fn uids_of<'a>(
        &'a self,
        job: &'a Uid,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Uid> {
        let from = (job.clone(), Uid::from(""));
        let named = self.workloads_of_job.range(from..).take_while(move |(of, _)| of == job);
        let is_its = move |uid: &&Uid| namespace.is_none_or(|namespace| self.is_in(uid, namespace));
        named.map(|(_, uid)| uid).filter(is_its)
    }

    pub(super) fn is_in(&self, workload: &Uid, namespace: &str) -> bool {
        self.workloads.kept(workload).is_some_and(|kept| **kept.namespace() == *namespace)
    }

    /// The Workloads whose job has this one's name, whatever its uid: what must never be asked for.
    pub(in crate::controller) fn workloads_of_name(&self, job: &Job) -> Vec<Workload> {
        let metadata = &job.object.metadata;
        let namesake = |one: &Workload| {
            one.metadata.namespace == metadata.namespace
                && controller_of(&one.metadata).is_some_and(|owner| {
                    owner.kind == job.kind.kind && Some(&owner.name) == metadata.name.as_ref()
                })
        };
        self.workloads.iter().map(Kept::view).filter(namesake).collect()
    }

    /// The unit in which a Workload is written.
    pub(in crate::controller) fn unit_of_workload(&self, uid: &Uid) -> Option<Unit> {
        Some(self.unit_of(self.workloads.kept(uid)?))
    }

    /// The schedulers that place the pods of a Workload, other than the one that jobs are given to.
    pub(in crate::controller) fn other_schedulers(&self, uid: &Uid) -> BTreeSet<String> {
        let ours = &self.config.scheduler_name;
        match self.unit_of_workload(uid) {
            Some(Unit::Job(job)) => {
                self.job(&job).map_or_else(BTreeSet::new, |job| other_schedulers(job.kind, &job.object, ours))
            }
            Some(Unit::Pods(key)) => {
                let pods = self.group(&key).map_or_else(Vec::new, |group| group.pods);
                pods.into_iter().filter_map(|pod| other_scheduler(pod, ours)).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Whether a Workload is owned, and by no object of a kind that is managed here.
    pub(in crate::controller) fn is_owned_elsewhere(&self, workload: &Workload) -> bool {
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        !owners.is_empty() && !owners.iter().any(|owner| self.config.is_managed_here(owner))
    }

    /// With its job, if that is of a kind that is managed here; with its pods; or alone.
    pub(super) fn unit_of(&self, workload: &Kept) -> Unit {
        let is_job = |owner: &&Owner| self.config.manages_jobs_of(&owner.api_version, &owner.kind);
        let job = || workload.controller().filter(is_job).map(|owner| Unit::Job(owner.uid.clone()));
        let with_pods = self.members.unit_of(workload);
        with_pods.or_else(job).unwrap_or_else(|| Unit::Workload(workload.uid.clone()))
    }
}
