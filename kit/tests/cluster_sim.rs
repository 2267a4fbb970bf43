//! kit against an API server that behaves as Kubernetes' does, in virtual time, with faults.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster_sim::faults::{Aim, Fault, Moment, Verdict, WatchFault};
use cluster_sim::{Cluster, GroupResource, SimConfig};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::events::{Event, Events, Regarding, Severity};
use kit::lease::{Leadership, Lease, Terms};
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::tls::{CaTargets, Certificates, Settings, keep_ca_bundle};
use kit::watch::{Change, Reports, UNDECODABLE, Watch, watch};
use kit::writes::{Limits, Priority, Writes, always};
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

fn cluster(seed: u64) -> Cluster {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(seed), ServiceTable::new()))
}

fn context(cluster: &Cluster, name: &str) -> Context {
    Context {
        clients: Clients::shared(cluster.client_as(name)),
        clock: cluster.clock().clone(),
        rng: cluster.rng().fork(),
        tasks: Tasks::new(),
        identity: Identity::new(name),
        services: ServiceTable::new(),
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "x"}]}})
}

#[tokio::test(start_paused = true)]
async fn writes_hit_what_they_were_meant_for_or_say_why_not() {
    let cluster = cluster(1);
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let first: Written = patch::create(&api, &config_map("a")).await.unwrap();
    let taken = patch::create::<_, Written>(&api, &config_map("a")).await;
    assert!(matches!(taken, Err(WriteError::Conflict(_))), "{taken:?}");

    let now = Target::new("a", &first.uid).at(&first.resource_version);
    let body = json!({"data": {"n": "1"}});
    let second: Written = patch::merge(&api, &now, body.clone(), Subresource::Main).await.unwrap();
    assert_ne!(second.resource_version, first.resource_version);
    let stale = patch::merge::<_, Written>(&api, &now, json!({"data": {"n": "2"}}), Subresource::Main).await;
    assert!(matches!(stale, Err(WriteError::Conflict(_))), "{stale:?}");
    let namesake = Target::new("a", "another");
    let result = patch::merge::<_, Written>(&api, &namesake, body.clone(), Subresource::Main).await;
    assert!(matches!(result, Err(WriteError::Gone)), "{result:?}");
    let result = patch::delete(&api, &namesake, None).await;
    assert!(matches!(result, Err(WriteError::Gone)), "{result:?}");
    let result = patch::delete(&api, &now, None).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    let wrong = patch::create::<_, Written>(&api, &config_map("Not A Name")).await;
    assert!(matches!(wrong, Err(WriteError::Refused(_))), "{wrong:?}");
    patch::delete(&api, &Target::new("a", &first.uid), None).await.unwrap();
    let result = patch::delete(&api, &Target::new("a", &first.uid), None).await;
    assert!(matches!(result, Err(WriteError::Gone)), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_carries_uid_version_and_annotations() {
    let cluster = cluster(2);
    let api: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let created: Written = patch::create(&api, &pod("p")).await.unwrap();
    let annotations = BTreeMap::from([("trireme.dev/devices".to_owned(), "{}".to_owned())]);
    let stranger = patch::bind(&api, &Target::new("p", "another"), "n1", &annotations).await;
    assert!(matches!(stranger, Err(WriteError::Gone)), "{stranger:?}");
    let stale = patch::bind(&api, &Target::new("p", &created.uid).at("1"), "n1", &annotations).await;
    assert!(matches!(stale, Err(WriteError::Conflict(_))), "{stale:?}");
    let target = Target::new("p", &created.uid).at(&created.resource_version);
    patch::bind(&api, &target, "n1", &annotations).await.unwrap();
    let bound = api.get("p").await.unwrap();
    assert_eq!(bound.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(bound.annotations()["trireme.dev/devices"], "{}");
    let twice = patch::bind(&api, &Target::new("p", &created.uid), "n2", &annotations).await;
    assert!(matches!(twice, Err(WriteError::Conflict(_))), "{twice:?}");
}

/// What a watcher believes, by replaying changes.
#[derive(Default)]
struct Mirror {
    objects: BTreeMap<String, String>,
    fresh: BTreeMap<String, String>,
    listing: bool,
}

impl Mirror {
    fn apply(&mut self, change: Change<ConfigMap>) {
        let n = |object: &ConfigMap| {
            object.data.as_ref().and_then(|data| data.get("n")).cloned().unwrap_or_default()
        };
        match change {
            Change::Restarted => (self.listing, self.fresh) = (true, BTreeMap::new()),
            Change::Applied(object) if self.listing => drop(self.fresh.insert(object.name_any(), n(&object))),
            Change::Applied(object) => drop(self.objects.insert(object.name_any(), n(&object))),
            Change::Synced { .. } => (self.listing, self.objects) = (false, std::mem::take(&mut self.fresh)),
            Change::Deleted(object) => drop(self.objects.remove(&object.name_any())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_the_truth_whatever_happens_on_the_way() {
    for seed in 0..20 {
        let cluster = cluster(seed);
        let configmaps = GroupResource::core("configmaps");
        for fault in [
            WatchFault::Delay(Duration::from_secs(3)),
            WatchFault::Duplicate,
            WatchFault::Silence,
            WatchFault::Close,
            WatchFault::Expire,
        ] {
            cluster.faults().add_watch(
                Aim::default().by("watcher").on(configmaps.clone()),
                30_000,
                u64::MAX,
                fault,
            );
        }
        for fault in [Fault::ServerError(503), Fault::LostRequest, Fault::TooManyRequests(1)] {
            cluster.faults().add(Aim::default().by("watcher"), 100_000, u64::MAX, fault);
        }
        let ctx = context(&cluster, "watcher");
        let config = Config::default().page_size(3);
        let mut stream = Box::pin(watch(&ctx, Api::<ConfigMap>::all(ctx.clients.watch.clone()), config));
        let (mut mirror, dice) = (Mirror::default(), Rng::seeded(seed));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client_as("user"), "default");
        for step in 0..150 {
            let name = format!("m{}", dice.u64(..10));
            match api.get(&name).await {
                Err(_) => drop(patch::create::<_, Written>(&api, &config_map(&name)).await.unwrap()),
                Ok(object) if dice.u64(..4) == 0 => {
                    patch::delete(&api, &Target::of(&object), None).await.unwrap();
                }
                Ok(object) => {
                    let body = json!({"data": {"n": step.to_string()}});
                    patch::merge::<_, Written>(&api, &Target::of(&object), body, Subresource::Main)
                        .await
                        .unwrap();
                }
            }
            if dice.u64(..40) == 0 {
                cluster.compact();
            }
            let until = ctx.clock.monotonic() + Duration::from_millis(dice.u64(..2_000));
            while let Ok(Some(change)) = tokio::time::timeout_at(until, stream.next()).await {
                mirror.apply(change);
            }
        }
        cluster.faults().clear();
        // The longest a dead connection stays unnoticed, and the longest wait after failures.
        let until = ctx.clock.monotonic() + Duration::from_secs(90 + 60);
        while let Ok(Some(change)) = tokio::time::timeout_at(until, stream.next()).await {
            mirror.apply(change);
        }
        let truth: BTreeMap<_, _> = api
            .list(&Default::default())
            .await
            .unwrap()
            .into_iter()
            .filter(|m| m.name_any().starts_with('m'))
            .map(|m| (m.name_any(), m.data.unwrap()["n"].clone()))
            .collect();
        assert!(!mirror.listing, "seed {seed}");
        mirror.objects.retain(|name, _| name.starts_with('m'));
        assert_eq!(mirror.objects, truth, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_is_done_once_through_an_unreliable_server() {
    let cluster = cluster(3);
    for fault in [
        Fault::ServerError(500),
        Fault::LostRequest,
        Fault::LostResponse,
        Fault::TimeoutAfterWrite,
        Fault::TooManyRequests(2),
    ] {
        cluster.faults().add(Aim::writes().by("writer"), 60_000, u64::MAX, fault);
    }
    let ctx = context(&cluster, "writer");
    let api: Api<ConfigMap> = Api::namespaced(ctx.clients.write.clone(), "default");
    let limits = Limits { attempts: 20, ..Limits::default() };
    let mut writes = Writes::<u32, Written>::start(&ctx, limits, always());
    for key in 0..300 {
        let api = api.clone();
        let send = move || {
            let api = api.clone();
            async move { patch::create(&api, &config_map(&format!("m{key}"))).await }
        };
        writes.submit(Priority::Normal, "", key, send).unwrap();
    }
    let (mut done, mut again) = (0, 0);
    while writes.outstanding() > 0 {
        let ended = writes.next().await;
        match ended.result {
            Ok(_) => done += 1,
            Err(failure) => {
                assert!(failure.may_have_applied(ended.attempts), "{failure}");
                again += 1;
            }
        }
    }
    assert!(done > 200 && again > 5, "{done} {again}");
    let begun = cluster.faults().writes_by("writer");
    assert!(begun < 550, "three of ten fail; twice each would be 600: {begun}");
    let list =
        Api::<ConfigMap>::namespaced(cluster.client(), "default").list(&Default::default()).await.unwrap();
    assert_eq!(list.items.iter().filter(|map| map.name_any().starts_with('m')).count(), 300);
}

#[tokio::test(start_paused = true)]
async fn leadership_moves_on_and_is_never_double_through_faults_and_crashes() {
    let mut moved = 0;
    for seed in 0..5 {
        let cluster = cluster(seed);
        let lease = GroupResource::new("coordination.k8s.io", "leases");
        for fault in [
            Fault::ServerError(503),
            Fault::LostRequest,
            Fault::LostResponse,
            Fault::Conflict,
            Fault::Latency(Duration::from_secs(6)),
        ] {
            cluster.faults().add(Aim::default().on(lease.clone()), 50_000, u64::MAX, fault);
        }
        let dice = Rng::seeded(seed);
        let mut replicas = Vec::new();
        let (mut terms, mut leaderless) = (Vec::new(), 0);
        for second in 0..600 {
            while replicas.len() < 3 {
                // A restarted replica has a new name, as the process frame gives it.
                let ctx = context(&cluster, &format!("r{}", dice.suffix(6)));
                let candidacy = Lease::campaign(&ctx, "default", "leader", Terms::default());
                replicas.push((ctx, candidacy));
            }
            if dice.u64(..60) == 0 {
                let index = usize::try_from(dice.u64(..3)).unwrap();
                let (ctx, candidacy) = replicas.swap_remove(index);
                if dice.u64(..2) == 0 {
                    ctx.tasks.kill();
                } else {
                    candidacy.release().await;
                }
                continue;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let leaders: Vec<_> =
                replicas.iter().filter_map(|(_, candidacy)| candidacy.leadership().term()).collect();
            assert!(leaders.len() <= 1, "seed {seed}, second {second}");
            leaderless = if leaders.is_empty() { leaderless + 1 } else { 0 };
            // A lease, a time-out, a look; twice, since the next may be killed at once.
            assert!(leaderless < 60, "seed {seed}, second {second}: nobody leads");
            terms.extend(leaders);
        }
        assert!(terms.is_sorted(), "terms only grow: {terms:?}");
        terms.dedup();
        moved += terms.len() - 1;
    }
    assert!(moved > 10, "leadership has to move for this to prove anything: {moved}");
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_keeps_every_write_in() {
    let cluster = cluster(4);
    let ctx = context(&cluster, "writer");
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    let mut writes = Writes::<u32, Written>::start(
        &ctx,
        Limits::default(),
        Arc::new(move || gate.load(Ordering::SeqCst).then_some(0)),
    );
    let api: Api<ConfigMap> = Api::namespaced(ctx.clients.write.clone(), "default");
    let send = move || {
        let api = api.clone();
        async move { patch::create(&api, &config_map("m")).await }
    };
    writes.submit(Priority::Urgent, "", 1, send).unwrap();
    writes.drain().await;
    assert_eq!(cluster.faults().writes_by("writer"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_middle_of_a_renewal_still_hands_over() {
    let cluster = cluster(5);
    let (a, b) = (context(&cluster, "a"), context(&cluster, "b"));
    let first = Lease::campaign(&a, "default", "leader", Terms::default());
    assert!(first.leadership().changed().await);
    let second = Lease::campaign(&b, "default", "leader", Terms::default());
    let silent = Arc::new(AtomicBool::new(true));
    let hook = silent.clone();
    cluster.faults().set_hook(move |call, moment, _| {
        let applied = &*call.writer == "a" && moment == Moment::After;
        if applied && hook.load(Ordering::SeqCst) { Verdict::Hang } else { Verdict::Proceed }
    });
    // The next renewal is applied, and its answer is still awaited.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    silent.store(false, Ordering::SeqCst);
    first.release().await;
    let before = b.clock.monotonic();
    assert!(second.leadership().changed().await);
    let waited = b.clock.monotonic() - before;
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn events_are_stored_where_people_look() {
    let cluster = cluster(6);
    let ctx = context(&cluster, "writer");
    let events = Events::start(&ctx, "gang-scheduler", always());
    for _ in 0..5 {
        events.publish(Event {
            regarding: Regarding {
                api_version: "v1".into(),
                kind: "Node".into(),
                namespace: String::new(),
                name: "n1".into(),
                uid: "u".into(),
            },
            severity: Severity::Normal,
            reason: "Checked".into(),
            note: "all is well".into(),
        });
    }
    // A clock that is set meanwhile makes no old news of them.
    ctx.clock.set_ahead(jiff::SignedDuration::from_hours(1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let stored = Api::<k8s_openapi::api::core::v1::Event>::namespaced(cluster.client(), "default");
    let stored = stored.list(&Default::default()).await.unwrap().items;
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].count, stored[0].involved_object.name.as_deref()), (Some(5), Some("n1")));
    assert_eq!(cluster.faults().writes_by("writer"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_leader_tells_the_api_server_whom_to_trust() {
    let cluster = cluster(7);
    let ctx = context(&cluster, "writer");
    let settings = Settings { namespace: "default".into(), secret: "cert".into(), service: "hooks".into() };
    let certificates = Certificates::start(&ctx, settings).await.unwrap();
    let configurations = Api::<MutatingWebhookConfiguration>::all(cluster.client());
    let install = async |name: &str| {
        let webhook = json!({"name": "a.trireme.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "hooks"}}});
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": [webhook]});
        patch::create::<_, Written>(&configurations, &configuration).await.unwrap();
    };
    let told = async |name: &str| {
        let stored = configurations.get(name).await.unwrap().webhooks.unwrap().remove(0);
        stored.client_config.ca_bundle.map(|bundle| bundle.0)
    };
    let bundle = certificates.ca_bundle().borrow().clone().into_bytes();
    install("hooks").await;
    let targets = CaTargets {
        namespace: "default".into(),
        service: "hooks".into(),
        mutating: vec!["hooks".into(), "later".into(), "missing".into()],
        ..CaTargets::default()
    };
    let leadership = Leadership::always(&ctx);
    ctx.tasks.spawn(keep_ca_bundle(ctx.clone(), leadership, certificates.clone(), targets));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told("hooks").await.as_ref(), Some(&bundle));
    // An installer makes a program's Deployment before its webhooks.
    install("later").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told("later").await.as_ref(), Some(&bundle));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.faults().writes_by("writer"), 3, "the Secret once, each configuration once");
}

/// A ConfigMap whose values must be known words.
#[derive(Clone, Debug, serde::Deserialize)]
struct Words {
    metadata: ObjectMeta,
    #[serde(rename = "data")]
    _data: BTreeMap<String, Word>,
}

#[derive(Clone, Debug, serde::Deserialize)]
enum Word {
    #[serde(rename = "0")]
    Nought,
}

impl kube::Resource for Words {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }
    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }
    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural(_: &()) -> Cow<'_, str> {
        "configmaps".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_an_object_that_cannot_be_understood_is_told_by_who_leads() {
    let cluster = cluster(9);
    let ctx = context(&cluster, "watcher");
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let mut bad = config_map("bad");
    bad["data"]["n"] = json!("seven");
    let created: Written = patch::create(&api, &bad).await.unwrap();
    let leads = Arc::new(AtomicBool::new(false));
    let gate = leads.clone();
    let events = Events::start(&ctx, "watcher", Arc::new(move || gate.load(Ordering::SeqCst).then_some(0)));
    let reports = Reports::new(&events);
    let words = Watch::new(&ctx, Api::<Words>::all(ctx.clients.watch.clone()), Config::default());
    let mut words = Box::pin(words.reports(&reports).stream());
    ctx.tasks.spawn(async move { while words.next().await.is_some() {} });
    let store = cluster.store("test");
    let told = || {
        let events = store.list(&GroupResource::core("events"), Some("default"));
        let brief = |event: &Value| {
            let about = &event["involvedObject"];
            assert_eq!((&event["reason"], &event["type"]), (&json!(UNDECODABLE), &json!("Warning")));
            assert_eq!((&about["apiVersion"], &about["kind"]), (&json!("v1"), &json!("ConfigMap")));
            assert!(event["message"].as_str().unwrap().contains("unknown variant"), "{event}");
            format!("{} {}", about["name"].as_str().unwrap(), event["count"])
        };
        events.iter().map(|event| brief(event.value())).collect::<Vec<_>>()
    };
    let wait = || tokio::time::sleep(Duration::from_secs(15));
    wait().await;
    assert_eq!(told(), [""; 0], "this replica does not lead");
    leads.store(true, Ordering::SeqCst);
    reports.repeat();
    wait().await;
    assert_eq!(told(), ["bad 1"]);
    let mut other = config_map("other");
    other["data"]["n"] = json!("eight");
    patch::create::<_, Written>(&api, &other).await.unwrap();
    let mended = json!({ "data": { "n": "0" } });
    let target = Target::new("bad", &created.uid);
    patch::merge::<_, Written>(&api, &target, mended, Subresource::Main).await.unwrap();
    wait().await;
    reports.repeat();
    wait().await;
    assert_eq!(told(), ["bad 1", "other 2"], "what was mended is not told of again");
}
