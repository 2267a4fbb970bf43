//! PyTorchJob (kubeflow.org/v1): one master and workers, or workers alone, that find each other by environment.
//!
//! Rules: training-operator v1.8 of Kubeflow. Not here: services, elastic policies, gang scheduling by PodGroups.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{self, object, phase};
use super::control::{Control, MOST_CHILDREN, Millis, Plan, Traits};
use crate::node::{parse_rfc3339, rfc3339};
use crate::{GroupResource, Object, Propagation};

const PREFIX: &str = "training.kubeflow.org";
const OPERATOR: &str = "pytorchjob-controller";
/// The port on which rank 0 listens.
const PORT: u16 = 23456;
/// Exit codes from here on come from signals and are worth another try under `ExitCode`.
const RETRYABLE: i64 = 128;

/// The PyTorchJob controller.
pub(super) struct Controller;

/// One of the two kinds of replica.
struct Group<'v> {
    kind: &'static str,
    spec: &'v Value,
    replicas: u64,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    active: u64,
    succeeded: u64,
    failed: u64,
}

impl Control for Controller {
    fn traits(&self) -> Traits {
        Traits {
            writer: "training-operator",
            owner: GroupResource::new("kubeflow.org", "pytorchjobs"),
            api_version: "kubeflow.org/v1",
            kind: "PyTorchJob",
            child: GroupResource::core("pods"),
            refused: "FailedCreatePod",
            batch: Duration::from_millis(100),
        }
    }

    fn plan(&mut self, job: &Value, pods: &[Arc<Object>], now: Millis) -> Plan {
        let mut plan = Plan::default();
        let mut status = job["status"].clone();
        object(&mut status);
        if conditions::is_true(&status, "Succeeded") || conditions::is_true(&status, "Failed") {
            plan.delete = leftovers(job, pods);
            let ttl = &job["spec"]["runPolicy"]["ttlSecondsAfterFinished"];
            plan.expire(ttl, &status["completionTime"], Propagation::Background, now);
            still_active(&mut status, pods);
            plan.status = Some(status);
            return plan;
        }
        if conditions::find(&status, "Created").is_none() {
            set(&mut status, "Created", true, "PyTorchJobCreated", "the job was created", now);
        }
        if job["spec"]["runPolicy"]["suspend"] == true {
            suspend(&mut plan, &mut status, pods, now);
        } else {
            resume(&mut status, now);
            drive(&mut plan, job, &mut status, pods, now);
        }
        plan.status = Some(status);
        plan
    }
}

fn suspend(plan: &mut Plan, status: &mut Value, pods: &[Arc<Object>], now: Millis) {
    plan.delete = pods.iter().filter(|pod| !pod.is_terminating()).cloned().collect();
    for (_, replicas) in replica_statuses(status) {
        object(replicas).remove("active");
    }
    if conditions::is_true(status, "Running") {
        set(status, "Running", false, "PyTorchJobSuspended", "the job is suspended", now);
    }
    if !conditions::is_true(status, "Suspended") {
        set(status, "Suspended", true, "PyTorchJobSuspended", "the job is suspended", now);
        object(status).remove("startTime");
    }
}

fn resume(status: &mut Value, now: Millis) {
    if conditions::is_true(status, "Suspended") {
        set(status, "Suspended", false, "PyTorchJobResumed", "the job is resumed", now);
        object(status).insert("startTime".into(), rfc3339(now).into());
    }
    if status["startTime"].is_null() {
        object(status).insert("startTime".into(), rfc3339(now).into());
    }
}

fn groups(job: &Value) -> Vec<Group<'_>> {
    let of = |kind: &'static str| {
        let spec = job["spec"]["pytorchReplicaSpecs"].get(kind)?;
        Some(Group { kind, spec, replicas: spec["replicas"].as_u64().unwrap_or(1) })
    };
    ["Master", "Worker"].into_iter().filter_map(of).collect()
}

/// The pods there should be, and what those that are there make of the job.
fn drive(plan: &mut Plan, job: &Value, status: &mut Value, pods: &[Arc<Object>], now: Millis) {
    let groups = groups(job);
    if let Some(reason) = exhausted(plan, job, status, pods, &groups, now) {
        plan.delete = pods.iter().filter(|pod| !pod.is_terminating() && !is_over(pod)).cloned().collect();
        finish(status, "Failed", &reason, now);
        return;
    }
    let mut restarting = false;
    let mut tallies = Vec::new();
    for group in &groups {
        let (tally, again) = replicas_of(plan, job, &groups, group, pods);
        restarting |= again;
        tallies.push(tally);
        let mut counted = json!({ "selector": selector(job, group.kind) });
        for (field, number) in
            [("active", tally.active), ("succeeded", tally.succeeded), ("failed", tally.failed)]
        {
            if number > 0 {
                counted[field] = number.into();
            }
        }
        status["replicaStatuses"][group.kind] = counted;
    }
    judge(status, &groups, &tallies, restarting, now);
}

