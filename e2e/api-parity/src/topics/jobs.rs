//! Batch Jobs: what a suspended one lets change, and what its controller does.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::shapes::{JOBS, PODS, at, job};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["jobs", OnlyTheApi:
    a_job_gets_its_defaults,
    a_job_labels_its_template,
    a_job_needs_a_restart_policy,
    a_negative_parallelism_names_the_field,
    suspend_may_change_at_any_time,
    a_suspended_job_lets_its_template_be_directed,
    a_running_job_keeps_its_template,
    the_scheduler_name_of_a_suspended_job_may_not_change,
    completions_may_not_change,
    parallelism_may_change,
    a_selector_of_ones_own_is_refused,
    managed_by_may_not_change,
];

pub(super) const CONTROLLED: &[Case] = topic!["jobs", Controllers:
    a_suspended_job_makes_no_pods_and_says_so,
    a_released_job_makes_its_pods,
    suspending_a_job_deletes_its_pods,
    pods_of_a_job_name_it_as_their_controller,
    a_job_is_complete_when_its_pods_have_succeeded,
    a_job_with_too_many_failures_fails,
    an_indexed_job_numbers_its_pods,
    deleting_a_job_deletes_its_pods,
    a_job_replaces_a_deleted_pod,
    pods_that_a_deadline_ends_have_failed,
    an_ended_job_goes_after_its_time_to_live,
];

fn suspended(name: &str) -> Value {
    let mut body = job(name);
    body["spec"]["suspend"] = json!(true);
    body
}

async fn a_job_gets_its_defaults(api: Harness) -> Result<()> {
    let made = api.post(JOBS, suspended("a")).await?.is(201)?;
    made.has("/spec/parallelism", 1)?
        .has("/spec/completions", 1)?
        .has("/spec/backoffLimit", 6)?
        .has("/spec/completionMode", "NonIndexed")?
        .has("/spec/suspend", true)?
        .has("/spec/podReplacementPolicy", "TerminatingOrFailed")?
        .has("/spec/template/spec/schedulerName", "default-scheduler")?
        .has("/spec/template/spec/dnsPolicy", "ClusterFirst")?;
    Ok(())
}

async fn a_job_labels_its_template(api: Harness) -> Result<()> {
    let made = api.post(JOBS, suspended("a")).await?.is(201)?;
    let uid = made.uid()?;
    made.has("/spec/template/metadata/labels/batch.kubernetes.io~1job-name", "a")?
        .has("/spec/template/metadata/labels/job-name", "a")?
        .has("/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid", uid.clone())?
        .has("/spec/selector/matchLabels", json!({"batch.kubernetes.io/controller-uid": uid}))?;
    Ok(())
}

async fn a_job_needs_a_restart_policy(api: Harness) -> Result<()> {
    let mut body = suspended("a");
    body["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    let refused = api.post(JOBS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueRequired", "spec.template.spec.restartPolicy")?;
    Ok(())
}

async fn a_negative_parallelism_names_the_field(api: Harness) -> Result<()> {
    let mut body = suspended("a");
    body["spec"]["parallelism"] = json!(-1);
    api.post(JOBS, body).await?.refused(422, "Invalid")?.cause("FieldValueInvalid", "spec.parallelism")?;
    Ok(())
}

async fn suspend_may_change_at_any_time(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    for suspend in [false, true] {
        let patched = api.merge(&at(JOBS, "a"), json!({"spec": {"suspend": suspend}})).await?.is(200)?;
        patched.has("/spec/suspend", suspend)?;
    }
    Ok(())
}

fn direction() -> Value {
    json!({"spec": {"template": {
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
        "spec": {"nodeSelector": {"zone": "z"}, "tolerations": [{"key": "k", "operator": "Exists"}],
            "schedulingGates": [{"name": "trireme.dev/one"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}}}}}})
}

