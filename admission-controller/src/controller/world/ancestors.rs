//! Who is managed instead of a job: the chain of its controllers.
//!
//! Rules: Kueue `FindAncestorJobManagedByKueue`. An owner counts if its kind is managed and it names a queue itself (or jobs
//! without one are managed, too); the topmost that counts is the one that is queued. Kinds that are switched off are passed by.

use std::collections::BTreeSet;

use crds::reasons::workload as tokens;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quota_engine::Uid;

use super::{Unit, World, controller_of};
use crate::config::Owning;
use crate::controller::store::{BareJob, Store, StoredJob, asks_to_be_resized};
use crate::jobs::{JobKind, JobObject, group_of};
use crate::surroundings::MAX_ANCESTORS;

/// Whether a job is managed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Standing {
    /// Nothing that is managed owns it.
    Own,
    /// It is part of something that is managed.
    Part,
    /// One of its owners has not been seen: nothing can be said yet. If it never comes, the garbage collector takes the job.
    Unseen,
    /// No end of its owners is found, for this reason.
    Endless(&'static str),
}

impl Standing {
    /// Whether more is to be known of the job than that it exists.
    pub(super) fn is_looked_at(self) -> bool {
        matches!(self, Self::Own | Self::Endless(_))
    }
}

/// What an object says about what it owns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ancestor {
    namespace: String,
    /// Whether it is managed itself, if nothing above it is.
    counts: bool,
    is_leaving: bool,
    owner: Option<OwnerReference>,
}

/// What is found on the way up from an object.
struct Climb {
    standing: Standing,
    /// The topmost of its owners that is managed.
    top: Option<Uid>,
    /// Whether one of them, managed by itself or not, is being deleted.
    is_leaving: bool,
}

