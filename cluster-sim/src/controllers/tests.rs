//! The controllers with a kubelet, in virtual time.

mod ends;
mod jobsets;
mod nodes;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kit::{Clock, Rng, ServiceTable, Tasks};
use serde_json::{Value, json};

use super::conditions;
use crate::node::NodeSpec;
use crate::{Cluster, DeleteOptions, GroupResource, Part, SimConfig, Store};

struct Bench {
    cluster: Cluster,
    store: Store,
}

fn pods() -> GroupResource {
    GroupResource::core("pods")
}

fn jobs() -> GroupResource {
    GroupResource::new("batch", "jobs")
}

fn jobsets() -> GroupResource {
    GroupResource::new("jobset.x-k8s.io", "jobsets")
}

fn pytorchjobs() -> GroupResource {
    GroupResource::new("kubeflow.org", "pytorchjobs")
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

impl Bench {
    /// The controllers, and one node that every pod of a template with `nodeName: n1` lands on.
    async fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let cluster = Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), ServiceTable::new()));
        cluster.start_controllers().await.unwrap();
        cluster.add_node(NodeSpec { stop_after: Some(Duration::ZERO), ..NodeSpec::new("n1") }).unwrap();
        pass(1).await;
        Self { store: cluster.store("test"), cluster }
    }

    async fn create(&self, resource: &GroupResource, value: Value) {
        self.store.create(resource, value).await.unwrap();
    }

    async fn change(&self, resource: &GroupResource, change: impl Fn(&mut Value) + Send + Sync) {
        let change = |value: &mut Value| {
            change(value);
            Ok(())
        };
        self.store.update(resource, "default", "j", Part::Main, change).await.unwrap();
    }

    fn status(&self, resource: &GroupResource) -> Value {
        self.store.get(resource, "default", "j").unwrap().value()["status"].clone()
    }

    fn is(&self, resource: &GroupResource, condition: &str) -> bool {
        conditions::is_true(&self.status(resource), condition)
    }

    fn pods(&self) -> Vec<Value> {
        self.store.list(&pods(), Some("default")).iter().map(|pod| pod.value().clone()).collect()
    }

    /// How many pods are in a phase.
    fn count(&self, phase: &str) -> usize {
        self.pods().iter().filter(|pod| pod["status"]["phase"] == phase).count()
    }

    async fn delete(&self, name: &str) {
        self.store.delete(&pods(), "default", name, DeleteOptions::default()).await.unwrap();
    }

    /// No write happens in an hour.
    async fn assert_quiet(&self) {
        let before = self.cluster.revision();
        pass(3600).await;
        let log = self.cluster.log_since(before);
        assert!(
            log.is_empty(),
            "{:?}",
            log.iter().map(|c| format!("{} {}", c.writer, c.key)).collect::<Vec<_>>()
        );
    }
}

fn template(annotations: &Value, policy: Option<&str>) -> Value {
    let mut template = json!({
        "metadata": { "annotations": annotations },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
    });
    if let Some(policy) = policy {
        template["spec"]["restartPolicy"] = policy.into();
    }
    template
}

fn job(spec: Value, annotations: &Value) -> Value {
    let mut spec = spec;
    spec["template"] = template(annotations, Some("Never"));
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": "default" }, "spec": spec })
}

fn ten_seconds() -> Value {
    json!({ "sim.trireme.dev/run-for": "10s" })
}

