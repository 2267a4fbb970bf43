//! Jobs that are described elsewhere: in what their controller makes of them, or in a Workload that somebody else makes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use cluster_sim::faults::{Aim, Fault};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, owned_by};

fn template(gpus: i64) -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{
        "name": "c", "image": "x", "resources": { "limits": { "nvidia.com/gpu": gpus } },
    }] } })
}

/// Starts a replica that manages these kinds and no others, and makes a queue.
async fn manage(world: &World, frameworks: &str) {
    let text = format!("integrations: {{ frameworks: {frameworks} }}");
    let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
    world.install_webhooks(&file).await;
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
}

/// Its JobSet says what its pods are, and is watched for it where JobSets are not managed.
#[tokio::test(start_paused = true)]
async fn a_train_job_is_described_by_its_job_set_and_started_by_a_patch() {
    for frameworks in
        ["[trainer.kubeflow.org/trainjob, jobset.x-k8s.io/jobset]", "[trainer.kubeflow.org/trainjob]"]
    {
        let world = World::new(false).await;
        manage(&world, frameworks).await;
        tuned(&world).await;
        // One that nobody made for a TrainJob is none of its business where JobSets are not managed.
        let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
        let spec = json!({ "suspend": true, "replicatedJobs": [
            { "name": "node", "template": { "spec": { "parallelism": 1, "template": template(2) } } },
        ]});
        let free =
            json!({ "metadata": { "name": "free", "namespace": "team", "labels": labels }, "spec": spec });
        world.create("jobset.x-k8s.io", "jobsets", free).await;
        world.settle().await;
        assert_eq!(world.workload("free").is_some(), frameworks.contains("jobset"));
    }
}

async fn tuned(world: &World) {
    let job = json!({
        "metadata": { "name": "tune", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "runtimeRef": { "name": "torch" } },
    });
    let job = world.create("trainer.kubeflow.org", "trainjobs", job).await;
    world.settle().await;
    assert_eq!(job.value()["spec"]["suspend"], true);
    assert!(world.workload("tune").is_none(), "nobody knows its pods yet");
    let job_set = json!({
        "metadata": { "name": "tune", "namespace": "team", "ownerReferences": owned_by(job.value()) },
        "spec": { "suspend": true, "replicatedJobs": [{ "name": "node", "template": { "spec": {
            "parallelism": 2, "completions": 2, "template": template(2),
        }}}]},
    });
    world.create("jobset.x-k8s.io", "jobsets", job_set).await;
    world.settle().await;
    let workload = world.workload("tune").unwrap();
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("trainjob-tune-"));
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    assert!(world.is("tune", "Admitted"));
    let job = world.get("trainer.kubeflow.org", "trainjobs", "tune").unwrap();
    assert_eq!(job["spec"]["suspend"], false);
    let patch =
        &job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0];
    assert_eq!(patch["template"]["spec"]["template"]["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    let job_set = world.get("jobset.x-k8s.io", "jobsets", "tune").unwrap();
    assert_eq!(job_set["spec"]["suspend"], true, "its own controller starts it");
    let id = GroupResource::new("kueue.x-k8s.io", "workloads");
    assert_eq!(world.cluster.store("reader").list(&id, Some("team")).len(), 1);
}

/// JobSets are switched off, and what owns them counts all the same.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_job_set_of_a_train_job_is_part_of_that() {
    let world = World::new(false).await;
    manage(&world, "[trainer.kubeflow.org/trainjob, batch/job]").await;
    tuned(&world).await;
    let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
    let free =
        json!({ "metadata": { "name": "free", "namespace": "team" }, "spec": { "replicatedJobs": [] } });
    let free = world.create("jobset.x-k8s.io", "jobsets", free).await;
    let set = world.get("jobset.x-k8s.io", "jobsets", "tune").unwrap();
    for (name, owner, is_own) in [("part", &set, false), ("own", free.value(), true)] {
        let metadata = json!({
            "name": name, "namespace": "team", "labels": labels, "ownerReferences": owned_by(owner),
        });
        let spec = json!({ "suspend": true, "parallelism": 2, "completions": 2, "template": template(2) });
        world.create("batch", "jobs", json!({ "metadata": metadata, "spec": spec })).await;
        world.settle().await;
        assert_eq!(world.workload(name).is_some(), is_own, "{name}");
        let job = world.get("batch", "jobs", name).unwrap();
        assert_eq!(job["spec"]["suspend"], !is_own, "{name}: who owns it starts it");
    }
}

