//! The API server through `kube::Client`, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::time::Duration;

use cluster_sim::{Cluster, DeleteOptions, GroupResource, Part, SimConfig};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kit::{Clock, Rng, ServiceTable, Tasks};
use kube::api::{
    ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt};
use serde_json::json;

fn cluster() -> Cluster {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), ServiceTable::new()))
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "x" }] },
    }))
    .unwrap()
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_patched_and_deleted() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let created = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(code(pods.create(&PostParams::default(), &pod("a")).await.unwrap_err()), 409);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } }));
    let patched = pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels().get("x").map(String::as_str), Some("y"));
    assert_ne!(patched.resource_version(), created.metadata.resource_version);
    let again = pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        again.resource_version(),
        patched.resource_version(),
        "a patch that changes nothing writes nothing"
    );
    let list = pods.list(&ListParams::default().labels("x=y")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    pods.delete("a", &Default::default()).await.unwrap();
    assert_eq!(code(pods.get("a").await.unwrap_err()), 404);
    let mut stale = created.metadata.clone();
    stale.resource_version = Some("1".into());
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_and_expires() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let first = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let version = first.resource_version().unwrap();
    pods.create(&PostParams::default(), &pod("b")).await.unwrap();
    let mut watch = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    match watch.try_next().await.unwrap().unwrap() {
        WatchEvent::Added(pod) => assert_eq!(pod.name_any(), "b"),
        other => panic!("{other:?}"),
    }
    match watch.try_next().await.unwrap().unwrap() {
        WatchEvent::Bookmark(bookmark) => {
            assert_eq!(bookmark.metadata.resource_version, cluster.revision().to_string())
        }
        other => panic!("{other:?}"),
    }
    cluster.compact();
    let mut late = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    match late.try_next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    assert!(late.try_next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_changes_into_coming_and_going() {
    let cluster = cluster();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = |on: bool| -> ConfigMap {
        serde_json::from_value(json!({ "metadata": { "name": "m", "labels": { "on": on.to_string() } } }))
            .unwrap()
    };
    maps.create(&PostParams::default(), &map(false)).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default().labels("on=true"), "0").await.unwrap().boxed();
    for on in [true, false] {
        maps.replace("m", &PostParams::default(), &map(on)).await.unwrap();
    }
    assert!(matches!(watch.try_next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    assert!(matches!(watch.try_next().await.unwrap().unwrap(), WatchEvent::Deleted(_)));
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_consistent_pages() {
    let cluster = cluster();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for i in 0..5 {
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(format!("m{i}")), ..Default::default() },
            ..Default::default()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("m3", &Default::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.iter().map(|m| m.name_any()).collect::<Vec<_>>(), ["m2", "m3", "m4"]);
    cluster.compact();
    maps.create(
        &PostParams::default(),
        &ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some("z".into()), ..Default::default() },
            ..Default::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(code(maps.list(&ListParams::default().continue_token(&token)).await.unwrap_err()), 410);
}

fn widget_crd() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.test.dev" },
        "spec": {
            "group": "test.dev", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": {
                        "size": { "type": "integer", "minimum": 1 }, "mode": { "type": "string", "default": "slow" },
                    } },
                    "status": { "type": "object", "properties": { "seen": { "type": "integer" } } },
                } } },
            }],
        },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn custom_resources_follow_their_schema() {
    let cluster = cluster();
    let client = cluster.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &widget_crd()).await.unwrap();
    let established = crds.get("widgets.test.dev").await.unwrap();
    assert!(
        established
            .status
            .unwrap()
            .conditions
            .unwrap()
            .iter()
            .any(|c| c.type_ == "Established" && c.status == "True")
    );
    let kind = ApiResource::from_gvk_with_plural(
        &kube::api::GroupVersionKind::gvk("test.dev", "v1", "Widget"),
        "widgets",
    );
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let widget = |spec: serde_json::Value| {
        DynamicObject::new("w", &kind).data(json!({ "spec": spec, "status": { "seen": 1 } }))
    };
    assert_eq!(
        code(widgets.create(&PostParams::default(), &widget(json!({ "size": 0 }))).await.unwrap_err()),
        422
    );
    let created =
        widgets.create(&PostParams::default(), &widget(json!({ "size": 1, "extra": 1 }))).await.unwrap();
    assert_eq!(
        created.data,
        json!({ "spec": { "size": 1, "mode": "slow" } }),
        "pruned, defaulted, without status"
    );
    let status = Patch::Merge(json!({ "spec": { "size": 5 }, "status": { "seen": 2 } }));
    let patched = widgets.patch_status("w", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(patched.data, json!({ "spec": { "size": 1, "mode": "slow" }, "status": { "seen": 2 } }));
    assert_eq!(patched.metadata.generation, Some(1));
    let spec = Patch::Merge(json!({ "spec": { "size": 5 }, "status": { "seen": 9 } }));
    let patched = widgets.patch("w", &PatchParams::default(), &spec).await.unwrap();
    assert_eq!(patched.data, json!({ "spec": { "size": 5, "mode": "slow" }, "status": { "seen": 2 } }));
    assert_eq!(patched.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn bindings_bind_once_and_under_their_preconditions() {
    let cluster = cluster();
    let client = cluster.client();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let created = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let bind = |uid: String, node: &str| {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": "a", "uid": uid, "annotations": { "trireme.dev/devices": "{}" } },
            "target": { "kind": "Node", "name": node },
        });
        http::Request::post("/api/v1/namespaces/default/pods/a/binding")
            .body(body.to_string().into_bytes())
            .unwrap()
    };
    let other = client.request::<serde_json::Value>(bind("other".into(), "n1")).await.unwrap_err();
    assert_eq!(code(other), 409);
    client.request::<serde_json::Value>(bind(created.uid().unwrap(), "n1")).await.unwrap();
    let bound = pods.get("a").await.unwrap();
    assert_eq!(bound.annotations()["trireme.dev/devices"], "{}");
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(bound.status.unwrap().conditions.unwrap()[0].type_, "PodScheduled");
    assert_eq!(code(client.request::<serde_json::Value>(bind(String::new(), "n2")).await.unwrap_err()), 409);
    // A bound pod gets its grace; the kubelet ends it.
    pods.delete("a", &Default::default()).await.unwrap();
    assert_eq!(pods.get("a").await.unwrap().metadata.deletion_grace_period_seconds, Some(30));
    let store = cluster.store("kubelet");
    store.delete(&GroupResource::core("pods"), "default", "a", DeleteOptions::now()).await.unwrap();
    assert_eq!(code(pods.get("a").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_and_namespaces_empty_themselves() {
    let cluster = cluster();
    let client = cluster.client();
    let spaces: Api<Namespace> = Api::all(client.clone());
    let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    spaces.create(&PostParams::default(), &space).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "team");
    let owner: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "owner" } })).unwrap();
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let child: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "child", "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid().unwrap() },
    ] } }))
        .unwrap();
    maps.create(&PostParams::default(), &child).await.unwrap();
    maps.delete("owner", &Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(code(maps.get("child").await.unwrap_err()), 404);
    let keep: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "keep", "finalizers": ["test.dev/hold"] } }))
            .unwrap();
    maps.create(&PostParams::default(), &keep).await.unwrap();
    spaces.delete("team", &Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(spaces.get("team").await.unwrap().status.unwrap().phase.as_deref(), Some("Terminating"));
    assert_eq!(code(maps.create(&PostParams::default(), &child).await.unwrap_err()), 403);
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("keep", &PatchParams::default(), &release).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(code(spaces.get("team").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none() {
    let cluster = cluster();
    let client = cluster.client();
    let spaces: Api<Namespace> = Api::all(client.clone());
    let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    let space = spaces.create(&PostParams::default(), &space).await.unwrap();
    let elsewhere: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client, "team");
    let owner: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "owner" } })).unwrap();
    let owner = elsewhere.create(&PostParams::default(), &owner).await.unwrap();
    let stranger =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid().unwrap() });
    let its_own =
        json!({ "apiVersion": "v1", "kind": "Namespace", "name": "team", "uid": space.uid().unwrap() });
    for (name, owners) in [("strange", vec![&stranger]), ("both", vec![&stranger, &its_own])] {
        let child = json!({ "metadata": { "name": name, "ownerReferences": owners } });
        let child: ConfigMap = serde_json::from_value(child).unwrap();
        maps.create(&PostParams::default(), &child).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(code(maps.get("strange").await.unwrap_err()), 404);
    let kept = maps.get("both").await.unwrap();
    assert_eq!(kept.owner_references().len(), 1, "what is in no namespace owns it");
    assert_eq!(kept.owner_references()[0].kind, "Namespace");
    elsewhere.get("owner").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_store_handle_shares_rules_and_log() {
    let cluster = cluster();
    let store = cluster.store("kubelet-n1");
    let pods = GroupResource::core("pods");
    let mut changes = store.watch(&pods);
    let value = serde_json::to_value(pod("a")).unwrap();
    let mut value = value;
    value["metadata"]["namespace"] = "default".into();
    store.create(&pods, value).await.unwrap();
    store
        .update(&pods, "default", "a", Part::Status, |pod| {
            pod["status"]["phase"] = "Running".into();
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(changes.next().await.object.value()["status"]["phase"], "Pending");
    assert_eq!(changes.next().await.object.value()["status"]["phase"], "Running");
    let last = cluster.log().pop().unwrap();
    assert_eq!((&*last.writer, &*last.subresource), ("kubelet-n1", "status"));
}

#[tokio::test]
async fn a_listening_cluster_lets_in_who_has_the_token() {
    let tasks = Tasks::new();
    let cluster =
        Cluster::new(SimConfig::new(Clock::System, tasks.clone(), Rng::seeded(1), ServiceTable::new()));
    let served = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let client = |kubeconfig: String| async move {
        let config = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        kube::Client::try_from(config).unwrap()
    };
    let known = client(served.kubeconfig()).await;
    assert_eq!(known.apiserver_version().await.unwrap().minor, "36");
    let pods: Api<Pod> = Api::default_namespaced(known);
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(watch.try_next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    let stranger = client(served.kubeconfig().replace(served.token(), "guess")).await;
    let pods: Api<Pod> = Api::default_namespaced(stranger);
    assert_eq!(code(pods.get("a").await.unwrap_err()), 401);
    tasks.stop();
}

#[tokio::test(start_paused = true)]
async fn namespaces_limit_what_their_pods_ask_for() {
    let cluster = cluster();
    let store = cluster.store("admin");
    let range = json!({ "metadata": { "name": "r", "namespace": "default" }, "spec": { "limits": [
        { "type": "Container", "default": { "cpu": "2" }, "defaultRequest": { "cpu": "500m" } },
    ] } });
    store.create(&GroupResource::core("limitranges"), range).await.unwrap();
    let quota = json!({ "metadata": { "name": "q", "namespace": "default" }, "spec": { "hard": {
        "pods": "3", "requests.cpu": "1",
    } } });
    store.create(&GroupResource::core("resourcequotas"), quota).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let first = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let resources = first.spec.unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(resources.requests.unwrap()["cpu"].0, "500m");
    pods.create(&PostParams::default(), &pod("b")).await.unwrap();
    assert_eq!(code(pods.create(&PostParams::default(), &pod("c")).await.unwrap_err()), 403);
    pods.delete("a", &Default::default()).await.unwrap();
    pods.create(&PostParams::default(), &pod("c")).await.unwrap();
}
