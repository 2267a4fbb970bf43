//! Pods that are managed together: what their group says of itself, and which of them count.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::view::workload::{ReclaimablePod, Workload};
use jiff::Timestamp;
use serde_json::json;

use super::plan::{keepers_first, partition};
use super::{Member, POD, PodOwner, PodsKey};
use crate::jobs::{Finish, JobObject, JobPodSet, JobView};
use crate::reconcile::Job;

/// Pods that are managed together, the oldest first.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Which.
    pub key: PodsKey,
    /// Its pods; at least one.
    pub pods: Vec<&'a JobObject>,
}

impl<'a> Group<'a> {
    /// These pods, in order.
    pub fn new(key: PodsKey, pods: impl IntoIterator<Item = &'a JobObject>) -> Option<Self> {
        let mut pods: Vec<&JobObject> = pods.into_iter().collect();
        pods.sort_by_key(|pod| {
            (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone(), pod.metadata.uid.clone())
        });
        (!pods.is_empty()).then_some(Self { key, pods })
    }

    /// The same group with some of its pods.
    pub(super) fn with(&self, pods: Vec<&'a JobObject>) -> Self {
        Self { key: self.key.clone(), pods }
    }

    /// Whether it is more than one pod by itself.
    pub fn is_group(&self) -> bool {
        matches!(self.key, PodsKey::Group(_))
    }

    /// The pod that speaks for all.
    pub fn first(&self) -> &'a JobObject {
        self.pods[0]
    }

    /// Whether its user makes its Workload. That of pods that an object was made for is named, too, but made here.
    pub(super) fn is_prebuilt(&self) -> bool {
        self.first().prebuilt().is_some() && PodOwner::of_pod(self.first()).is_none()
    }

    /// Whether its end is no end of the group.
    pub fn is_serving(&self) -> bool {
        self.is_group() && self.first().annotation(kueue::POD_GROUP_SERVING) == "true"
    }

    /// Whether the first pod speaks for those that are not there yet.
    pub fn is_fast(&self) -> bool {
        self.first().annotation(kueue::POD_GROUP_FAST_ADMISSION) == "true"
    }

    /// Whether a pod of it may not be scheduled, or has ended.
    pub fn is_suspended(&self) -> bool {
        self.pods.iter().any(|pod| is_suspended(pod))
    }

    /// Whether any pod of it holds resources of a node.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.pods.iter().any(|pod| pod.is_active(now))
    }

    /// When the next of its pods will hold no resources any more, though nothing is heard of it.
    pub fn next_lost(&self, now: Timestamp) -> Option<Timestamp> {
        self.pods.iter().filter(|pod| pod.is_active(now)).filter_map(|pod| pod.lost_at()).min()
    }

    /// How many pods it is to have.
    ///
    /// # Errors
    /// What is wrong with the annotation.
    pub fn total(&self) -> Result<usize, String> {
        if !self.is_group() {
            return Ok(1);
        }
        total(self.first())
    }

    /// The pods that its Workload is made of: no more than it is to have, those first that are kept first.
    pub(super) fn members(&self) -> Vec<&'a JobObject> {
        let (mut active, _) = partition(&self.pods);
        keepers_first(&mut active);
        active.truncate(self.total().unwrap_or(usize::MAX));
        active
    }

    /// One pod of each role, and how many they are, in the order of a Workload's pod sets. In a fast group the first pod speaks
    /// for all.
    pub(super) fn roles(&self) -> BTreeMap<String, (&'a JobObject, usize)> {
        let mut members = self.members().into_iter();
        if self.is_fast() {
            let all = self.total().unwrap_or(1);
            return members.next().map(|pod| (pod.role(), (pod, all))).into_iter().collect();
        }
        let mut roles: BTreeMap<String, (&JobObject, usize)> = BTreeMap::new();
        for pod in members {
            roles.entry(pod.role()).or_insert((pod, 0)).1 += 1;
        }
        roles
    }

    /// The PriorityClass of the first pod set that names one: of its Workload, or of the one that it would have. Pods that come
    /// later do not change what it is worth.
    fn pod_class(&self, workload: Option<&Workload>) -> Option<String> {
        let Some(workload) = workload else {
            let roles = self.roles();
            let mut classes = roles.values().map(|(pod, _)| pod.text("/spec/priorityClassName"));
            return classes.find(|name| !name.is_empty()).map(str::to_owned);
        };
        let sets = workload.spec.pod_sets.iter();
        let mut classes = sets.filter_map(|set| set.template.spec.priority_class_name.as_ref());
        classes.find(|name| !name.is_empty()).cloned()
    }

    /// How it ended, if it has.
    pub fn finished(&self) -> Option<Finish> {
        if self.is_serving() {
            return None;
        }
        if !self.is_group() {
            let pod = self.first();
            let message = pod.text("/status/message").to_owned();
            return pod.is_terminated().then(|| Finish { succeeded: pod.has_succeeded(), message });
        }
        let total = self.total().ok()?;
        let succeeded = self.pods.iter().filter(|pod| pod.has_succeeded()).count();
        let is_final = self.pods.iter().any(|pod| pod.annotation(kueue::RETRIABLE_IN_GROUP) == "false");
        let all_ended = self.pods.iter().all(|pod| pod.is_terminated());
        (succeeded == total || (is_final && all_ended))
            .then(|| Finish { succeeded: true, message: format!("{succeeded} of {total} pods succeeded") })
    }

    /// Whether all pods are ready.
    pub fn is_ready(&self) -> bool {
        self.total().is_ok_and(|total| self.pods.len() >= total) && self.pods.iter().all(|pod| pod.is_ready())
    }

    /// Pods that have succeeded, by role.
    pub fn reclaimable(&self) -> Vec<ReclaimablePod> {
        let mut ended: BTreeMap<String, i64> = BTreeMap::new();
        if self.is_group() && !self.is_serving() {
            for pod in self.pods.iter().filter(|pod| pod.has_succeeded()) {
                *ended.entry(pod.role()).or_default() += 1;
            }
        }
        ended.into_iter().map(|(name, count)| ReclaimablePod { name, count }).collect()
    }

    /// The pods as a job with this Workload: whom events are about, and what its priority is.
    pub fn as_job(&self, workload: Option<&Workload>, now: Timestamp) -> Job {
        let object = self.first().clone();
        let label = |name: &str| object.label(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let view = JobView {
            suspended: self.is_suspended(),
            active: self.is_active(now),
            finished: self.finished(),
            on_hold: None,
            queue: object.queue().map(str::to_owned),
            workload_priority_class: label(kueue::PRIORITY_CLASS),
            pod_priority_class: self.pod_class(workload),
            pod_sets: Ok(workload.and_then(|one| self.pod_set(one)).into_iter().collect()),
            reclaimable: Some(self.reclaimable()),
        };
        Job { kind: POD, object, view }
    }

    /// A pod by itself as the only pod set of the Workload that somebody else made for it, by whatever name.
    fn pod_set(&self, workload: &Workload) -> Option<JobPodSet> {
        let pod = Some(self.first()).filter(|_| !self.is_group() && self.is_prebuilt())?;
        let name = workload.spec.pod_sets.first().map(|set| set.name.clone()).unwrap_or_default();
        Some(JobPodSet { name, count: 1, given: Some(json!({ "spec": pod.spec })), ..JobPodSet::default() })
    }
}