/// Nobody's part is a job whose owner is of a kind that is switched off and cannot be looked at; and others wait for nothing.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_switched_off_and_cannot_be_listed_is_in_nobodys_way() {
    for (code, is_own) in [(404, true), (500, false)] {
        let world = World::new(false).await;
        let lists = Aim { verbs: vec![Verb::List], ..Aim::default() };
        let lists = lists.by("layer1").on(GroupResource::new("ray.io", "rayjobs"));
        world.cluster.faults().add(lists, 1_000_000, u64::MAX, Fault::ServerError(code));
        manage(&world, "[batch/job]").await;
        let owner = json!({ "metadata": { "name": "ray", "namespace": "team" }, "spec": {} });
        let owner = world.create("ray.io", "rayjobs", owner).await;
        for (name, owners) in [("free", json!([])), ("owned", owned_by(owner.value()))] {
            let metadata = json!({
                "name": name, "namespace": "team", "ownerReferences": owners,
                "labels": { "kueue.x-k8s.io/queue-name": "a" },
            });
            let spec = json!({ "parallelism": 1, "template": template(2) });
            world.create("batch", "jobs", json!({ "metadata": metadata, "spec": spec })).await;
        }
        world.settle().await;
        assert!(world.is("free", "Admitted"), "{code}");
        assert_eq!(world.workload("owned").is_some(), is_own, "{code}");
        world.cluster.faults().clear();
        world.pass(120).await;
        assert!(world.workload("owned").is_some(), "{code}: its owner names no queue");
    }
}

fn prebuilt_job(name: &str, pods: i64) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team",
            "labels": { "kueue.x-k8s.io/queue-name": "a" },
            "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "by-hand" },
        },
        "spec": { "parallelism": pods, "completions": pods, "template": template(1) },
    })
}