/// One group's pods, one name for each index.
fn replicas_of(
    plan: &mut Plan,
    job: &Value,
    groups: &[Group<'_>],
    group: &Group<'_>,
    pods: &[Arc<Object>],
) -> (Tally, bool) {
    let (mut tally, mut restarting) = (Tally::default(), false);
    for index in (0..group.replicas).take(MOST_CHILDREN) {
        let name = pod_name(job, group.kind, index);
        let Some(pod) = pods.iter().find(|pod| *pod.key().name == *name) else {
            plan.create.push(self::pod(job, groups, group, index));
            continue;
        };
        if pod.is_terminating() && !is_over(pod) {
            continue;
        }
        match phase(pod.value()) {
            "Running" => tally.active += 1,
            "Succeeded" => tally.succeeded += 1,
            "Failed" if is_retryable(group.spec, pod.value()) => {
                restarting = true;
                tally.failed += 1;
                if !pod.is_terminating() {
                    plan.delete.push(pod.clone());
                }
            }
            "Failed" => tally.failed += 1,
            _ => {}
        }
    }
    let kind = group.kind.to_lowercase();
    let surplus = pods.iter().filter(|pod| {
        let index = label(pod, "replica-index").as_str().and_then(|text| text.parse::<u64>().ok());
        *label(pod, "replica-type") == kind.as_str()
            && !pod.is_terminating()
            && index.is_none_or(|index| index >= group.replicas)
    });
    plan.delete.extend(surplus.cloned());
    (tally, restarting)
}

/// Success, failure, running: the master's say where there is one.
fn judge(status: &mut Value, groups: &[Group<'_>], tallies: &[Tally], restarting: bool, now: Millis) {
    let leading = groups.iter().zip(tallies).next();
    if let Some((group, tally)) = leading {
        if tally.succeeded >= group.replicas {
            finish(status, "Succeeded", "the job has completed", now);
            return;
        }
        if tally.active > 0 {
            conditions_without(status, "Restarting");
            set(status, "Running", true, "PyTorchJobRunning", "the job is running", now);
        }
    }
    for (group, tally) in groups.iter().zip(tallies).filter(|(_, tally)| tally.failed > 0) {
        let number = format!("{} {} replica(s) failed", tally.failed, group.kind);
        if restarting {
            conditions_without(status, "Running");
            set(
                status,
                "Restarting",
                true,
                "PyTorchJobRestarting",
                &format!("restarting because {number}"),
                now,
            );
        } else {
            finish(status, "Failed", &format!("the job has failed because {number}"), now);
            return;
        }
    }
}

fn finish(status: &mut Value, kind: &str, message: &str, now: Millis) {
    let reason = format!("PyTorchJob{kind}");
    if conditions::is_true(status, "Running") {
        set(status, "Running", false, &reason, message, now);
    }
    conditions_without(status, "Restarting");
    set(status, kind, true, &reason, message, now);
    object(status).insert("completionTime".into(), rfc3339(now).into());
    for (_, replicas) in replica_statuses(status).filter(|_| kind == "Succeeded") {
        object(replicas).remove("active");
    }
}

fn replica_statuses(status: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    status.get_mut("replicaStatuses").and_then(Value::as_object_mut).into_iter().flatten()
}

/// The pods of a finished job that are active still: fewer and fewer.
fn still_active(status: &mut Value, pods: &[Arc<Object>]) {
    let running = |kind: &str| {
        let kind = kind.to_lowercase();
        let pods = pods.iter().filter(|pod| phase(pod.value()) == "Running" && !pod.is_terminating());
        let number = pods.filter(|pod| *label(pod, "replica-type") == kind.as_str()).count();
        u64::try_from(number).unwrap_or(u64::MAX)
    };
    for (kind, replicas) in replica_statuses(status) {
        match replicas["active"].as_u64().map(|active| active.min(running(kind))) {
            Some(0) => {
                object(replicas).remove("active");
            }
            Some(active) => replicas["active"] = active.into(),
            None => {}
        }
    }
}

/// The value of one of the labels that the pods get from their job.
fn label<'p>(pod: &'p Object, key: &str) -> &'p Value {
    &pod.value()["metadata"]["labels"][format!("{PREFIX}/{key}")]
}

/// The labels of all pods of one kind of replica, as a selector for whoever scales them.
fn selector(job: &Value, kind: &str) -> String {
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let kind = kind.to_lowercase();
    format!("{PREFIX}/job-name={name},{PREFIX}/operator-name={OPERATOR},{PREFIX}/replica-type={kind}")
}

