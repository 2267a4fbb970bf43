//! What follows from the answers to writes; and what is counted though somebody else wrote it.

use std::time::Duration;

use crds::names::kueue;
use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::patch::WriteError;
use kit::writes::{Done, Failure, Priority};
use kube::Api;
use quota_engine::{DecisionId, Outcome, Uid};

use super::Controller;
use super::pump::{About, Answer, Before, Op};
use super::unread::read_group;
use super::world::Unit;
use crate::jobs::{JobObject, JobResource, other_scheduler};
use crate::metrics::{Written, queue_of};
use crate::pods::{self, Member, PodsKey};
use crate::{input, news};

impl Controller {
    /// Takes in how a write ended.
    pub(super) fn done(&mut self, done: Done<Unit, Answer>) {
        let unit = done.key.clone();
        let Some(op) = self.busy.remove(&unit) else { return };
        if op.decision.is_some() || matches!(op.about, About::Job { .. }) {
            self.late.answered(self.ctx.clock.monotonic(), op.begun);
        }
        self.world.dirty.insert(unit.clone());
        match done.result {
            Ok(answer) => {
                if !op.reads {
                    if let Some(all) = self.refused.get_mut(&unit) {
                        all.remove(&(op.aim, op.versions.clone()));
                    }
                    self.told.remove(&unit);
                    if op.decision.is_none() && changed_nothing(&op, &answer) {
                        tracing::warn!(?unit, "a write changed nothing; it is not repeated at once");
                        self.remember_refused(&unit, &op, super::REFUSED_DELAY);
                    } else if made_workload(&op, &answer) {
                        // If it vanishes at once the job is gone too, as the garbage collector knows and a slow watch does not.
                        self.remember_refused(&unit, &op, super::CONFLICT_DELAY);
                    }
                    return self.take_answer(&op, op.decision, answer);
                }
                self.was_read(&unit, &op.about);
                if op.decision.is_some() && !self.tells(&op, &answer) {
                    return self.wait_for_news(unit, op);
                }
                let outcome = found(&op.before, &answer);
                match answer {
                    Answer::Workload(view) if is_strange(&unit, &op.before, &view) => {
                        self.name_taken(&unit, &view);
                        self.world.take_workload(&mut self.engine, *view);
                    }
                    answer => self.take_answer(&op, None, answer),
                }
                if let Some(id) = op.decision {
                    // If the object had changed, the engine has settled the decision by itself.
                    self.engine.written(id, outcome);
                }
            }
            Err(failure) => self.failed(unit, op, failure, done.attempts),
        }
    }

    /// Whether what was read after a decision was written, and maybe arrived, says what became of that: it is about a Workload that is
    /// known to exist, and is not as the API server had it when it answered that write with an error.
    fn tells(&self, op: &Op, answer: &Answer) -> bool {
        let Before::Workload(before) = &op.before else { return true };
        let of = |metadata: &ObjectMeta| (input::uid(metadata), input::version(metadata));
        match answer {
            Answer::Workload(view) => !op.denied || of(&view.metadata) != of(&before.metadata),
            _ => !self.world.workloads.exists(&input::uid(&before.metadata)),
        }
    }

    /// Reads the object of a decision again after a pause.
    pub(super) fn wait_for_news(&mut self, unit: Unit, op: Op) {
        self.due.insert((self.ctx.clock.monotonic() + super::CONFLICT_DELAY, unit.clone()));
        self.unsettled.entry(unit).or_default().push(Op { denied: false, ..op });
    }

    /// The pause is over.
    pub(super) fn read_once_more(&mut self, unit: &Unit) {
        for op in self.unsettled.remove(unit).into_iter().flatten() {
            match self.busy.contains_key(unit) || self.writes.room() == 0 {
                true => self.wait_for_news(unit.clone(), op),
                false => self.read_again(unit.clone(), op),
            }
        }
    }