/// A Workload for this job, with its pod template as the API server has it.
fn by_hand(job: &Value, pods: i64) -> Value {
    let template = &job["spec"]["template"];
    json!({
        "metadata": { "name": "by-hand", "namespace": "team" },
        "spec": {
            "queueName": "a", "podSets": [{ "name": "workers", "count": pods, "template": template }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_is_waited_for_owned_and_followed() {
    let world = World::with_webhooks(8).await;
    let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
    world.settle().await;
    let id = GroupResource::new("kueue.x-k8s.io", "workloads");
    assert_eq!(world.cluster.store("reader").list(&id, Some("team")).len(), 0, "none is made");
    world.create("kueue.x-k8s.io", "workloads", by_hand(job.value(), 2)).await;
    world.settle().await;
    assert!(world.is("job", "Admitted"));
    let started = world.get("batch", "jobs", "job").unwrap();
    assert_eq!(started["spec"]["suspend"], false);
    let template = &started["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    assert_eq!(
        template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "workers",
        "its pod sets are called as they are there"
    );
    let done = json!({ "succeeded": 1, "active": 1 });
    world.update("batch", "jobs", "job", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert_eq!(
        world.workload("job").unwrap()["status"]["reclaimablePods"],
        json!([{ "name": "workers", "count": 1 }])
    );
}

/// Kueue leaves the first as it is: it waits, or holds quota, for nobody.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_and_names_another_workload_goes_by_that_one() {
    let world = World::with_webhooks(8).await;
    world.checked("a").await;
    let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
    world.create("kueue.x-k8s.io", "workloads", by_hand(job.value(), 2)).await;
    world.settle().await;
    assert!(world.is("job", "QuotaReserved"));
    let mut other = by_hand(job.value(), 2);
    other["metadata"]["name"] = json!("other");
    world.create("kueue.x-k8s.io", "workloads", other).await;
    let rename = |job: &mut Value| {
        job["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("other");
    };
    world.update("batch", "jobs", "job", false, rename).await;
    world.settle().await;
    let first = world.workload_named("by-hand").unwrap();
    let over = first["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Finished");
    assert_eq!(over.unwrap()["reason"], "OutOfSync");
    let other = world.workload_named("other").unwrap();
    assert_eq!(other["metadata"]["ownerReferences"][0]["name"], "job");
    assert!(world.holds("other", "QuotaReserved"));
}

/// As in Kueue: nobody writes the counts of what somebody else made.
#[tokio::test(start_paused = true)]
async fn an_elastic_job_neither_resizes_nor_outgrows_a_workload_that_somebody_else_made() {
    for (pods, made_for) in [(2, 3), (3, 2)] {
        let file = "featureGates: { ElasticJobsViaWorkloadSlices: true }";
        let file = Configuration::parse(Path::new("config.yaml"), file).unwrap();
        let world = World::new(true).await;
        world.start_with("layer1", Config { file, ..Config::default() });
        world.settle().await;
        world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
        let mut job = prebuilt_job("job", pods);
        job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = json!("true");
        let job = world.create("batch", "jobs", job).await;
        let mut workload = by_hand(job.value(), made_for);
        workload["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
        world.create("kueue.x-k8s.io", "workloads", workload).await;
        world.settle().await;
        let (status, reason, _) = world.condition("job", "Finished").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "OutOfSync"), "{pods} {made_for}");
        assert_eq!(world.get("batch", "jobs", "job").unwrap()["spec"]["suspend"], true);
        assert_eq!(world.workload_named("by-hand").unwrap()["spec"]["podSets"][0]["count"], made_for);
    }
}

/// Nobody would lift the gate of pods of a job that is not resized, whatever its Workload says.
#[tokio::test(start_paused = true)]
async fn a_prebuilt_slice_puts_no_gate_before_the_pods_of_a_plain_job() {
    let world = World::with_webhooks(8).await;
    let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
    let mut workload = by_hand(job.value(), 2);
    workload["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
    world.create("kueue.x-k8s.io", "workloads", workload).await;
    world.settle().await;
    let started = world.get("batch", "jobs", "job").unwrap();
    assert_eq!(started["spec"]["suspend"], false, "{:?}", world.told());
    assert_eq!(started["spec"]["template"]["spec"]["schedulingGates"], Value::Null);
}

/// A Workload's name may be longer than the value of a label: an annotation names it, and nothing is labelled with it (Kueue #13636).
#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_may_have_the_longest_name() {
    for length in [64, 253] {
        let world = World::with_webhooks(8).await;
        let name = "n".repeat(length);
        let mut job = prebuilt_job("job", 2);
        job["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!(name);
        let job = world.create("batch", "jobs", job).await;
        let mut workload = by_hand(job.value(), 2);
        workload["metadata"]["name"] = json!(name);
        world.create("kueue.x-k8s.io", "workloads", workload).await;
        world.settle().await;
        assert!(world.is("job", "Admitted"), "{length}: {:?}", world.told());
        let started = world.get("batch", "jobs", "job").unwrap();
        assert_eq!(started["spec"]["suspend"], false, "{length}");
        let metadata = &started["spec"]["template"]["metadata"];
        assert_eq!(metadata["annotations"]["kueue.x-k8s.io/workload"], json!(name));
        for labels in [&started["metadata"]["labels"], &metadata["labels"]] {
            assert!(!labels.to_string().contains(&name), "{labels}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_keeps_what_its_prebuilt_workload_does_not_say() {
    let world = World::with_webhooks(8).await;
    let mut job = prebuilt_job("job", 2);
    job["spec"]["template"]["metadata"] = json!({ "labels": { "team": "x" } });
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    let job = world.create("batch", "jobs", job).await;
    let mut workload = by_hand(job.value(), 2);
    let containers = &job.value()["spec"]["template"]["spec"]["containers"];
    workload["spec"]["podSets"][0]["template"] = json!({ "spec": { "containers": containers } });
    world.create("kueue.x-k8s.io", "workloads", workload).await;
    world.settle().await;
    let started = world.get("batch", "jobs", "job").unwrap();
    assert_eq!(started["spec"]["suspend"], false);
    let template = &started["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "x");
    assert_eq!(template["spec"]["nodeSelector"], json!({ "disk": "ssd", "gpu": "a100" }));
}

#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_for_another_job_is_out_of_sync() {
    let template = "/spec/podSets/0/template/spec";
    for (at, value) in [
        ("/spec/podSets/0/count".to_owned(), json!(3)),
        ("/spec/podSets/0/minCount".to_owned(), json!(1)),
        ("/spec/maximumExecutionTimeSeconds".to_owned(), json!(60)),
        (format!("{template}/tolerations"), json!([{ "key": "gpu", "operator": "Exists" }])),
        (format!("{template}/containers/0/image"), json!("y")),
        (format!("{template}/initContainers"), json!([{ "name": "i", "image": "x" }])),
    ] {
        let world = World::with_webhooks(8).await;
        // What pods tolerate counts until it is admitted.
        world.checked("a").await;
        world.settle().await;
        let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
        let mut workload = by_hand(job.value(), 2);
        let (parent, field) = at.rsplit_once('/').unwrap();
        workload.pointer_mut(parent).unwrap()[field] = value;
        world.create("kueue.x-k8s.io", "workloads", workload).await;
        world.settle().await;
        let (status, reason, _) = world.condition("job", "Finished").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "OutOfSync"), "{at}");
        assert_eq!(world.get("batch", "jobs", "job").unwrap()["spec"]["suspend"], true, "{at}");
        let quiet = world.attempts("layer1");
        world.settle().await;
        assert_eq!(world.attempts("layer1"), quiet, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_prebuilt_workload_has_ended_takes_another_that_it_names() {
    let world = World::with_webhooks(8).await;
    let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
    world.create("kueue.x-k8s.io", "workloads", by_hand(job.value(), 3)).await;
    world.settle().await;
    assert_eq!(world.condition("job", "Finished").unwrap().1, "OutOfSync");
    let next = async |name: &'static str, pods: i64| {
        let mut next = by_hand(job.value(), pods);
        next["metadata"]["name"] = json!(name);
        world.create("kueue.x-k8s.io", "workloads", next).await;
        let rename = |job: &mut Value| {
            job["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!(name);
        };
        world.update("batch", "jobs", "job", false, rename).await;
        world.settle().await;
    };
    next("wrong-again", 3).await;
    let (conditions, revision) = (world.workload_named("wrong-again").unwrap(), world.cluster.revision());
    assert_eq!(conditions["status"]["conditions"][0]["reason"], "OutOfSync");
    world.pass(600).await;
    assert_eq!(world.writes("layer1", revision), Vec::<String>::new());
    next("second", 2).await;
    assert_eq!(world.get("batch", "jobs", "job").unwrap()["spec"]["suspend"], false);
}

/// As in Kueue: what it is worth is said in the Workload, and the job has no say in it.
#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_is_worth_what_its_own_class_says() {
    let world = World::with_webhooks(8).await;
    let class = json!({ "metadata": { "name": "high" }, "value": 9 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    let job = world.create("batch", "jobs", prebuilt_job("job", 2)).await;
    let mut workload = by_hand(job.value(), 2);
    let class = json!({ "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high" });
    (workload["spec"]["priority"], workload["spec"]["priorityClassRef"]) = (json!(9), class);
    world.create("kueue.x-k8s.io", "workloads", workload).await;
    world.settle().await;
    assert!(world.is("job", "Admitted"));
    let worth = || {
        let spec = world.workload("job").unwrap()["spec"].clone();
        (spec["priorityClassRef"]["name"].clone(), spec["priority"].clone())
    };
    assert_eq!(worth(), (json!("high"), json!(9)));
    let raise = |class: &mut Value| class["value"] = json!(20);
    world.update("kueue.x-k8s.io", "workloadpriorityclasses", "high", false, raise).await;
    world.settle().await;
    assert_eq!(worth(), (json!("high"), json!(20)));
    assert!(world.is("job", "Admitted"));
}
