//! How long the life of a pod takes the simulated server: `load PODS WATCHERS`. Build with `--release` for figures.

use std::time::Duration;

use cluster_sim::{Cluster, GroupResource, SimConfig};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kit::{Clock, Rng, ServiceTable, Tasks};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams, WatchParams};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|n| n.parse::<usize>());
    let pods = numbers.next().transpose()?.unwrap_or(500);
    let watchers = numbers.next().transpose()?.unwrap_or(8);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let (spent, writes) = runtime.block_on(run(pods, watchers))?;
    println!("{writes} writes, {watchers} watchers: {} us a write", spent.as_micros() / writes.max(1));
    Ok(())
}

async fn run(pods: usize, watchers: usize) -> Result<(Duration, u128), kube::Error> {
    let tasks = Tasks::new();
    let cluster = Cluster::new(SimConfig::new(
        Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
        tasks.clone(),
        Rng::seeded(1),
        ServiceTable::new(),
    ));
    let resource = kube::api::ApiResource::erase::<Pod>(&());
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &resource);
    for _ in 0..watchers {
        let mut watch = api.watch(&WatchParams::default().timeout(10_000), "0").await?.boxed();
        tasks.spawn(async move { while watch.next().await.is_some() {} });
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "this measures real time; the cluster's clock stands still"
    )]
    let began = std::time::Instant::now();
    let first = cluster.revision();
    for i in 0..pods {
        let name = format!("pod-{i}");
        let pod = DynamicObject::new(&name, &resource).data(json!({ "spec": { "containers": [{
            "name": "main", "image": "busybox", "resources": { "limits": { "nvidia.com/gpu": 1, "cpu": "4" } },
            "env": [{ "name": "A", "value": "B" }],
        }] } }));
        api.create(&PostParams::default(), &pod).await?;
        let body = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": { "name": "n" } });
        let bind = http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        cluster.client().request::<serde_json::Value>(bind).await?;
        for phase in ["Running", "Succeeded"] {
            let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
            api.patch_status(&name, &PatchParams::default(), &patch).await?;
        }
        api.delete(&name, &Default::default()).await?;
    }
    let spent = began.elapsed();
    assert!(cluster.store("judge").list(&GroupResource::core("pods"), None).is_empty(), "every pod is gone");
    tasks.stop();
    Ok((spent, u128::from(cluster.revision() - first)))
}
