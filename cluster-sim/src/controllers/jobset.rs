//! JobSet (jobset.x-k8s.io/v1alpha2): groups of Jobs that start, stop, fail and end together.
//!
//! Rules: the JobSet controller of kubernetes-sigs/jobset. Not here: success and failure policies other than the defaults
//! and `maxRestarts`, start-up policies, services.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{self, object};
use super::control::{Control, Millis, Plan, Traits};
use crate::object::default_to;
use crate::{GroupResource, Object, Propagation};

/// The most Jobs of one `replicatedJobs` entry, for the same reason as `MOST_CHILDREN`: each of them has pods again.
const MOST_JOBS: usize = 1_000;
const PREFIX: &str = "jobset.sigs.k8s.io";

/// The JobSet controller.
pub(super) struct Controller;

impl Control for Controller {
    fn traits(&self) -> Traits {
        Traits {
            writer: "jobset-controller",
            owner: GroupResource::new("jobset.x-k8s.io", "jobsets"),
            api_version: "jobset.x-k8s.io/v1alpha2",
            kind: "JobSet",
            child: GroupResource::new("batch", "jobs"),
            refused: "JobCreationFailed",
            batch: Duration::ZERO,
        }
    }

    fn plan(&mut self, set: &Value, jobs: &[Arc<Object>], now: Millis) -> Plan {
        let mut plan = Plan::default();
        let mut status = set["status"].clone();
        object(&mut status);
        let ended = ["Completed", "Failed"].into_iter().find(|last| conditions::is_true(&status, last));
        if let Some(last) = ended {
            plan.delete = jobs.iter().filter(|job| !is_over(job) && !job.is_terminating()).cloned().collect();
            let ttl = &set["spec"]["ttlSecondsAfterFinished"];
            plan.expire(ttl, conditions::since(&status, last), Propagation::Foreground, now);
            return plan;
        }
        let attempt = status["restarts"].as_u64().unwrap_or(0);
        let label =
            |job: &Object| job.value()["metadata"]["labels"][format!("{PREFIX}/restart-attempt")].clone();
        let (current, old): (Vec<_>, Vec<_>) =
            jobs.iter().cloned().partition(|job| label(job) == attempt.to_string().as_str());
        plan.delete = old.into_iter().filter(|job| !job.is_terminating()).collect();
        if current.iter().any(|job| is(job, "Failed")) {
            fail(&mut plan, set, &mut status, &current, attempt, now);
        } else if is_complete(set, &current) {
            let message = "all jobs have completed";
            conditions::set(&mut status, "Completed", true, "AllJobsCompleted", message, None, now);
            status["terminalState"] = "Completed".into();
        } else {
            suspension(set, &mut status, now);
            drive(&mut plan, set, jobs, &current, attempt);
        }
        status["replicatedJobsStatus"] = replicated(set, &current);
        status["restarts"] = status["restarts"].as_u64().unwrap_or(0).into();
        plan.status = Some(status);
        plan
    }
}

fn is(job: &Object, condition: &str) -> bool {
    conditions::is_true(&job.value()["status"], condition)
}

fn is_over(job: &Object) -> bool {
    is(job, "Complete") || is(job, "Failed")
}

fn groups(set: &Value) -> impl Iterator<Item = &Value> {
    set["spec"]["replicatedJobs"].as_array().into_iter().flatten()
}

fn replicas(group: &Value) -> u64 {
    group["replicas"].as_u64().unwrap_or(1)
}

fn is_complete(set: &Value, current: &[Arc<Object>]) -> bool {
    let wanted: u64 = groups(set).map(replicas).fold(0, u64::saturating_add);
    let complete = current.iter().filter(|job| is(job, "Complete")).count();
    wanted > 0 && u64::try_from(complete).is_ok_and(|complete| complete >= wanted)
}

/// A failed Job fails the set, or restarts all of it.
fn fail(
    plan: &mut Plan,
    set: &Value,
    status: &mut Value,
    current: &[Arc<Object>],
    attempt: u64,
    now: Millis,
) {
    let most = set["spec"]["failurePolicy"]["maxRestarts"].as_u64().unwrap_or(0);
    plan.delete.extend(current.iter().filter(|job| !is_over(job) && !job.is_terminating()).cloned());
    if attempt < most {
        status["restarts"] = (attempt + 1).into();
        return;
    }
    let first = current.iter().find(|job| is(job, "Failed")).map(|job| job.key().name.to_string());
    let message = format!("job {} failed and no restart is left", first.unwrap_or_default());
    conditions::set(status, "Failed", true, "FailedJobs", &message, None, now);
    status["terminalState"] = "Failed".into();
}

fn suspension(set: &Value, status: &mut Value, now: Millis) {
    if set["spec"]["suspend"] == true {
        conditions::set(status, "Suspended", true, "SuspendedJobs", "jobset is suspended", None, now);
    } else if conditions::is_true(status, "Suspended") {
        conditions::set(status, "Suspended", false, "ResumeJobs", "jobset is resumed", None, now);
    }
}

/// Every Job there whose turn it is, and each as suspended as the set.
fn drive(plan: &mut Plan, set: &Value, jobs: &[Arc<Object>], current: &[Arc<Object>], attempt: u64) {
    let suspended = set["spec"]["suspend"] == true;
    for group in groups(set) {
        // A suspended set has all its Jobs; they are released, or made, in their turn.
        if !suspended && !may_start(set, group, current) {
            continue;
        }
        for index in (0..replicas(group)).take(MOST_JOBS) {
            let wanted = job(set, group, index, attempt);
            let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(job) = current.iter().find(|job| *job.key().name == *name) {
                if !is_over(job) && (job.value()["spec"]["suspend"] == true) != suspended {
                    plan.update.extend(switched(job.value(), &wanted, suspended));
                }
            } else if !jobs.iter().any(|job| *job.key().name == *name) {
                plan.create.push(wanted);
            }
        }
    }
}

