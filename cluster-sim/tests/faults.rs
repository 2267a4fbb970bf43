//! What goes wrong on purpose, and that it goes wrong the same way twice.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster_sim::faults::{Aim, Fault, Moment, Verdict, WatchFault, WebhookFault};
use cluster_sim::{Cluster, GroupResource, SimConfig};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kit::{Clock, Rng, ServiceTable, Tasks};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

fn config(seed: u64) -> SimConfig {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    SimConfig::new(clock, Tasks::new(), Rng::seeded(seed), ServiceTable::new())
}

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

fn maps(cluster: &Cluster, writer: &str) -> Api<ConfigMap> {
    Api::default_namespaced(cluster.client_as(writer))
}

fn configmaps() -> GroupResource {
    GroupResource::core("configmaps")
}

#[tokio::test(start_paused = true)]
async fn faults_strike_whom_they_are_aimed_at() {
    let cluster = Cluster::new(config(1));
    let aim = || Aim::writes().by("victim").on(configmaps());
    let faults = cluster.faults();
    faults.add(aim(), 1_000_000, 1, Fault::Conflict);
    faults.add(aim(), 1_000_000, 1, Fault::TooManyRequests(3));
    faults.add(aim(), 1_000_000, 1, Fault::ServerError(503));
    faults.add(aim(), 1_000_000, 1, Fault::LostRequest);
    faults.add(aim(), 1_000_000, 1, Fault::LostResponse);
    let post = PostParams::default();
    maps(&cluster, "other").create(&post, &map("other")).await.unwrap();
    let victim = maps(&cluster, "victim-0");
    for code in [409, 429, 503] {
        match victim.create(&post, &map("a")).await.unwrap_err() {
            kube::Error::Api(status) => assert_eq!(status.code, code),
            other => panic!("{other}"),
        }
    }
    assert!(!matches!(victim.create(&post, &map("a")).await.unwrap_err(), kube::Error::Api(_)));
    assert!(victim.get_opt("a").await.unwrap().is_none(), "a lost request does nothing");
    assert!(!matches!(victim.create(&post, &map("a")).await.unwrap_err(), kube::Error::Api(_)));
    assert!(victim.get_opt("a").await.unwrap().is_some(), "a lost response has done it");
    assert_eq!(faults.writes_by("victim-0"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_hook_crashes_a_writer_before_or_after_its_write() {
    for (moment, exists) in [(Moment::Before, false), (Moment::After, true)] {
        let cluster = Cluster::new(config(1));
        let program = Tasks::new();
        let victim = program.clone();
        cluster.faults().set_hook(move |call, at, number| {
            if &*call.writer == "program" && number == 1 && at == moment {
                victim.kill();
                return Verdict::Hang;
            }
            Verdict::Proceed
        });
        let seen = Arc::new(AtomicU64::new(0));
        let (api, count) = (maps(&cluster, "program"), seen.clone());
        program.spawn(async move {
            for name in ["a", "b", "c"] {
                api.create(&PostParams::default(), &map(name)).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        program.ended().await;
        assert_eq!(seen.load(Ordering::SeqCst), 1, "the second answer is never seen");
        assert_eq!(maps(&cluster, "judge").get_opt("b").await.unwrap().is_some(), exists);
        assert!(maps(&cluster, "judge").get_opt("c").await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn watches_break_in_every_way() {
    let cluster = Cluster::new(config(1));
    let post = PostParams::default();
    let writer = maps(&cluster, "writer");
    let params = || WatchParams::default().timeout(120);
    for fault in [WatchFault::Close, WatchFault::Expire, WatchFault::Silence, WatchFault::Duplicate] {
        let version = cluster.revision().to_string();
        cluster.faults().add_watch(Aim::default().by("watcher"), 1_000_000, 1, fault);
        let mut watch = maps(&cluster, "watcher").watch(&params(), &version).await.unwrap().boxed();
        let name = format!("{fault:?}").to_lowercase();
        writer.create(&post, &map(&name)).await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = watch.try_next().await.unwrap() {
            events.push(match event {
                WatchEvent::Added(map) => map.metadata.name.unwrap(),
                WatchEvent::Error(status) => status.code.to_string(),
                WatchEvent::Bookmark(_) => continue,
                other => panic!("{other:?}"),
            });
        }
        let expected: &[&str] = match fault {
            WatchFault::Expire => &["410"],
            WatchFault::Duplicate => &["duplicate", "duplicate"],
            _ => &[],
        };
        assert_eq!(events, expected, "{fault:?}");
    }
    cluster.faults().add_watch(Aim::default(), 1_000_000, 1, WatchFault::Delay(Duration::from_secs(7)));
    let mut watch =
        maps(&cluster, "w").watch(&params(), &cluster.revision().to_string()).await.unwrap().boxed();
    writer.create(&post, &map("late")).await.unwrap();
    let began = cluster.clock().monotonic();
    watch.try_next().await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

async fn story(seed: u64) -> Vec<String> {
    let cluster = Cluster::new(config(seed));
    cluster.faults().add(Aim::writes(), 300_000, u64::MAX, Fault::ServerError(500));
    let api = maps(&cluster, "writer");
    for i in 0..50 {
        let name = format!("m{}", i % 10);
        let patch = Patch::Merge(json!({ "data": { "i": i.to_string() } }));
        if api.patch(&name, &PatchParams::default(), &patch).await.is_err() {
            let _ = api.create(&PostParams::default(), &map(&name)).await;
        }
    }
    cluster
        .log()
        .iter()
        .map(|c| format!("{} {} {} {} {}", c.revision, c.at, c.writer, c.key, c.uid))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn one_seed_tells_one_story() {
    let first = story(7).await;
    assert!(first.len() > 20);
    assert_eq!(first, story(7).await);
    assert_ne!(first, story(8).await);
}

#[tokio::test(start_paused = true)]
async fn an_image_begins_another_cluster() {
    let first = Cluster::new(config(1));
    let store = first.store("setup");
    store
        .create(&configmaps(), json!({ "metadata": { "name": "a", "namespace": "default" } }))
        .await
        .unwrap();
    let image = first.image();
    let second = Cluster::new(SimConfig { image: Some(image), ..config(2) });
    let api = maps(&second, "client");
    assert!(api.get_opt("a").await.unwrap().is_some());
    assert_eq!(second.revision(), first.revision());
    api.create(&PostParams::default(), &map("b")).await.unwrap();
    assert!(maps(&first, "client").get_opt("b").await.unwrap().is_none(), "they go separate ways");
    let mut old = api.watch(&WatchParams::default(), "3").await.unwrap().boxed();
    assert!(
        matches!(old.try_next().await.unwrap().unwrap(), WatchEvent::Error(status) if status.code == 410)
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_is_judged_by_its_policy() {
    let services = ServiceTable::new();
    let allow = |body: String| async move {
        let review: serde_json::Value = serde_json::from_str(&body).unwrap();
        json!({ "response": { "uid": review["request"]["uid"], "allowed": true } }).to_string()
    };
    services.register("ns", "hook", "one", axum::Router::new().route("/", axum::routing::post(allow)));
    let cluster = Cluster::new(SimConfig { services, ..config(1) });
    let configuration = |policy: &str| {
        json!({ "metadata": { "name": policy.to_lowercase() }, "webhooks": [{
            "name": "hook.test.dev", "failurePolicy": policy, "timeoutSeconds": 5, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": { "service": { "namespace": "ns", "name": "hook" } },
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
        }] })
    };
    let hooks = GroupResource::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let store = cluster.store("setup");
    let api = maps(&cluster, "client");
    let post = PostParams::default();
    for (policy, refused) in [("Ignore", false), ("Fail", true)] {
        store.create(&hooks, configuration(policy)).await.unwrap();
        for fault in [WebhookFault::Unreachable, WebhookFault::Slow(Duration::from_secs(6))] {
            cluster.faults().add_webhook("ns", "hook", 1_000_000, 1, fault);
            let name = format!("{policy}-{fault:?}")
                .to_lowercase()
                .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let answer = api.create(&post, &map(name.trim_matches('-'))).await;
            assert_eq!(answer.is_err(), refused, "{policy} {fault:?}: {answer:?}");
        }
    }
    cluster.faults().add_webhook("ns", "hook", 1_000_000, 2, WebhookFault::Slow(Duration::from_secs(4)));
    api.create(&post, &map("slow-but-in-time")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lagging_server_shows_the_past_to_who_takes_any_version() {
    let cluster = Cluster::new(config(1));
    let api = maps(&cluster, "client");
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    cluster.faults().add(Aim::default().on(configmaps()), 1_000_000, 2, Fault::StaleList(1));
    let any = kube::api::ListParams::default().match_any();
    let old = api.list(&any).await.unwrap();
    assert_eq!(old.items.len(), 1);
    assert_eq!(old.metadata.resource_version.unwrap(), (cluster.revision() - 1).to_string());
    assert_eq!(api.list(&Default::default()).await.unwrap().items.len(), 2, "a quorum read is never stale");
    assert_eq!(api.list(&any).await.unwrap().items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn short_pages_show_one_moment_until_it_is_forgotten() {
    let cluster = Cluster::new(config(1));
    let api = maps(&cluster, "client");
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let short = Fault::ShortPages(2, Duration::from_millis(100));
    cluster.faults().add(Aim::default().on(configmaps()), 1_000_000, 3, short);
    let paged = kube::api::ListParams::default().limit(500);
    let first = api.list(&paged).await.unwrap();
    assert_eq!(first.items.len(), 2);
    let next = paged.clone().continue_token(first.metadata.continue_.as_ref().unwrap());
    cluster.faults().clear();
    api.create(&PostParams::default(), &map("d")).await.unwrap();
    let rest: Vec<_> =
        api.list(&next).await.unwrap().items.into_iter().map(|one| one.metadata.name.unwrap()).collect();
    assert_eq!(rest, ["c"], "what came meanwhile is not in it");
    cluster.compact();
    let kube::Error::Api(expired) = api.list(&next).await.unwrap_err() else { panic!("no answer") };
    assert_eq!((expired.code, &*expired.reason), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_does_not_stall_what_it_has_sent_and_a_dead_one_takes_it_back() {
    let config = config(7);
    let (clock, tasks) = (config.clock.clone(), config.tasks.clone());
    let cluster = Cluster::new(config);
    let slow = Aim::writes().by("victim").on(configmaps());
    cluster.faults().add(slow, 1_000_000, 2, Fault::Latency(Duration::from_secs(3)));
    let send = |group: &Tasks, name: &'static str| {
        let maps = maps(&cluster, "victim");
        group.spawn(async move { maps.create(&PostParams::default(), &map(name)).await })
    };
    let (stalled, killed) = (tasks.child(), tasks.child());
    let sent = send(&stalled, "stalled");
    send(&killed, "killed");
    clock.sleep(Duration::from_secs(1)).await;
    stalled.freeze();
    killed.kill();
    clock.sleep(Duration::from_secs(30)).await;
    let others = maps(&cluster, "other");
    let created = others.get("stalled").await.unwrap().metadata.creation_timestamp.unwrap();
    assert_eq!(created.0, "2026-01-01T00:00:03Z".parse::<Timestamp>().unwrap());
    assert!(others.get_opt("killed").await.unwrap().is_none());
    stalled.thaw();
    sent.await.unwrap().unwrap().unwrap();
}