impl World {
    /// Whether an object of this metadata is managed by itself.
    pub(in crate::controller) fn standing(&self, metadata: &ObjectMeta) -> Standing {
        self.standing_below(
            controller_of(metadata).cloned(),
            metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    pub(super) fn standing_below(&self, owner: Option<OwnerReference>, namespace: &str) -> Standing {
        self.climb(owner, namespace).standing
    }

    /// From an object with this controller.
    fn climb(&self, mut owner: Option<OwnerReference>, namespace: &str) -> Climb {
        let (mut top, mut is_leaving) = (None, false);
        let mut seen = BTreeSet::new();
        while let Some(above) = owner {
            if self.config.owning(&above) == Owning::Unknown {
                break;
            }
            if !seen.insert(above.uid.clone()) {
                let words = "its owners own one another in a circle; correct metadata.ownerReferences";
                return Climb { standing: Standing::Endless(words), top: None, is_leaving };
            }
            if seen.len() > MAX_ANCESTORS {
                let words = "it has more than 10 owners above one another, which are not followed";
                return Climb { standing: Standing::Endless(words), top: None, is_leaving };
            }
            let uid = Uid::from(above.uid.as_str());
            let Some(ancestor) = self.ancestor(&uid) else {
                if self.is_awaited(&above, namespace) {
                    return Climb { standing: Standing::Unseen, top: None, is_leaving };
                }
                break;
            };
            // To the garbage collector, too, an owner in another namespace is none: it takes what names one.
            if !ancestor.namespace.is_empty() && ancestor.namespace != namespace {
                break;
            }
            if ancestor.counts {
                top = Some(uid);
            }
            is_leaving |= ancestor.is_leaving;
            owner = ancestor.owner;
        }
        let standing = if top.is_some() { Standing::Part } else { Standing::Own };
        Climb { standing, top, is_leaving }
    }

    /// A job that runs as part of one that is managed and may not run: it is not admitted, or has no Workload (yet, or any
    /// more). Kueue's `shouldSuspendChildJob`. What is resized while it runs is without admission at times.
    pub(in crate::controller) fn part_to_stop(&self, uid: &Uid) -> Option<&BareJob> {
        let StoredJob::Bare(part) = self.stored_job(uid)? else { return None };
        if !part.runs || !part.can_be_managed || !self.is_selected(&part.namespace) {
            return None;
        }
        let Climb { top, is_leaving, .. } = self.climb(part.owner.as_deref().cloned(), &part.namespace);
        let top = top?;
        // What is made of an object that is being deleted cleans up after it: KubeRay waits for such a Job of a cluster, though the
        // RayJob stays.
        if is_leaving {
            return None;
        }
        // What is admitted pod by pod, or by somebody else, has no say in this.
        let top_job = self.job(&top)?;
        let workloads = self.workloads_of(&top, Some(&part.namespace));
        let workload = workloads.iter().filter(|one| !one.holds(tokens::FINISHED));
        let latest = workload.max_by_key(|one| (&one.metadata.creation_timestamp, &one.metadata.name));
        let is_elastic =
            self.rules.has_elastic_jobs() && (part.elastic || asks_to_be_resized(&top_job.object));
        let may_run = latest.is_some_and(|one| match is_elastic {
            true => !one.holds(tokens::EVICTED),
            false => one.holds(tokens::ADMITTED),
        });
        (!may_run).then_some(part)
    }

    /// Whether the controller of an object has been seen, and is not managed: it names no queue, say.
    pub(in crate::controller) fn has_owner_that_does_not_count(&self, metadata: &ObjectMeta) -> bool {
        let owner = controller_of(metadata).and_then(|owner| self.ancestor(&Uid::from(owner.uid.as_str())));
        owner.is_some_and(|owner| !owner.counts)
    }

    pub(super) fn ancestor(&self, uid: &Uid) -> Option<Ancestor> {
        let of = |kind: &JobKind, object: &JobObject| Ancestor {
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            counts: self.config.counts(kind, object.queue()),
            is_leaving: object.metadata.deletion_timestamp.is_some(),
            owner: controller_of(&object.metadata).cloned(),
        };
        match self.stored_job(uid) {
            Some(StoredJob::Whole(job)) => Some(of(job.kind, &job.object)),
            Some(StoredJob::Bare(job)) => Some(Ancestor {
                namespace: job.namespace.clone(),
                counts: self.config.counts(job.kind, job.queue.as_deref()),
                is_leaving: job.is_leaving,
                owner: job.owner.as_deref().cloned(),
            }),
            None => self.pod_owner(uid).map(|(owner, object)| of(owner.kind, object)),
        }
    }

    /// Whether an owner that is not there may still be seen: its kind is watched, in a version that is or was served if nobody manages
    /// it, and its name is not another's.
    fn is_awaited(&self, owner: &OwnerReference, namespace: &str) -> bool {
        let is_its = |kind: &&JobKind| kind.is(group_of(&owner.api_version), &owner.kind);
        let kinds = self.config.watched_kinds().filter(is_its);
        let stores: Vec<_> = kinds.filter_map(|kind| Some((kind, self.jobs.get(&kind.id())?))).collect();
        let may_come = |(kind, store): &(&JobKind, &Store<StoredJob>)| {
            !self.config.only_sees(kind) || !store.is_synced() || store.was_served()
        };
        let is_another =
            || stores.iter().any(|(_, store)| store.any(|job| job.is_named(namespace, &owner.name)));
        stores.iter().any(may_come) && !is_another()
    }

    /// Takes note of whose part a job may be.
    pub(super) fn note_owner(&mut self, uid: &Uid) {
        let owner = self.ancestor(uid).and_then(|ancestor| ancestor.owner);
        self.note_part(uid, owner.as_ref());
    }

    /// Takes note of whose part an object with this controller may be.
    pub(super) fn note_part(&mut self, uid: &Uid, owner: Option<&OwnerReference>) {
        if let Some(owner) = owner.filter(|owner| self.config.owning(owner) != Owning::Unknown) {
            self.parts.entry(Uid::from(owner.uid.as_str())).or_default().insert(uid.clone());
        }
    }

    /// The reverse, when the job is gone.
    pub(super) fn forget_owner(&mut self, uid: &Uid, gone: &StoredJob) {
        self.forget_part(uid, gone.owner());
    }

    /// The reverse, when the object is gone.
    pub(super) fn forget_part(&mut self, uid: &Uid, owner: Option<&OwnerReference>) {
        let Some(owner) = owner.map(|owner| Uid::from(owner.uid.as_str())) else { return };
        if let Some(parts) = self.parts.get_mut(&owner) {
            parts.remove(uid);
            if parts.is_empty() {
                self.parts.remove(&owner);
            }
        }
    }

    /// Tells webhooks whether an object counts as an owner: where it does not, what it makes may be managed by itself.
    pub(super) fn tell_passed(&self, uid: &Uid) {
        let passed = self.ancestor(uid).filter(|ancestor| !ancestor.counts);
        let is_followed = |owner: &OwnerReference| self.config.owning(owner) != Owning::Unknown;
        let said = passed
            .map(|ancestor| ancestor.owner.filter(is_followed).map(|owner| Uid::from(owner.uid.as_str())));
        self.surroundings.send_if_modified(|told| match said {
            Some(owner) => told.passed.insert(uid.clone(), owner.clone()) != Some(owner),
            None => told.passed.remove(uid).is_some(),
        });
    }

    /// What an object says about what it owns has changed.
    pub(super) fn parts_dirty(&mut self, uid: &Uid) {
        let mut above = vec![uid.clone()];
        let mut seen = BTreeSet::new();
        while let Some(uid) = above.pop().filter(|uid| seen.insert(uid.clone())) {
            for part in self.parts.get(&uid).into_iter().flatten() {
                self.dirty.insert(self.unit_of_part(part));
                above.push(part.clone());
            }
        }
    }

    /// What has an owner that has not been seen is looked at.
    pub(super) fn unseen_parts_dirty(&mut self) {
        let unseen = self.parts.keys().filter(|owner| self.ancestor(owner).is_none());
        for owner in unseen.cloned().collect::<Vec<_>>() {
            self.parts_dirty(&owner);
        }
    }

    fn unit_of_part(&self, part: &Uid) -> Unit {
        match self.is_pod_owner(part) {
            true => Unit::PodOwner(part.clone()),
            false => Unit::Job(part.clone()),
        }
    }
}