    fn take_answer(&mut self, op: &Op, decision: Option<DecisionId>, answer: Answer) {
        let before = &op.before;
        match answer {
            Answer::Workload(view) => {
                self.measure_creation(before, &view);
                if let Some(id) = decision {
                    // Who gave its quota back with the eviction is more than evicted; the object, which follows, says so.
                    let is_over = view.holds(tokens::EVICTED) && !view.holds(tokens::QUOTA_RESERVED);
                    let version = input::version(&view.metadata);
                    let outcome = if is_over { Outcome::Unsettled } else { Outcome::Written(version) };
                    self.engine.written(id, outcome);
                }
                let is_unmade = matches!(before, Before::Unmade { .. });
                let before = match before {
                    Before::Workload(before) if before.metadata.uid == view.metadata.uid => Some(&**before),
                    _ => None,
                };
                // The watch may have shown already that it leaves, and that it is gone.
                let preemptor = op.preemptor.as_ref().filter(|_| view.holds(tokens::PREEMPTED));
                let its_view = preemptor.and_then(|uid| self.world.workloads.get(uid));
                if is_unmade {
                    self.announce_made(&view);
                }
                self.announce(before, &view, its_view.as_ref());
                let its_queue = preemptor.and_then(|uid| self.engine.cluster_queue_of(uid));
                let queue = queue_of(&view);
                let written = Written {
                    before,
                    after: &view,
                    preemptor: its_queue.as_ref().map(|name| name.as_str()),
                    local_queue: queue.and_then(|key| self.world.local_queue(&key)),
                    now: self.ctx.clock.now(),
                };
                self.counted.queues.written(&written, |name| self.engine.cohorts_above(name));
                self.world.take_workload(&mut self.engine, *view);
            }
            Answer::Job(kind, object) => {
                let done_uid = Uid::from(object.uid());
                let before = match before {
                    Before::Job(suspended) => Some(*suspended),
                    Before::Nothing | Before::Workload(_) | Before::Unmade { .. } | Before::Gated { .. } => {
                        None
                    }
                };
                self.world.take_job_answer(kind, *object);
                self.announce_job(&done_uid, before);
            }
            Answer::Pod(pod) => {
                // What was read after a conflict may wait still, or be another of its name.
                if let Before::Gated { pod: uid, workload, is_group } = before
                    && *uid == Uid::from(pod.uid())
                    && !pod.has_gate(kueue::ADMISSION_GATE)
                    && let Some(workload) = self.world.workloads.get(workload)
                {
                    let (gate, now) = (kueue::ADMISSION_GATE, self.ctx.clock.now());
                    self.counted.queues.ungated(gate, &workload, *is_group, now);
                    let other = other_scheduler(&pod, &self.config.file.scheduler_name);
                    let note = news::started(Some(&workload), &other.into_iter().collect());
                    self.about_pod(&pod, reasons::STARTED, &note);
                }
                self.world.take_pod_answer(pods::slim(*pod));
            }
            Answer::Pods(pods) => {
                pods.into_iter().for_each(|pod| self.world.take_pod_answer(pods::slim(pod)))
            }
            Answer::ClusterQueue(view) => self.world.take_cluster_queue(*view),
            Answer::LocalQueue(view) => self.world.take_local_queue(*view),
            Answer::Flavor(view) => self.world.take_flavor(*view),
            Answer::Topology(view) => self.world.ground.take_topology_answer(*view),
            Answer::Request(view) => self.announce_request(*view),
            Answer::RequestDeleted(uid) => self.world.request_deleted(&uid, self.ctx.clock.now()),
            Answer::Check(view) => self.world.take_check(&mut self.engine, *view),
            Answer::Cohort(view) => self.world.take_cohort(*view),
            Answer::LetGo(view) => {
                let is_group = pods::group_name(&view.metadata).is_some();
                let key = self.world.take_let_go(&mut self.engine, *view);
                let workload = key.and_then(|(namespace, name)| self.world.workload_named(&namespace, &name));
                if let Some(workload) = workload {
                    let (gate, now) = (kueue::TOPOLOGY_GATE, self.ctx.clock.now());
                    self.counted.queues.ungated(gate, &workload, is_group, now);
                }
            }
            Answer::Ungated(view) => {
                let pod = input::uid(&view.metadata);
                self.world.take_slice_pod_answer(*view);
                self.count_slice_gate(&pod);
            }
            Answer::Ended(view) => self.stray_ended(*view),
            Answer::Compared(unit, compared) => {
                self.compared.insert(unit, compared);
            }
            Answer::Nothing => {}
        }
    }

