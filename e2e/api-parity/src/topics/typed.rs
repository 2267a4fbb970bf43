//! The same server through the `kube` crate, as the programs use it.

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::shapes::{configmap, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["typed", OnlyTheApi:
    typed_create_get_list_delete,
    typed_errors_carry_code_and_reason,
    typed_optional_get_tells_missing_from_failing,
    typed_status_patch_and_replace,
    typed_metadata_list,
    typed_watch_delivers_events,
    typed_watcher_lists_pages_and_follows,
    typed_delete_with_preconditions,
    typed_lease_round_trip,
    typed_discovery_finds_kinds,
];

async fn typed_create_get_list_delete(api: Harness) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), api.namespace());
    let made = maps.create(&PostParams::default(), &serde_json::from_value(configmap("a"))?).await?;
    ensure!(maps.get("a").await?.uid() == made.uid(), "one object");
    let list = maps.list(&ListParams::default().fields("metadata.name=a")).await?;
    ensure!(list.items.len() == 1 && list.metadata.resource_version.is_some(), "{list:?}");
    ensure!(maps.delete("a", &DeleteParams::default()).await?.is_right(), "gone at once, so a Status");
    Ok(())
}

async fn typed_errors_carry_code_and_reason(api: Harness) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), api.namespace());
    match maps.get("none").await {
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 404 && status.reason == "NotFound", "{status:?}");
            ensure!(status.details.as_ref().is_some_and(|details| details.name == "none"), "{status:?}");
        }
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

async fn typed_optional_get_tells_missing_from_failing(api: Harness) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), api.namespace());
    ensure!(maps.get_opt("none").await?.is_none(), "there is none");
    Ok(())
}

async fn typed_status_patch_and_replace(api: Harness) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(api.client(), api.namespace());
    let mut made = pods.create(&PostParams::default(), &serde_json::from_value(pod("a"))?).await?;
    let patch =
        Patch::Merge(json!({"metadata": {"uid": made.uid(), "resourceVersion": made.resource_version()},
        "status": {"message": "one"}}));
    let patched = pods.patch_status("a", &PatchParams::default(), &patch).await?;
    ensure!(
        patched.status.and_then(|status| status.message).as_deref() == Some("one"),
        "the status is written"
    );
    made.status.get_or_insert_default().message = Some("two".into());
    match pods.replace_status("a", &PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => anyhow::bail!("an old version was taken: {other:?}"),
    }
}

async fn typed_metadata_list(api: Harness) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(api.client(), api.namespace());
    pods.create(&PostParams::default(), &serde_json::from_value(pod("a"))?).await?;
    let list = pods.list_metadata(&ListParams::default()).await?;
    let names: Vec<_> = list.items.iter().map(PartialObjectMeta::name_any).collect();
    ensure!(names == ["a"], "{names:?}");
    Ok(())
}

async fn typed_watch_delivers_events(api: Harness) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(api.client(), api.namespace());
    let version = pods.list(&ListParams::default()).await?.metadata.resource_version.context("a version")?;
    let mut events = pods.watch(&WatchParams::default().timeout(20), &version).await?.boxed();
    pods.create(&PostParams::default(), &serde_json::from_value(pod("a"))?).await?;
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(pod) => {
                ensure!(pod.name_any() == "a", "{pod:?}");
                return Ok(());
            }
            WatchEvent::Bookmark(_) => (),
            other => anyhow::bail!("{other:?}"),
        }
    }
    anyhow::bail!("the watch ended")
}

async fn typed_watcher_lists_pages_and_follows(api: Harness) -> Result<()> {
    use kube::runtime::watcher::{self, Event, watcher};
    let pods: Api<Pod> = Api::namespaced(api.client(), api.namespace());
    for name in ["a", "b", "c"] {
        pods.create(&PostParams::default(), &serde_json::from_value(pod(name))?).await?;
    }
    let mut events = watcher(pods.clone(), watcher::Config::default().page_size(2)).boxed();
    let mut seen = Vec::new();
    loop {
        let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.try_next()).await??;
        match event.context("the watcher ended")? {
            Event::Init => (),
            Event::InitApply(pod) => seen.push(pod.name_any()),
            Event::InitDone => {
                ensure!(seen == ["a", "b", "c"], "{seen:?}");
                pods.create(&PostParams::default(), &serde_json::from_value(pod("d"))?).await?;
            }
            Event::Apply(pod) => {
                ensure!(pod.name_any() == "d", "{pod:?}");
                return Ok(());
            }
            Event::Delete(pod) => anyhow::bail!("{pod:?}"),
        }
    }
}

async fn typed_delete_with_preconditions(api: Harness) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), api.namespace());
    maps.create(&PostParams::default(), &serde_json::from_value(configmap("a"))?).await?;
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions { uid: Some("another".into()), resource_version: None }),
        ..DeleteParams::default()
    };
    match maps.delete("a", &params).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => anyhow::bail!("the wrong object was deleted: {other:?}"),
    }
}

async fn typed_lease_round_trip(api: Harness) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(api.client(), api.namespace());
    let body = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.678901Z"}});
    let made = leases.create(&PostParams::default(), &serde_json::from_value(body)?).await?;
    let again = leases.get("a").await?;
    ensure!(made.spec == again.spec, "{made:?} {again:?}");
    let put = leases.replace("a", &PostParams::default(), &again).await?;
    ensure!(put.resource_version() == again.resource_version(), "nothing changed");
    Ok(())
}

async fn typed_discovery_finds_kinds(api: Harness) -> Result<()> {
    let discovery = kube::discovery::group(&api.client(), "batch").await?;
    ensure!(discovery.recommended_kind("Job").is_some(), "batch has Job");
    Ok(())
}
