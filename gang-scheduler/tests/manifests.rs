//! Other people's manifests, as they are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::path::Path;

use harness::Harness;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn the_articles_volcano_pod_group_gathers_its_pods() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/manifests/seed/volcano-podgroup.yaml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED the_articles_volcano_pod_group_gathers_its_pods: {} is not there", path.display());
        return;
    };
    let group: Value = serde_saphyr::from_str(&text).unwrap();
    let (name, namespace) =
        (group["metadata"]["name"].clone(), group["metadata"]["namespace"].as_str().unwrap());
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.node("b", 2).await;
    harness.start();
    let namespaces: Api<Namespace> = Api::all(harness.cluster.client());
    let body = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
    namespaces.create(&PostParams::default(), &body).await.unwrap();
    let resource = harness.dynamic("scheduling.volcano.sh", "v1beta1", "PodGroup");
    let groups = Api::namespaced_with(
        resource.into_client(),
        namespace,
        &kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "scheduling.volcano.sh",
            "v1beta1",
            "PodGroup",
        )),
    );
    let object: kube::api::DynamicObject = serde_json::from_value(group.clone()).unwrap();
    groups.create(&PostParams::default(), &object).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(harness.cluster.client(), namespace);
    let bound = || async {
        let list = pods.list(&ListParams::default()).await.unwrap();
        list.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count()
    };
    for index in 0..4 {
        harness.sleep(15).await;
        assert_eq!(bound().await, 0, "with {index} of 4 pods");
        let pod = json!({
            "metadata": { "name": format!("worker-{index}"), "annotations": { "scheduling.k8s.io/group-name": name } },
            "spec": { "schedulerName": "volcano", "containers": [{ "name": "main", "image": "x",
                "resources": { "limits": { harness::GPU: "1" } } }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    harness.sleep(15).await;
    assert_eq!(bound().await, 4);
}
