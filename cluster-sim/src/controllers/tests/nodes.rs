//! Pods whose node is gone or does not want them.

use super::*;

fn nodes() -> GroupResource {
    GroupResource::core("nodes")
}

/// A pod bound to a node, whether or not that exists.
fn bound(name: &str, node: &str, tolerations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }], "tolerations": tolerations },
    })
}

fn taint(value: &mut Value) -> Result<(), crate::ApiError> {
    value["spec"]["taints"] = json!([{ "key": "broken", "effect": "NoExecute" }]);
    Ok(())
}

impl Bench {
    fn pod(&self, name: &str) -> Option<Value> {
        self.store.get(&pods(), "default", name).map(|pod| pod.value().clone())
    }

    /// The states in which a pod was stored by a writer, deletions as null.
    fn written(&self, writer: &str) -> Vec<Value> {
        let log = self.cluster.log();
        let own = log.iter().filter(|commit| &*commit.writer == writer);
        own.map(|commit| commit.new.as_ref().map_or(Value::Null, |pod| pod.value().clone())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_fail_and_go() {
    let bench = Bench::new().await;
    bench.create(&pods(), bound("p", "n1", json!([]))).await;
    pass(2).await;
    assert_eq!(bench.count("Running"), 1);
    bench.store.delete(&nodes(), "", "n1", DeleteOptions::default()).await.unwrap();
    pass(39).await;
    assert!(bench.pod("p").is_some(), "the node may come back");
    pass(2).await;
    assert!(bench.pod("p").is_none());
    let [failed, gone] = &bench.written("pod-garbage-collector")[..] else { panic!("two writes") };
    assert_eq!((&failed["status"]["phase"], gone), (&json!("Failed"), &Value::Null));
    let condition = conditions::find(&failed["status"], "DisruptionTarget").unwrap();
    assert_eq!((&condition["reason"], &condition["status"]), (&json!("DeletionByPodGC"), &json!("True")));
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let bench = Bench::new().await;
    bench.create(&pods(), bound("p", "n2", json!([]))).await;
    pass(30).await;
    bench.cluster.add_node(NodeSpec::new("n2")).unwrap();
    pass(60).await;
    assert_eq!(bench.count("Running"), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pod_of_a_node_that_never_was_ends() {
    let bench = Bench::new().await;
    bench.create(&pods(), bound("p", "nowhere", json!([]))).await;
    bench.delete("p").await;
    pass(30).await;
    assert!(bench.pod("p").is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null()));
    pass(15).await;
    assert!(bench.pod("p").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_job_replaces_the_pods_of_a_deleted_node() {
    let bench = Bench::new().await;
    let one = pytorchjob(&[("Worker", 1)], &json!({}), "OnFailure", false);
    bench.create(&pytorchjobs(), one).await;
    pass(2).await;
    let first = bench.pods()[0]["metadata"]["uid"].clone();
    bench.store.delete(&nodes(), "", "n1", DeleteOptions::default()).await.unwrap();
    pass(60).await;
    assert_ne!(bench.pods()[0]["metadata"]["uid"], first);
}

#[tokio::test(start_paused = true)]
async fn a_no_execute_taint_evicts_those_that_do_not_tolerate_it() {
    let bench = Bench::new().await;
    let for_seconds = json!([{ "key": "broken", "operator": "Exists", "tolerationSeconds": 50 }]);
    let for_ever = json!([{ "key": "broken", "operator": "Exists", "effect": "NoExecute" }]);
    for (name, tolerations) in [("none", json!([])), ("some", for_seconds), ("all", for_ever)] {
        bench.create(&pods(), bound(name, "n1", tolerations)).await;
    }
    pass(2).await;
    assert_eq!(bench.count("Running"), 3);
    let names = |bench: &Bench| -> Vec<String> {
        bench.pods().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    bench.store.update(&nodes(), "", "n1", Part::Main, taint).await.unwrap();
    pass(2).await;
    assert_eq!(names(&bench), ["all", "some"]);
    let written = bench.written("taint-eviction-controller");
    let condition = conditions::find(&written[0]["status"], "DisruptionTarget").unwrap();
    assert_eq!(condition["reason"], "DeletionByTaintManager");
    assert_eq!(written[0]["status"]["phase"], "Running", "its kubelet ends it");
    pass(45).await;
    assert_eq!(names(&bench), ["all", "some"]);
    pass(10).await;
    assert_eq!(names(&bench), ["all"]);
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_goes_in_time_evicts_nobody_and_new_pods_are_judged() {
    let bench = Bench::new().await;
    let patient = json!([{ "key": "broken", "operator": "Exists", "tolerationSeconds": 50 }]);
    bench.create(&pods(), bound("p", "n1", patient)).await;
    bench.store.update(&nodes(), "", "n1", Part::Main, taint).await.unwrap();
    pass(40).await;
    let untaint = |value: &mut Value| {
        value["spec"]["taints"] = json!([]);
        Ok(())
    };
    bench.store.update(&nodes(), "", "n1", Part::Main, untaint).await.unwrap();
    pass(60).await;
    assert!(bench.pod("p").is_some());
    bench.store.update(&nodes(), "", "n1", Part::Main, taint).await.unwrap();
    bench.create(&pods(), bound("late", "n1", json!([]))).await;
    pass(2).await;
    assert!(bench.pod("late").is_none() && bench.pod("p").is_some());
}