fn fails() -> Value {
    json!({ "sim.trireme.dev/run-for": "1s", "sim.trireme.dev/exit-code": "1" })
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_completion() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "parallelism": 2, "completions": 5 }), &ten_seconds())).await;
    pass(3).await;
    assert_eq!(bench.count("Running"), 2);
    let status = bench.status(&jobs());
    assert_eq!((&status["active"], &status["ready"]), (&json!(2), &json!(2)));
    let labels = bench.pods()[0]["metadata"]["labels"].clone();
    assert_eq!(labels["batch.kubernetes.io/job-name"], "j");
    pass(60).await;
    let status = bench.status(&jobs());
    assert_eq!(
        (&status["succeeded"], &status["active"], &status["failed"]),
        (&json!(5), &Value::Null, &Value::Null)
    );
    assert!(bench.is(&jobs(), "Complete") && bench.is(&jobs(), "SuccessCriteriaMet"));
    assert!(status["completionTime"].is_string());
    assert_eq!(bench.count("Succeeded"), 5);
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_gives_every_index_once() {
    let bench = Bench::new().await;
    let spec = json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed" });
    bench.create(&jobs(), job(spec, &ten_seconds())).await;
    pass(3).await;
    let pods = bench.pods();
    let names: BTreeSet<_> =
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()[..3].to_owned()).collect();
    assert_eq!(names, ["j-0", "j-1", "j-2"].map(String::from).into());
    assert_eq!(pods[1]["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    let victim = pods[1]["metadata"]["name"].as_str().unwrap().to_owned();
    bench.delete(&victim).await;
    pass(30).await;
    assert_eq!(bench.status(&jobs())["completedIndexes"], "0-2");
    assert_eq!(bench.status(&jobs())["failed"], 1, "a pod that somebody deletes has failed");
    assert!(bench.is(&jobs(), "Complete"));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_suspended_and_resumed() {
    let bench = Bench::new().await;
    bench
        .create(&jobs(), job(json!({ "parallelism": 2, "completions": 2, "suspend": true }), &ten_seconds()))
        .await;
    pass(3).await;
    assert!(bench.pods().is_empty() && bench.is(&jobs(), "Suspended"));
    assert_eq!(bench.status(&jobs())["startTime"], Value::Null);
    bench.assert_quiet().await;
    bench.change(&jobs(), |job| job["spec"]["suspend"] = false.into()).await;
    pass(3).await;
    assert_eq!(bench.count("Running"), 2);
    assert!(!bench.is(&jobs(), "Suspended") && bench.status(&jobs())["startTime"].is_string());
    bench.change(&jobs(), |job| job["spec"]["suspend"] = true.into()).await;
    pass(5).await;
    assert!(bench.pods().is_empty());
    let status = bench.status(&jobs());
    assert_eq!(
        (&status["failed"], &status["active"]),
        (&Value::Null, &Value::Null),
        "suspending is no failure"
    );
    bench.change(&jobs(), |job| job["spec"]["suspend"] = false.into()).await;
    pass(20).await;
    assert!(bench.is(&jobs(), "Complete"));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_have_all_succeeded_is_complete_though_it_was_suspended_before_that_was_counted() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "parallelism": 1, "completions": 1 }), &json!({}))).await;
    pass(3).await;
    let name = bench.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let succeed = |pod: &mut Value| {
        pod["status"]["phase"] = "Succeeded".into();
        Ok(())
    };
    bench.store.update(&pods(), "default", &name, Part::Status, succeed).await.unwrap();
    bench.change(&jobs(), |job| job["spec"]["suspend"] = true.into()).await;
    pass(5).await;
    assert!(bench.is(&jobs(), "Complete") && !bench.is(&jobs(), "Suspended"));
}

#[tokio::test(start_paused = true)]
async fn failures_are_paused_for_and_counted() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "backoffLimit": 2 }), &fails())).await;
    pass(9).await;
    assert_eq!(bench.pods().len(), 1, "ten seconds before the second");
    pass(6).await;
    assert_eq!(bench.pods().len(), 2);
    pass(120).await;
    assert_eq!(bench.pods().len(), 3);
    assert!(bench.is(&jobs(), "Failed"));
    let status = bench.status(&jobs());
    assert_eq!(conditions::find(&status, "Failed").unwrap()["reason"], "BackoffLimitExceeded");
    assert_eq!(status["failed"], 3);
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_job() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "activeDeadlineSeconds": 30 }), &json!({}))).await;
    pass(29).await;
    assert_eq!(bench.count("Running"), 1);
    pass(10).await;
    assert_eq!(conditions::find(&bench.status(&jobs()), "Failed").unwrap()["reason"], "DeadlineExceeded");
    assert!(bench.pods().is_empty());
}

fn pytorchjob(replicas: &[(&str, u32)], annotations: &Value, policy: &str, suspend: bool) -> Value {
    let mut specs = json!({});
    for (kind, count) in replicas {
        specs[*kind] =
            json!({ "replicas": count, "restartPolicy": policy, "template": template(annotations, None) });
    }
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": { "name": "j", "namespace": "default" },
        "spec": { "pytorchReplicaSpecs": specs, "runPolicy": { "suspend": suspend } },
    })
}

