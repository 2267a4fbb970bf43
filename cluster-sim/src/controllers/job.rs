//! batch/v1 Job: parallelism, completions, indexes, suspension, back-off, deadline, time to live.
//!
//! Rules: `pkg/controller/job` and `pkg/controller/ttlafterfinished` of Kubernetes. Not here: pod failure policies, success
//! policies, per-index back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{self, count, is_ready, object, phase};
use super::control::{Control, MOST_CHILDREN, Millis, Plan, Traits};
use super::job_counts::{Counts, index, ranges};
use crate::node::{parse_rfc3339, rfc3339};
use crate::{Change, ChangeKind, GroupResource, Object, Propagation};

/// Pods created in one go, as upstream (`MaxPodCreateDeletePerSync`).
const MOST_AT_ONCE: usize = 500;
/// `spec.backoffLimit` where the API server did not set it.
const BACKOFF_LIMIT: u64 = 6;
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The Job controller.
pub(super) struct Controller {
    jobs: BTreeMap<String, Counts>,
    /// [`crate::SimConfig::keeps_start_time`].
    keeps_start_time: bool,
}

impl Controller {
    pub(super) fn new(keeps_start_time: bool) -> Self {
        Self { jobs: BTreeMap::new(), keeps_start_time }
    }
}

/// A Job and its pods, sorted out.
struct Sorted {
    /// Running or to run.
    active: Vec<Arc<Object>>,
    terminating: usize,
    ready: usize,
    indexed: bool,
    parallelism: usize,
    completions: Option<usize>,
}

impl Control for Controller {
    fn traits(&self) -> Traits {
        Traits {
            writer: "job-controller",
            owner: GroupResource::new("batch", "jobs"),
            api_version: "batch/v1",
            kind: "Job",
            child: GroupResource::core("pods"),
            refused: "FailedCreate",
            // `syncJobBatchPeriod` of upstream.
            batch: Duration::from_secs(1),
        }
    }

    fn observe(&mut self, owner: &str, change: &Change) {
        // A Job has its counts from its first plan, before its first pod; pods that outlive their Job count for nothing.
        if let Some(counts) = self.jobs.get_mut(owner) {
            counts.note(&change.object, change.kind == ChangeKind::Deleted);
        }
    }

    fn forget(&mut self, uid: &str) {
        self.jobs.remove(uid);
    }