    /// The watch has news of a Workload. Where that is its end, or its quota came back, it is counted as in Kueue, whoever wrote
    /// it; what is written here counts when the answer comes, which may be later.
    pub(super) fn count_end(&self, view: &Workload) {
        let is_free = view.holds(tokens::EVICTED) && !view.holds(tokens::QUOTA_RESERVED);
        if !(is_free || view.holds(tokens::FINISHED)) || !self.acts() {
            return;
        }
        let Some(before) = self.world.workloads.before(view).filter(|_| !self.is_being_written(view)) else {
            return;
        };
        let queue = queue_of(view);
        self.counted.queues.ended(&Written {
            before: Some(&before),
            after: view,
            preemptor: None,
            local_queue: queue.and_then(|key| self.world.local_queue(&key)),
            now: self.ctx.clock.now(),
        });
    }

    fn is_being_written(&self, workload: &Workload) -> bool {
        let metadata = &workload.metadata;
        self.busy.values().any(|op| match &op.about {
            About::Workload { namespace, name } | About::Request { namespace, name, .. } => {
                metadata.name.as_ref() == Some(name) && metadata.namespace.as_ref() == Some(namespace)
            }
            About::Job { .. } | About::Pod { .. } | About::Pods(_) | About::Queue => false,
        })
    }

    /// Somebody else's Workload has the name of one that was to be made. Whoever waits for that is looked at again when it changes
    /// or is gone, and told where it stays.
    pub(super) fn name_taken(&mut self, unit: &Unit, view: &Workload) {
        if view.metadata.deletion_timestamp.is_none() {
            self.announce_taken(unit, view);
        }
        self.world.await_name(unit, view);
    }

    /// How long after its job a Workload was made. That of a group may be other pods'.
    fn measure_creation(&self, before: &Before, view: &Workload) {
        let Before::Unmade { kind, job, since: Some(since) } = before else { return };
        if let (Some(made), true) = (&view.metadata.creation_timestamp, is_owned_by(view, job)) {
            let took = Duration::try_from(made.0.duration_since(*since)).unwrap_or_default();
            self.counted.queues.created(kind.kind, took);
        }
    }

    fn failed(&mut self, unit: Unit, op: Op, failure: Failure, attempts: u32) {
        tracing::debug!(?unit, %failure, attempts, "a write failed");
        if let Unit::Gate(uid) = &unit {
            let delay = match &failure {
                Failure::Error(error @ WriteError::Refused(_)) => {
                    tracing::warn!(?unit, %error, "the API server refuses to open a pod's gate, or to end a pod");
                    super::REFUSED_DELAY
                }
                _ => super::gates::GATE_DELAY,
            };
            return self.gate_not_opened(uid, delay);
        }
        match failure {
            Failure::Error(error) if matches!(op.about, About::Queue) => {
                // The watch brings what is new; what to write is worked out anew then, or with the next change.
                self.world.dirty.remove(&unit);
                let refused = matches!(&error, WriteError::Refused(_));
                if refused {
                    tracing::warn!(?unit, %error, "the API server refuses a write");
                }
                self.schedule(unit, if refused { super::REFUSED_DELAY } else { super::STATUS_DELAY });
            }
            // What has its name was not made for it.
            Failure::Error(WriteError::Conflict(words))
                if matches!(op.about, About::Request { check: Some(_), .. }) =>
            {
                self.request_refused(&unit, op, &words);
            }
            Failure::Error(WriteError::Refused(status)) => {
                tracing::warn!(?unit, status = %status.message, "the API server refuses a write");
                match op.decision {
                    Some(id) => self.engine.written(id, Outcome::Refused(status.message.clone())),
                    None if matches!(op.about, About::Request { .. }) => {
                        self.request_refused(&unit, op, &status.message);
                    }
                    None => {
                        self.announce_refused(&unit, &status.message);
                        self.remember_refused(&unit, &op, super::REFUSED_DELAY);
                    }
                }
            }
            // Only the object itself knows.
            Failure::Error(error) => {
                let denied = if op.reads { op.denied } else { !error.is_transient() };
                if !error.is_transient() && op.decision.is_none() {
                    self.remember_refused(&unit, &op, super::CONFLICT_DELAY);
                }
                self.read_again(unit, Op { denied, ..op });
            }
            Failure::NotLeading | Failure::Stopping | Failure::Shed => {
                if let Some(id) = op.decision {
                    // What was only to be read may have been written before.
                    if attempts == 0 && !op.reads {
                        self.engine.written(id, Outcome::NotWritten);
                    } else {
                        self.unsettled.entry(unit).or_default().push(op);
                    }
                }
            }
        }
    }