#[tokio::test(start_paused = true)]
async fn a_pytorchjob_is_suspended_resumed_and_succeeds() {
    let bench = Bench::new().await;
    bench
        .create(
            &pytorchjobs(),
            pytorchjob(&[("Master", 1), ("Worker", 3)], &ten_seconds(), "OnFailure", true),
        )
        .await;
    pass(1).await;
    assert!(
        bench.pods().is_empty()
            && bench.is(&pytorchjobs(), "Suspended")
            && bench.is(&pytorchjobs(), "Created")
    );
    bench.assert_quiet().await;
    bench.change(&pytorchjobs(), |job| job["spec"]["runPolicy"]["suspend"] = false.into()).await;
    pass(1).await;
    let names: Vec<_> = bench.pods().iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["j-master-0", "j-worker-0", "j-worker-1", "j-worker-2"]);
    let pod = &bench.pods()[3];
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "training.kubeflow.org/job-name": "j",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "2",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
        })
    );
    let env = |name: &str| {
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        env.iter().find(|one| one["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
    };
    let told = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"].map(env);
    assert_eq!(told, ["j-master-0", "23456", "4", "3"]);
    assert!(bench.is(&pytorchjobs(), "Running") && !bench.is(&pytorchjobs(), "Suspended"));
    assert_eq!(bench.status(&pytorchjobs())["replicaStatuses"]["Worker"]["active"], 3);
    pass(12).await;
    assert!(bench.is(&pytorchjobs(), "Succeeded") && !bench.is(&pytorchjobs(), "Running"));
    let workers = &bench.status(&pytorchjobs())["replicaStatuses"]["Worker"];
    assert_eq!((&workers["succeeded"], &workers["active"]), (&json!(3), &Value::Null));
    let last = bench.status(&pytorchjobs())["conditions"].as_array().unwrap().last().unwrap()["type"].clone();
    assert_eq!(last, "Succeeded", "the state that kubectl shows");
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn suspending_a_running_pytorchjob_removes_its_pods() {
    let bench = Bench::new().await;
    bench.create(&pytorchjobs(), pytorchjob(&[("Worker", 2)], &json!({}), "OnFailure", false)).await;
    pass(1).await;
    assert_eq!(bench.count("Running"), 2);
    bench.change(&pytorchjobs(), |job| job["spec"]["runPolicy"]["suspend"] = true.into()).await;
    pass(1).await;
    assert!(bench.pods().is_empty());
    assert!(bench.is(&pytorchjobs(), "Suspended") && !bench.is(&pytorchjobs(), "Running"));
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_job_go_and_its_name_can_be_used_again() {
    let bench = Bench::new().await;
    let one =
        || pytorchjob(&[("Worker", 2)], &json!({ "sim.trireme.dev/stop-after": "5s" }), "OnFailure", false);
    bench.create(&pytorchjobs(), one()).await;
    pass(1).await;
    bench.store.delete(&pytorchjobs(), "default", "j", DeleteOptions::default()).await.unwrap();
    bench.create(&pytorchjobs(), one()).await;
    pass(3).await;
    let terminating = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    assert!(bench.pods().iter().all(terminating), "the names are still taken by the old ones");
    pass(120).await;
    let owner = bench.store.get(&pytorchjobs(), "default", "j").unwrap().uid().to_string();
    assert_eq!(bench.count("Running"), 2);
    assert!(bench.pods().iter().all(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == owner.as_str()));
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_and_failed_pods_come_again_under_their_names() {
    let bench = Bench::new().await;
    bench.create(&pytorchjobs(), pytorchjob(&[("Worker", 2)], &json!({}), "OnFailure", false)).await;
    pass(1).await;
    let uid = |name: &str| bench.store.get(&pods(), "default", name).map(|pod| pod.uid().clone());
    let first = uid("j-worker-1");
    bench.delete("j-worker-1").await;
    pass(1).await;
    let second = uid("j-worker-1");
    assert!(second.is_some() && second != first);
    let evict = |pod: &mut Value| {
        pod["status"]["phase"] = "Failed".into();
        pod["status"]["reason"] = "UnexpectedAdmissionError".into();
        Ok(())
    };
    bench.store.update(&pods(), "default", "j-worker-1", Part::Status, evict).await.unwrap();
    pass(2).await;
    assert!(uid("j-worker-1").is_some() && uid("j-worker-1") != second, "replaced");
    assert_eq!(bench.count("Running"), 2);
    assert!(bench.is(&pytorchjobs(), "Running") && !bench.is(&pytorchjobs(), "Failed"));
}

#[tokio::test(start_paused = true)]
async fn a_pytorchjob_fails_where_its_policy_says_so() {
    for (policy, code, fails) in [("Never", "1", true), ("ExitCode", "1", true), ("ExitCode", "137,0", false)]
    {
        let bench = Bench::new().await;
        let annotations = json!({ "sim.trireme.dev/run-for": "2s", "sim.trireme.dev/exit-code": code });
        bench.create(&pytorchjobs(), pytorchjob(&[("Worker", 1)], &annotations, policy, false)).await;
        pass(3).await;
        assert_eq!(bench.is(&pytorchjobs(), "Failed"), fails, "{policy} {code}");
    }
}

fn jobset(spec: Value, annotations: &Value) -> Value {
    let mut spec = spec;
    spec["replicatedJobs"] = json!([{
        "name": "w",
        "replicas": 2,
        "template": { "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0,
            "template": template(annotations, Some("Never")),
        } },
    }]);
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": "j", "namespace": "default" }, "spec": spec,
    })
}

#[tokio::test(start_paused = true)]
async fn a_jobset_is_suspended_resumed_and_completes() {
    let bench = Bench::new().await;
    bench.create(&jobsets(), jobset(json!({ "suspend": true }), &ten_seconds())).await;
    pass(3).await;
    let names: Vec<_> =
        bench.store.list(&jobs(), None).iter().map(|job| job.key().name.to_string()).collect();
    assert_eq!(names, ["j-w-0", "j-w-1"]);
    assert!(bench.pods().is_empty() && bench.is(&jobsets(), "Suspended"));
    bench.assert_quiet().await;
    bench
        .change(&jobsets(), |set| {
            set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] =
                json!({ "kubernetes.io/os": "linux" });
            set["spec"]["suspend"] = false.into();
        })
        .await;
    pass(4).await;
    assert_eq!(bench.count("Running"), 4);
    let pod = &bench.pods()[0];
    assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/os"], "linux");
    assert_eq!(pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"], "j");
    assert_eq!(bench.status(&jobsets())["replicatedJobsStatus"][0]["ready"], 2);
    bench.change(&jobsets(), |set| set["spec"]["suspend"] = true.into()).await;
    pass(4).await;
    assert!(bench.pods().is_empty());
    bench.change(&jobsets(), |set| set["spec"]["suspend"] = false.into()).await;
    pass(30).await;
    assert!(bench.is(&jobsets(), "Completed"));
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_jobset_restarts_as_often_as_it_may() {
    let bench = Bench::new().await;
    bench.create(&jobsets(), jobset(json!({ "failurePolicy": { "maxRestarts": 1 } }), &fails())).await;
    pass(3).await;
    pass(120).await;
    assert_eq!(bench.status(&jobsets())["restarts"], 1);
    assert!(bench.is(&jobsets(), "Failed"));
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_an_event_on_its_job_until_the_job_is_corrected() {
    let bench = Bench::new().await;
    let mut wrong = pytorchjob(&[("Worker", 1)], &json!({}), "Never", false);
    let container = |job: &mut Value, name: &str| {
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] =
            name.into();
    };
    container(&mut wrong, "Not A Name");
    bench.create(&pytorchjobs(), wrong).await;
    pass(600).await;
    let events = bench.store.list(&GroupResource::core("events"), Some("default"));
    let [event] = &events[..] else { panic!("said {} times", events.len()) };
    let event = event.value();
    assert_eq!(
        (&event["reason"], &event["involvedObject"]["name"]),
        (&json!("FailedCreatePod"), &json!("j"))
    );
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("spec.containers[0].name") && message.contains("Not A Name"), "{message}");

    bench.change(&pytorchjobs(), |job| container(job, "c")).await;
    pass(120).await;
    assert_eq!(bench.count("Running"), 1);
}

#[tokio::test(start_paused = true)]
async fn no_count_makes_more_children_than_the_memory_holds() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "parallelism": i32::MAX, "completions": i32::MAX }), &json!({}))).await;
    pass(60).await;
    let made = bench.pods().len();
    assert!((1..=super::control::MOST_CHILDREN).contains(&made), "{made}");
}