async fn a_suspended_job_lets_its_template_be_directed(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    let patched = api.merge(&at(JOBS, "a"), direction()).await?.is(200)?;
    patched
        .has("/spec/template/spec/nodeSelector/zone", "z")?
        .has("/spec/template/metadata/labels/l", "1")?;
    // In one patch with the release, too.
    let mut release = json!({"spec": {"suspend": false}});
    release["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "y"});
    api.merge(&at(JOBS, "a"), release).await?.is(200)?.has("/spec/template/spec/nodeSelector/zone", "y")?;
    Ok(())
}

async fn a_running_job_keeps_its_template(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["parallelism"] = json!(0);
    api.post(JOBS, body).await?.is(201)?;
    let refused = api.merge(&at(JOBS, "a"), direction()).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.template")?;
    Ok(())
}

async fn the_scheduler_name_of_a_suspended_job_may_not_change(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    let patch = json!({"spec": {"template": {"spec": {"schedulerName": "trireme"}}}});
    let refused = api.merge(&at(JOBS, "a"), patch).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.template.spec")?;
    Ok(())
}

async fn completions_may_not_change(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    let refused =
        api.merge(&at(JOBS, "a"), json!({"spec": {"completions": 5}})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.completions")?;
    Ok(())
}

async fn parallelism_may_change(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    api.merge(&at(JOBS, "a"), json!({"spec": {"parallelism": 3}}))
        .await?
        .is(200)?
        .has("/spec/parallelism", 3)?;
    Ok(())
}

async fn a_selector_of_ones_own_is_refused(api: Harness) -> Result<()> {
    let mut body = suspended("a");
    body["spec"]["selector"] = json!({"matchLabels": {"x": "y"}});
    api.post(JOBS, body).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn managed_by_may_not_change(api: Harness) -> Result<()> {
    let mut body = suspended("a");
    body["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    api.post(JOBS, body).await?.is(201)?;
    let refused = api.merge(&at(JOBS, "a"), json!({"spec": {"managedBy": "other.example.com/x"}})).await?;
    refused.refused(422, "Invalid")?.cause("FieldValueInvalid", "spec.managedBy")?;
    Ok(())
}

async fn pods_of(api: &Harness, job: &str, count: usize) -> Result<crate::Answer> {
    api.until(&format!("{PODS}?labelSelector=job-name%3D{job}"), |answer| answer.names().len() == count).await
}

fn condition(answer: &crate::Answer, kind: &str) -> bool {
    let conditions = answer.at("/status/conditions").as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

async fn a_suspended_job_makes_no_pods_and_says_so(api: Harness) -> Result<()> {
    api.post(JOBS, suspended("a")).await?.is(201)?;
    api.until(&at(JOBS, "a"), |answer| condition(answer, "Suspended")).await?;
    pods_of(&api, "a", 0).await?;
    Ok(())
}

async fn a_released_job_makes_its_pods(api: Harness) -> Result<()> {
    let mut body = suspended("a");
    body["spec"]["parallelism"] = json!(3);
    body["spec"]["completions"] = json!(3);
    api.post(JOBS, body).await?.is(201)?;
    api.merge(&at(JOBS, "a"), json!({"spec": {"suspend": false}})).await?.is(200)?;
    let pods = pods_of(&api, "a", 3).await?;
    pods.has("/items/0/spec/schedulerName", "default-scheduler")?;
    api.until(&at(JOBS, "a"), |answer| answer.at("/status/active") == 3)
        .await?
        .filled("/status/startTime")?;
    Ok(())
}

async fn suspending_a_job_deletes_its_pods(api: Harness) -> Result<()> {
    api.post(JOBS, job("a")).await?.is(201)?;
    pods_of(&api, "a", 1).await?;
    api.merge(&at(JOBS, "a"), json!({"spec": {"suspend": true}})).await?.is(200)?;
    pods_of(&api, "a", 0).await?;
    api.until(&at(JOBS, "a"), |answer| condition(answer, "Suspended")).await?.lacks("/status/startTime")?;
    Ok(())
}

async fn pods_of_a_job_name_it_as_their_controller(api: Harness) -> Result<()> {
    let uid = api.post(JOBS, job("a")).await?.is(201)?.uid()?;
    let pods = pods_of(&api, "a", 1).await?;
    ensure!(pods.names()[0].starts_with("a-"), "{:?}", pods.names());
    pods.has("/items/0/metadata/ownerReferences/0/uid", uid)?
        .has("/items/0/metadata/ownerReferences/0/kind", "Job")?
        .has("/items/0/metadata/ownerReferences/0/apiVersion", "batch/v1")?
        .has("/items/0/metadata/ownerReferences/0/controller", true)?
        .has("/items/0/metadata/finalizers", json!(["batch.kubernetes.io/job-tracking"]))?;
    Ok(())
}

async fn end_pod(api: &Harness, pods: &crate::Answer, phase: &str) -> Result<()> {
    for name in pods.names() {
        api.merge(&format!("{PODS}/{name}/status"), json!({"status": {"phase": phase}})).await?.is(200)?;
    }
    Ok(())
}

async fn a_job_is_complete_when_its_pods_have_succeeded(api: Harness) -> Result<()> {
    api.post(JOBS, job("a")).await?.is(201)?;
    let pods = pods_of(&api, "a", 1).await?;
    end_pod(&api, &pods, "Succeeded").await?;
    let done = api.until(&at(JOBS, "a"), |answer| condition(answer, "Complete")).await?;
    done.has("/status/succeeded", 1)?.filled("/status/completionTime")?;
    Ok(())
}

async fn a_job_with_too_many_failures_fails(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["backoffLimit"] = json!(0);
    api.post(JOBS, body).await?.is(201)?;
    let pods = pods_of(&api, "a", 1).await?;
    end_pod(&api, &pods, "Failed").await?;
    api.until(&at(JOBS, "a"), |answer| condition(answer, "Failed")).await?.has("/status/failed", 1)?;
    Ok(())
}

async fn an_indexed_job_numbers_its_pods(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["completionMode"] = json!("Indexed");
    body["spec"]["parallelism"] = json!(2);
    body["spec"]["completions"] = json!(2);
    api.post(JOBS, body).await?.is(201)?;
    let pods = pods_of(&api, "a", 2).await?;
    for (item, name) in pods.names().iter().enumerate() {
        ensure!(name.starts_with(&format!("a-{item}-")), "{name}");
        let index =
            pods.at(&format!("/items/{item}/metadata/annotations/batch.kubernetes.io~1job-completion-index"));
        ensure!(index == &json!(item.to_string()), "{index}");
    }
    Ok(())
}

async fn deleting_a_job_deletes_its_pods(api: Harness) -> Result<()> {
    api.post(JOBS, job("a")).await?.is(201)?;
    pods_of(&api, "a", 1).await?;
    api.delete(&format!("{JOBS}/a?propagationPolicy=Background")).await?.is(200)?;
    pods_of(&api, "a", 0).await?;
    Ok(())
}

async fn a_job_replaces_a_deleted_pod(api: Harness) -> Result<()> {
    api.post(JOBS, job("a")).await?.is(201)?;
    let first = pods_of(&api, "a", 1).await?.names().remove(0);
    api.delete(&at(PODS, &first)).await?.ok()?;
    let path = format!("{PODS}?labelSelector=job-name%3Da");
    api.until(&path, |answer| answer.names().len() == 1 && answer.names()[0] != first).await?;
    Ok(())
}

async fn pods_that_a_deadline_ends_have_failed(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["activeDeadlineSeconds"] = json!(1);
    api.post(JOBS, body).await?.is(201)?;
    let failed = api.until(&at(JOBS, "a"), |answer| condition(answer, "Failed")).await?;
    failed.has("/status/failed", 1)?.lacks("/status/active")?;
    pods_of(&api, "a", 0).await?;
    Ok(())
}

async fn an_ended_job_goes_after_its_time_to_live(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["ttlSecondsAfterFinished"] = json!(1);
    api.post(JOBS, body).await?.is(201)?;
    let pods = pods_of(&api, "a", 1).await?;
    end_pod(&api, &pods, "Succeeded").await?;
    api.until(&at(JOBS, "a"), |answer| answer.status == 404).await?;
    pods_of(&api, "a", 0).await?;
    Ok(())
}