    fn plan(&mut self, job: &Value, pods: &[Arc<Object>], now: Millis) -> Plan {
        let counts =
            self.jobs.entry(job["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).or_default();
        pods.iter().for_each(|pod| counts.note(pod, false));
        counts.settle(now);
        let sorted = sort(job, pods);
        let mut plan = Plan::default();
        let mut status = job["status"].clone();
        object(&mut status);
        let ended = ["Complete", "Failed"].into_iter().find(|last| conditions::is_true(&status, last));
        if let Some(last) = ended {
            plan.delete = sorted.active;
            let ttl = &job["spec"]["ttlSecondsAfterFinished"];
            plan.expire(ttl, conditions::since(&status, last), Propagation::Foreground, now);
            return plan;
        }
        let suspended = job["spec"]["suspend"] == true;
        if let Some((reason, message)) = failure(job, &status, counts, &sorted, now) {
            end(&mut plan, &mut status, counts, &sorted, End::Failed(reason, message), now);
        } else {
            if !suspended {
                resume(&mut status, now);
            }
            if is_complete(counts, &sorted, suspended) {
                end(&mut plan, &mut status, counts, &sorted, End::Complete, now);
            } else if suspended {
                delete(&mut plan, counts, sorted.active.iter());
                suspend(&mut status, self.keeps_start_time, now);
            } else {
                plan.again = deadline(job, &status);
                adjust(&mut plan, job, counts, &sorted, now);
            }
        }
        report(&mut status, counts, &sorted, &plan);
        plan.status = Some(status);
        plan
    }
}

fn sort(job: &Value, pods: &[Arc<Object>]) -> Sorted {
    let number = |field: &str| {
        let number = job["spec"][field].as_i64()?;
        Some(usize::try_from(number.max(0)).unwrap_or(usize::MAX))
    };
    let live = pods.iter().filter(|pod| !matches!(phase(pod.value()), "Succeeded" | "Failed"));
    let (terminating, active): (Vec<_>, Vec<_>) = live.cloned().partition(|pod| pod.is_terminating());
    Sorted {
        ready: active.iter().filter(|pod| is_ready(pod.value())).count(),
        active,
        terminating: terminating.len(),
        indexed: job["spec"]["completionMode"] == "Indexed",
        parallelism: number("parallelism").unwrap_or(1).min(MOST_CHILDREN),
        completions: number("completions"),
    }
}

/// Why the Job has failed, if it has.
fn failure(
    job: &Value,
    status: &Value,
    counts: &Counts,
    sorted: &Sorted,
    now: Millis,
) -> Option<(&'static str, &'static str)> {
    if let Some(target) = conditions::find(status, "FailureTarget").filter(|one| one["status"] == "True") {
        return Some(match target["reason"].as_str() {
            Some("DeadlineExceeded") => ("DeadlineExceeded", TOO_LONG),
            _ => ("BackoffLimitExceeded", TOO_OFTEN),
        });
    }
    let limit = job["spec"]["backoffLimit"].as_u64().unwrap_or(BACKOFF_LIMIT);
    // With OnFailure it is the containers that fail, in a pod that stays.
    let restarts = match job["spec"]["template"]["spec"]["restartPolicy"].as_str() {
        Some("OnFailure") => sorted.active.iter().map(|pod| conditions::restarts(pod.value())).sum::<u64>(),
        _ => 0,
    };
    let failed = u64::try_from(counts.failed()).unwrap_or(u64::MAX);
    if failed > limit || restarts > 0 && restarts >= limit {
        return Some(("BackoffLimitExceeded", TOO_OFTEN));
    }
    let past = job["spec"]["suspend"] != true && deadline(job, status).is_some_and(|at| at <= now);
    past.then_some(("DeadlineExceeded", TOO_LONG))
}

const TOO_OFTEN: &str = "the job's pods failed more often than spec.backoffLimit allows";
const TOO_LONG: &str = "the job was active for longer than spec.activeDeadlineSeconds";

fn deadline(job: &Value, status: &Value) -> Option<Millis> {
    let seconds = job["spec"]["activeDeadlineSeconds"].as_i64()?;
    let start = parse_rfc3339(status["startTime"].as_str()?)?;
    Some(start.saturating_add(seconds.saturating_mul(1000)))
}

/// Being suspended changes nothing about what has succeeded; the pods that it has left are deleted.
fn is_complete(counts: &Counts, sorted: &Sorted, suspended: bool) -> bool {
    let succeeded = counts.succeeded(sorted.indexed);
    match sorted.completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0 && (suspended || sorted.active.is_empty()),
    }
}

enum End {
    Complete,
    Failed(&'static str, &'static str),
}

/// First the decision, and the last condition only when no pod is left. What still runs then counts as failed.
fn end(plan: &mut Plan, status: &mut Value, counts: &mut Counts, sorted: &Sorted, end: End, now: Millis) {
    sorted.active.iter().for_each(|pod| counts.fail(pod));
    plan.delete.extend(sorted.active.iter().cloned());
    let (decided, last, reason, message) = match end {
        End::Complete => {
            ("SuccessCriteriaMet", "Complete", "CompletionsReached", "the job has reached spec.completions")
        }
        End::Failed(reason, message) => ("FailureTarget", "Failed", reason, message),
    };
    conditions::set(status, decided, true, reason, message, Some("lastProbeTime"), now);
    if sorted.active.is_empty() && sorted.terminating == 0 {
        conditions::set(status, last, true, reason, message, Some("lastProbeTime"), now);
        if last == "Complete" {
            object(status).insert("completionTime".into(), rfc3339(now).into());
        }
    }
}

fn suspend(status: &mut Value, keeps_start_time: bool, now: Millis) {
    if !conditions::is_true(status, "Suspended") {
        conditions::set(
            status,
            "Suspended",
            true,
            "JobSuspended",
            "Job suspended",
            Some("lastProbeTime"),
            now,
        );
        if !keeps_start_time {
            object(status).remove("startTime");
        }
    }
}

fn resume(status: &mut Value, now: Millis) {
    if conditions::is_true(status, "Suspended") {
        conditions::set(status, "Suspended", false, "JobResumed", "Job resumed", Some("lastProbeTime"), now);
        object(status).insert("startTime".into(), rfc3339(now).into());
    }
    if status["startTime"].is_null() {
        object(status).insert("startTime".into(), rfc3339(now).into());
    }
}

/// As many pods as there should be.
fn adjust(plan: &mut Plan, job: &Value, counts: &mut Counts, sorted: &Sorted, now: Millis) {
    let (active, succeeded) = (sorted.active.len(), counts.succeeded(sorted.indexed));
    let wanted = match sorted.completions {
        Some(completions) => sorted.parallelism.min(completions.saturating_sub(succeeded)),
        // Without completions the first success ends the work: what runs may finish, nothing new begins.
        None if succeeded > 0 => active.min(sorted.parallelism),
        None => sorted.parallelism,
    };
    if active > wanted {
        let mut surplus: Vec<&Arc<Object>> = sorted.active.iter().collect();
        // Those that have come least far go first.
        surplus.sort_by_key(|pod| {
            (is_ready(pod.value()), phase(pod.value()) == "Running", pod.key().name.clone())
        });
        delete(plan, counts, surplus.into_iter().take(active - wanted));
        return;
    }
    let missing = (wanted - active).min(MOST_AT_ONCE);
    if missing == 0 {
        return;
    }
    if let Some(until) = counts.pause(now) {
        plan.again = plan.again.into_iter().chain([until]).min();
        return;
    }
    if sorted.indexed {
        let mut taken: BTreeSet<u64> = counts.indexes();
        taken.extend(sorted.active.iter().filter_map(|pod| index(pod)));
        let all = u64::try_from(sorted.completions.unwrap_or(0)).unwrap_or(u64::MAX);
        plan.create =
            (0..all).filter(|i| !taken.contains(i)).take(missing).map(|i| pod(job, Some(i))).collect();
    } else {
        plan.create = (0..missing).map(|_| pod(job, None)).collect();
    }
}

fn delete<'a>(plan: &mut Plan, counts: &mut Counts, pods: impl Iterator<Item = &'a Arc<Object>>) {
    for pod in pods {
        counts.remove(pod);
        plan.delete.push(pod.clone());
    }
}