    /// Reads the object that a write was about: whether it happened, and what it rests on now.
    pub(super) fn read_again(&mut self, unit: Unit, op: Op) {
        let client = self.ctx.clients.write.clone();
        let about = op.about.clone();
        let send = move || {
            let (client, about) = (client.clone(), about.clone());
            async move {
                match about {
                    About::Workload { namespace, name } | About::Request { namespace, name, .. } => {
                        let view = Api::<Workload>::namespaced(client, &namespace).get_opt(&name).await?;
                        Ok::<_, WriteError>(
                            view.map_or(Answer::Nothing, |view| Answer::Workload(Box::new(view))),
                        )
                    }
                    About::Job { kind, namespace, name } => {
                        let resource = JobResource::from(kind);
                        let api = Api::<JobObject>::namespaced_with(client, &namespace, &resource);
                        let object = api.get_opt(&name).await?;
                        Ok(object.map_or(Answer::Nothing, |object| Answer::Job(kind, Box::new(object))))
                    }
                    About::Pod { namespace, name } => {
                        let resource = JobResource::from(pods::POD);
                        let api = Api::<JobObject>::namespaced_with(client, &namespace, &resource);
                        let pod = api.get_opt(&name).await?;
                        Ok(pod.map_or(Answer::Nothing, |pod| Answer::Pod(Box::new(pod))))
                    }
                    About::Pods(group) => read_group(client, &group).await,
                    About::Queue => Ok(Answer::Nothing),
                }
            }
        };
        self.world.dirty.remove(&unit);
        self.submit(&unit, Priority::Urgent, Op { reads: true, ..op }, send);
    }
}

/// Whether what has the name of a Workload that was to be made is somebody else's. That of a group is known by its name.
pub(super) fn is_strange(unit: &Unit, before: &Before, view: &Workload) -> bool {
    let Before::Unmade { job, .. } = before else { return false };
    match unit {
        Unit::Pods(PodsKey::Group(_)) => !pods::is_of_group(&view.metadata),
        _ => !is_owned_by(view, job),
    }
}

/// What a read tells about a decision: of a Workload in another's place, only that its end is still to be seen.
fn found(before: &Before, answer: &Answer) -> Outcome {
    match (answer, before) {
        (Answer::Workload(view), Before::Workload(before)) if view.metadata.uid == before.metadata.uid => {
            Outcome::NotWritten
        }
        _ => Outcome::Unsettled,
    }
}

fn is_owned_by(view: &Workload, job: &Uid) -> bool {
    let mut owners = view.metadata.owner_references.iter().flatten();
    owners.any(|owner| Uid::from(owner.uid.as_str()) == *job)
}

/// Whether a job got its Workload.
fn made_workload(op: &Op, answer: &Answer) -> bool {
    matches!(answer, Answer::Workload(_)) && op.versions.ends_with('/')
}

/// Whether the object is in the version that the write was worked out from. Then the same step would follow for ever. One that
/// went with its last finalizer is answered in the version that it had.
fn changed_nothing(op: &Op, answer: &Answer) -> bool {
    let Some((job, workload)) = op.versions.split_once('/') else { return false };
    let same = |now: &ObjectMeta, before: &str| {
        !input::is_gone(now) && now.resource_version.as_deref() == Some(before)
    };
    match answer {
        Answer::Workload(view) => same(&view.metadata, workload),
        Answer::Pod(object) | Answer::Job(_, object) => same(&object.metadata, job),
        Answer::ClusterQueue(_)
        | Answer::LocalQueue(_)
        | Answer::Flavor(_)
        | Answer::Topology(_)
        | Answer::Check(_)
        | Answer::Request(_)
        | Answer::RequestDeleted(_)
        | Answer::Cohort(_)
        | Answer::LetGo(_)
        | Answer::Ungated(_)
        | Answer::Ended(_)
        | Answer::Compared(..)
        | Answer::Pods(_)
        | Answer::Nothing => false,
    }
}
