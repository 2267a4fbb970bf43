use std::collections::BTreeMap;

use crds::names::kueue;
use crds::view::workload::ReclaimablePod;
use jiff::Timestamp;
use serde_json::Value;

use super::{Member, POD, PodsKey};
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

    /// The pods as a job: whom events are about, and what its priority is.
    pub fn as_job(&self, now: Timestamp) -> Job {
        let object = self.first().clone();
        let label = |name: &str| object.label(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let class = |pod: &&JobObject| {
            pod.at("/spec/priorityClassName")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        };
        let view = JobView {
            suspended: self.is_suspended(),
            active: self.is_active(now),
            finished: self.finished(),
            on_hold: None,
            queue: object.queue().map(str::to_owned),
            workload_priority_class: label(kueue::PRIORITY_CLASS),
            pod_priority_class: self.pods.iter().find_map(class),
            pod_sets: Ok(Vec::<JobPodSet>::new()),
            reclaimable: Some(self.reclaimable()),
        };
        Job { kind: POD, object, view }
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