/// Whether a pod may not be scheduled, or has ended.
pub(super) fn is_suspended(pod: &JobObject) -> bool {
    pod.is_terminated() || pod.has_gate(kueue::ADMISSION_GATE)
}

/// How many pods the pod's group is to have.
pub(super) fn total(pod: &JobObject) -> Result<usize, String> {
    const ANNOTATION: &str = kueue::POD_GROUP_TOTAL_COUNT;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match pod.annotation(ANNOTATION) {
        "" => Err(format!("pod {name} is of a group and lacks the annotation {ANNOTATION}")),
        text => text.parse().ok().filter(|total| (1..=i32::MAX as usize).contains(total)).ok_or_else(|| {
            format!("annotation {ANNOTATION} of pod {name} is {text:?}; it must be a whole number above 0")
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;

    /// A pod of a group of two, made in this second.
    fn pod(second: u8, role: &str, phase: &str, class: &str) -> JobObject {
        let annotations = json!({ kueue::ROLE_HASH: role, kueue::POD_GROUP_TOTAL_COUNT: "2" });
        read(json!({
            "metadata": {
                "name": format!("p{second}"), "uid": format!("p{second}"), "annotations": annotations,
                "creationTimestamp": format!("2026-01-01T00:00:0{second}Z"),
            },
            "spec": { "priorityClassName": class },
            "status": { "phase": phase },
        }))
    }

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn class_of(pods: &[JobObject], workload: Option<&Workload>) -> Option<String> {
        let group = Group::new(PodsKey::group("team", "ring"), pods).unwrap();
        group.as_job(workload, Timestamp::UNIX_EPOCH).view.pod_priority_class
    }

    #[test]
    fn a_group_is_worth_what_its_first_pod_set_says_that_names_a_class() {
        for (pods, wanted) in [
            (vec![pod(0, "b", "Pending", "old"), pod(1, "a", "Pending", "young")], Some("young")),
            (vec![pod(0, "b", "Pending", "old"), pod(1, "a", "Pending", "")], Some("old")),
            (vec![pod(0, "a", "Failed", "gone"), pod(1, "b", "Pending", "kept")], Some("kept")),
            (
                vec![
                    pod(0, "c", "Pending", "c"),
                    pod(1, "b", "Pending", "b"),
                    pod(2, "a", "Pending", "too many"),
                ],
                Some("b"),
            ),
            (vec![pod(0, "a", "Pending", ""), pod(1, "b", "Pending", "")], None),
        ] {
            assert_eq!(class_of(&pods, None).as_deref(), wanted);
        }
    }

    #[test]
    fn pods_that_come_later_do_not_change_what_a_group_is_worth() {
        let set = |name: &str, class: &str| {
            let spec = json!({ "priorityClassName": class });
            json!({ "name": name, "template": { "spec": spec } })
        };
        let workload: Workload =
            read(json!({ "spec": { "podSets": [set("a", ""), set("b", "first"), set("c", "second")] } }));
        let pods = [pod(0, "a", "Pending", "late"), pod(1, "c", "Pending", "second")];
        assert_eq!(class_of(&pods, Some(&workload)).as_deref(), Some("first"));
    }

    #[test]
    fn in_a_fast_group_the_first_pod_speaks_for_all() {
        let mut pods = [pod(0, "b", "Pending", ""), pod(1, "a", "Pending", "other")];
        for pod in &mut pods {
            let annotations = pod.metadata.annotations.as_mut().unwrap();
            annotations.insert(kueue::POD_GROUP_FAST_ADMISSION.to_owned(), "true".to_owned());
        }
        assert_eq!(class_of(&pods, None), None);
        let group = Group::new(PodsKey::group("team", "ring"), &pods).unwrap();
        let roles = group.roles();
        let counts: Vec<_> = roles.iter().map(|(role, (_, count))| (role.as_str(), *count)).collect();
        assert_eq!(counts, [("b", 2)]);
    }
}