/// Whether all that a group depends on (`dependsOn`) is as far as it has to be.
fn may_start(set: &Value, group: &Value, current: &[Arc<Object>]) -> bool {
    group["dependsOn"].as_array().into_iter().flatten().all(|on| {
        let Some(other) = groups(set).find(|other| other["name"] == on["name"]) else { return false };
        let jobs = of_group(current, other);
        let number = |holds: &dyn Fn(&Object) -> bool| jobs.iter().filter(|job| holds(job)).count();
        let reached = match on["status"].as_str() {
            Some("Complete") => number(&|job| is(job, "Complete")),
            _ => number(&|job| is_over(job) || is_job_ready(job)),
        };
        u64::try_from(reached).is_ok_and(|reached| reached >= replicas(other))
    })
}

/// The Job suspended, or resumed with what its template became meanwhile. `None`: not yet.
fn switched(job: &Value, wanted: &Value, suspended: bool) -> Option<Value> {
    let mut job = job.clone();
    job["spec"]["suspend"] = suspended.into();
    if suspended {
        return Some(job);
    }
    // Its template may change only once its controller has taken notice of the suspension.
    if !job["status"]["startTime"].is_null() {
        return None;
    }
    let (from, to) = (&wanted["spec"]["template"], &mut job["spec"]["template"]);
    for field in ["labels", "annotations"] {
        for (key, value) in from["metadata"][field].as_object().into_iter().flatten() {
            object(&mut to["metadata"][field]).insert(key.clone(), value.clone());
        }
    }
    for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
        match &from["spec"][field] {
            Value::Null => {
                object(&mut to["spec"]).remove(field);
            }
            value => to["spec"][field] = value.clone(),
        }
    }
    Some(job)
}

fn job(set: &Value, group: &Value, index: u64, attempt: u64) -> Value {
    let set_name = set["metadata"]["name"].as_str().unwrap_or_default();
    let group_name = group["name"].as_str().unwrap_or_default();
    let name = format!("{set_name}-{group_name}-{index}");
    let labels = [
        ("jobset-name", set_name.to_owned()),
        ("jobset-uid", set["metadata"]["uid"].as_str().unwrap_or_default().to_owned()),
        ("replicatedjob-name", group_name.to_owned()),
        ("replicatedjob-replicas", replicas(group).to_string()),
        ("job-index", index.to_string()),
        ("restart-attempt", attempt.to_string()),
    ];
    let template = &group["template"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": template["metadata"], "spec": template["spec"],
    });
    object(&mut job["metadata"]).insert("name".into(), name.into());
    let spec = object(&mut job["spec"]);
    spec.insert("suspend".into(), (set["spec"]["suspend"] == true).into());
    // What JobSet's webhook sets where the user did not: without it the Job would be refused.
    default_to(spec, "completionMode", "Indexed");
    let pod = object(spec.entry("template").or_insert(Value::Null)).entry("spec").or_insert(Value::Null);
    default_to(object(pod), "restartPolicy", "OnFailure");
    for at in ["/metadata", "/spec/template/metadata"] {
        if job.pointer(at).is_none_or(Value::is_null) && at != "/metadata" {
            object(&mut job["spec"]["template"]).insert("metadata".into(), json!({}));
        }
        let Some(metadata) = job.pointer_mut(at) else { continue };
        for field in ["labels", "annotations"] {
            for (key, value) in &labels {
                object(&mut metadata[field]).insert(format!("{PREFIX}/{key}"), value.clone().into());
            }
        }
    }
    job
}

/// The Jobs of one `replicatedJobs` entry.
fn of_group<'j>(current: &'j [Arc<Object>], group: &Value) -> Vec<&'j Arc<Object>> {
    let label = format!("{PREFIX}/replicatedjob-name");
    current.iter().filter(|job| job.value()["metadata"]["labels"][&label] == group["name"]).collect()
}

fn replicated(set: &Value, current: &[Arc<Object>]) -> Value {
    let statuses = groups(set).map(|group| {
        let jobs = of_group(current, group);
        let number = |holds: &dyn Fn(&Object) -> bool| jobs.iter().filter(|job| holds(job)).count();
        json!({
            "name": group["name"],
            "ready": number(&is_job_ready),
            "succeeded": number(&|job| is(job, "Complete")),
            "failed": number(&|job| is(job, "Failed")),
            "active": number(&|job| !is_over(job) && job.value()["status"]["active"].as_u64().unwrap_or(0) > 0),
            "suspended": number(&|job| job.value()["spec"]["suspend"] == true),
        })
    });
    statuses.collect()
}

/// All pods that the Job runs at a time are ready or have succeeded.
fn is_job_ready(job: &Object) -> bool {
    let (spec, status) = (&job.value()["spec"], &job.value()["status"]);
    let parallelism = spec["parallelism"].as_u64().unwrap_or(1);
    let wanted = spec["completions"].as_u64().map_or(parallelism, |completions| completions.min(parallelism));
    let number = |field: &str| status[field].as_u64().unwrap_or(0);
    !is_over(job) && spec["suspend"] != true && number("ready").saturating_add(number("succeeded")) >= wanted
}