fn report(status: &mut Value, counts: &Counts, sorted: &Sorted, plan: &Plan) {
    let active = sorted.active.len() - plan.delete.len() + plan.create.len();
    count(status, "active", active, true);
    count(
        status,
        "ready",
        if plan.delete.is_empty() { sorted.ready } else { sorted.ready.min(active) },
        false,
    );
    count(status, "terminating", sorted.terminating + plan.delete.len(), false);
    count(status, "succeeded", counts.succeeded(sorted.indexed), true);
    count(status, "failed", counts.failed(), true);
    let status = object(status);
    status.insert("uncountedTerminatedPods".into(), json!({}));
    if sorted.indexed {
        let done = ranges(&counts.indexes());
        if !done.is_empty() {
            status.insert("completedIndexes".into(), done.into());
        }
    }
}

/// A pod from the template.
fn pod(job: &Value, index: Option<u64>) -> Value {
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let uid = &job["metadata"]["uid"];
    let template = &job["spec"]["template"];
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"] });
    let metadata = &mut pod["metadata"];
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let labels = object(&mut metadata["labels"]);
    for key in ["batch.kubernetes.io/job-name", "job-name"] {
        labels.insert(key.into(), name.into());
    }
    for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
        labels.insert(key.into(), uid.clone());
    }
    match index {
        None => metadata["generateName"] = format!("{name}-").into(),
        Some(index) => {
            metadata["generateName"] = format!("{name}-{index}-").into();
            metadata["labels"][INDEX] = index.to_string().into();
            object(&mut metadata["annotations"]).insert(INDEX.into(), index.to_string().into());
            tell_index(&mut pod["spec"], &format!("{name}-{index}"));
        }
    }
    pod
}

fn tell_index(spec: &mut Value, hostname: &str) {
    if spec["hostname"].is_null() {
        spec["hostname"] = hostname.into();
    }
    for field in ["initContainers", "containers"] {
        for container in spec[field].as_array_mut().into_iter().flatten() {
            let source = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']") } });
            let variable = json!({ "name": "JOB_COMPLETION_INDEX", "valueFrom": source });
            match container["env"].as_array_mut() {
                Some(env) if env.iter().any(|one| one["name"] == "JOB_COMPLETION_INDEX") => {}
                Some(env) => env.push(variable),
                None => container["env"] = json!([variable]),
            }
        }
    }
}