/// Why the job may not go on, by its own limits.
fn exhausted(
    plan: &mut Plan,
    job: &Value,
    status: &Value,
    pods: &[Arc<Object>],
    groups: &[Group<'_>],
    now: Millis,
) -> Option<String> {
    let policy = &job["spec"]["runPolicy"];
    if let (Some(seconds), Some(start)) =
        (policy["activeDeadlineSeconds"].as_i64(), status["startTime"].as_str().and_then(parse_rfc3339))
    {
        let at = start.saturating_add(seconds.saturating_mul(1000));
        if at <= now {
            return Some("the job was active for longer than runPolicy.activeDeadlineSeconds".into());
        }
        plan.again = Some(at);
    }
    let limit = policy["backoffLimit"].as_u64()?;
    let restartable = groups.iter().any(|group| matches!(restart_policy(group.spec), "OnFailure" | "Always"));
    let restarts: u64 = pods.iter().map(|pod| conditions::restarts(pod.value())).sum();
    let past = restartable && restarts > 0 && restarts >= limit;
    past.then(|| "the job's containers were restarted more often than runPolicy.backoffLimit allows".into())
}

/// What `cleanPodPolicy` says about the pods of a finished job.
fn leftovers(job: &Value, pods: &[Arc<Object>]) -> Vec<Arc<Object>> {
    let doomed = |pod: &&Arc<Object>| match job["spec"]["runPolicy"]["cleanPodPolicy"].as_str() {
        Some("All") => true,
        Some("Running") => !is_over(pod),
        _ => false,
    };
    pods.iter().filter(|pod| !pod.is_terminating()).filter(doomed).cloned().collect()
}

fn is_over(pod: &Object) -> bool {
    matches!(phase(pod.value()), "Succeeded" | "Failed")
}

fn restart_policy(replica: &Value) -> &str {
    replica["restartPolicy"].as_str().unwrap_or("OnFailure")
}

/// Whether a failed pod is replaced.
fn is_retryable(replica: &Value, pod: &Value) -> bool {
    match restart_policy(replica) {
        "OnFailure" | "Always" => true,
        "ExitCode" => {
            let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            let mut codes = statuses.filter_map(|one| one["state"]["terminated"]["exitCode"].as_i64());
            codes.any(|code| code >= RETRYABLE)
        }
        _ => false,
    }
}

fn pod_name(job: &Value, kind: &str, index: u64) -> String {
    format!("{}-{}-{index}", job["metadata"]["name"].as_str().unwrap_or_default(), kind.to_lowercase())
}

fn pod(job: &Value, groups: &[Group<'_>], group: &Group<'_>, index: u64) -> Value {
    let job_name = job["metadata"]["name"].as_str().unwrap_or_default();
    let kind = group.kind.to_lowercase();
    let template = &group.spec["template"];
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"] });
    for field in ["labels", "annotations"] {
        if !template["metadata"][field].is_null() {
            pod["metadata"][field] = template["metadata"][field].clone();
        }
    }
    pod["metadata"]["name"] = pod_name(job, group.kind, index).into();
    let labels = object(&mut pod["metadata"]["labels"]);
    for (key, value) in [
        ("job-name", job_name.to_owned()),
        ("replica-type", kind.clone()),
        ("replica-index", index.to_string()),
        ("operator-name", OPERATOR.to_owned()),
    ] {
        labels.insert(format!("{PREFIX}/{key}"), value.into());
    }
    let has_master = groups.iter().any(|group| group.kind == "Master");
    if group.kind == "Master" || (!has_master && index == 0) {
        labels.insert(format!("{PREFIX}/job-role"), "master".into());
    }
    let policy = match restart_policy(group.spec) {
        "ExitCode" => "Never",
        policy => policy,
    };
    object(&mut pod["spec"]).insert("restartPolicy".into(), policy.into());
    let rank = if has_master && group.kind == "Worker" { index + 1 } else { index };
    let world: u64 = groups.iter().map(|group| group.replicas).fold(0, u64::saturating_add);
    let leader = pod_name(job, if has_master { "Master" } else { "Worker" }, 0);
    let env = [
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("MASTER_PORT", PORT.to_string()),
        ("MASTER_ADDR", leader),
        ("WORLD_SIZE", world.to_string()),
        ("RANK", rank.to_string()),
    ];
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let mut all = container["env"].as_array().cloned().unwrap_or_default();
        // What the user sets stands.
        let missing = env.iter().filter(|(name, _)| !all.iter().any(|one| one["name"] == *name));
        let missing: Vec<Value> =
            missing.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        all.extend(missing);
        container["env"] = all.into();
    }
    pod
}

fn conditions_without(status: &mut Value, kind: &str) {
    if let Some(list) = status["conditions"].as_array_mut() {
        list.retain(|one| one["type"] != kind);
    }
}

/// The latest change comes last: it is the state that `kubectl get` shows.
fn set(status: &mut Value, kind: &str, value: bool, reason: &str, message: &str, now: Millis) {
    let text = if value { "True" } else { "False" };
    if conditions::find(status, kind).is_some_and(|one| one["status"] == text && one["reason"] == reason) {
        return;
    }
    conditions::set(status, kind, value, reason, message, Some("lastUpdateTime"), now);
    if let Some(list) = status["conditions"].as_array_mut()
        && value
        && let Some(at) = list.iter().position(|one| one["type"] == kind)
    {
        let latest = list.remove(at);
        list.push(latest);
    }
}
