//! Shadow mode: beside what plays Kueue – the program itself under other rules, or a hand that writes –, and on recordings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod places;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission_controller::config::{Config, Configuration, Resources};
use admission_controller::shadow::{self, PATIENCE, Summary};
use axum::body::Body;
use cluster_sim::GroupResource;
use kit::http::Listen;
use kit::{Clients, Context, Identity, Tasks};
use serde_json::{Value, json};
use support::World;
use tower::ServiceExt;

const GROUP: &str = "kueue.x-k8s.io";

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The rows below the head.
    fn rows(&self) -> Vec<String> {
        self.text().lines().skip(1).map(str::to_owned).collect()
    }
}

fn context(world: &World, name: &str, tasks: &Tasks) -> Context {
    Context {
        clients: Clients::shared(world.cluster.client_as(name)),
        tasks: tasks.clone(),
        identity: Identity::new(name),
        ..world.context()
    }
}

/// Starts it, and a recorder.
fn start(world: &World) -> (Page, Page, Tasks) {
    let (page, recording, tasks) = (Page::default(), Page::default(), Tasks::new());
    let (ctx, output) = (context(world, "shadow", &tasks), Box::new(page.clone()));
    let admin = Some(Listen::InProcess);
    tasks.spawn(
        async move { shadow::run(ctx, Configuration::default(), admin, PATIENCE, output).await.unwrap() },
    );
    let (ctx, output) = (context(world, "recorder", &tasks), recording.clone());
    tasks.spawn(async move { shadow::recording::record(ctx, output).await.unwrap() });
    (page, recording, tasks)
}

/// As an interrupt does.
async fn end(tasks: &Tasks) {
    tasks.stop();
    tasks.ended().await;
}

fn replayed(recording: &Page) -> (Page, Summary) {
    let page = Page::default();
    let text = recording.text();
    let summary =
        shadow::replay(&Configuration::default(), text.as_bytes(), PATIENCE, Box::new(page.clone())).unwrap();
    (page, summary)
}

async fn metrics(world: &World) -> String {
    let service = world.services.resolve("trireme-system", admission_controller::ADMIN_SERVICE).remove(0);
    let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    String::from_utf8(axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

/// There is a row with each of these words.
fn shows<const WORDS: usize>(page: &Page, wanted: &[[&str; WORDS]]) {
    let rows = page.rows();
    for wanted in wanted {
        let found = rows.iter().any(|row| wanted.iter().all(|words| row.contains(words)));
        assert!(found, "{wanted:?} is not in\n{}", rows.join("\n"));
    }
}

/// There are no others besides.
fn has_rows<const WORDS: usize>(page: &Page, wanted: &[[&str; WORDS]]) {
    shows(page, wanted);
    assert_eq!(page.rows().len(), wanted.len(), "{}", page.text());
}

/// Neither a write nor the attempt of one.
fn wrote_nothing(world: &World) {
    for reader in ["shadow", "recorder"] {
        assert_eq!(world.cluster.faults().writes_by(reader), 0, "{reader} has sent a write");
        assert!(world.cluster.log_since(0).iter().all(|commit| &*commit.writer != reader));
    }
}

/// Queues that lend and take back, more jobs than fit, an eviction, a stop, jobs that end.
async fn a_busy_day(world: &World) {
    let any = json!({ "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" });
    world.queue("a", "pool", json!({ "nominalQuota": 4 }), any.clone()).await;
    world.queue("b", "pool", json!({ "nominalQuota": 4 }), any).await;
    world.settle().await;
    for number in 0..8 {
        world.pytorch(&format!("a-{number}"), "a", 1).await;
        world.sleep(Duration::from_millis(1500)).await;
    }
    world.settle().await;
    for number in 0..3 {
        world.pytorch(&format!("b-{number}"), "b", 1).await;
        world.sleep(Duration::from_millis(1500)).await;
    }
    world.pytorch("too-large", "b", 100).await;
    world.settle().await;
    let id = GroupResource::new("kubeflow.org", "pytorchjobs");
    for name in ["a-0", "b-0"] {
        world.cluster.store("user").delete(&id, "team", name, Default::default()).await.unwrap();
        world.settle().await;
    }
    world
        .update("kueue.x-k8s.io", "clusterqueues", "b", false, |queue| {
            queue["spec"]["stopPolicy"] = json!("HoldAndDrain")
        })
        .await;
    world.settle().await;
    world.sleep(PATIENCE * 2).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_decides_alike_shows_no_difference_and_nothing_is_written() {
    let world = World::new(false).await;
    world.start("kueue");
    world.settle().await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;
    a_busy_day(&world).await;
    assert_eq!(page.rows(), Vec::<String>::new());
    let text = metrics(&world).await;
    let count = |decision: &str, result: &str| {
        let labels = format!(r#"trireme_shadow_decisions_total{{decision="{decision}",result="{result}"}} "#);
        text.lines().find_map(|line| line.strip_prefix(&labels)?.parse::<u64>().ok()).unwrap_or_default()
    };
    assert!(count("admission", "same") >= 11, "{text}");
    assert!(count("eviction", "same") >= 4, "{text}");
    assert!(count("reason", "same") >= 1, "{text}");
    wrote_nothing(&world);
    assert!(world.cluster.faults().writes_by("kueue") > 50, "writes can be counted");

    end(&tasks).await;
    let (page, summary) = replayed(&recording);
    assert_eq!((page.rows(), summary.different), (Vec::new(), 0));
    assert_eq!(
        summary.same,
        count("admission", "same") + count("eviction", "same") + count("reason", "same")
    );
}

/// Another rule there: it does not count GPUs at all.
#[tokio::test(start_paused = true)]
async fn one_that_decides_otherwise_is_told_with_both_reasons() {
    let world = World::new(false).await;
    let resources =
        Resources { exclude_resource_prefixes: vec!["nvidia.com/".to_owned()], ..Resources::default() };
    let file = Configuration { resources, ..Configuration::default() };
    world.start_with("kueue", Config { file, ..Config::default() });
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    world.settle().await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;
    world.pytorch("large", "a", 4).await;
    world.sleep(PATIENCE * 2).await;
    let rows = page.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    for words in ["admission", "team/pytorchjob-large-", "ExceedsMaxQuota: ", "admitted by a: worker x4"] {
        assert!(rows[0].contains(words), "{words} is not in {}", rows[0]);
    }
    let line = r#"trireme_shadow_decisions_total{decision="admission",result="different"} 1"#;
    assert!(metrics(&world).await.lines().any(|one| one == line));
    wrote_nothing(&world);
    end(&tasks).await;
    let (again, summary) = replayed(&recording);
    assert_eq!((again.rows(), summary), (rows, Summary { same: 0, different: 1, open: 0 }));
}

/// A workload as somebody makes it by hand, and a hand that writes its status.
/// A check says when to try again, and until then Kueue leaves the workload where it is.
#[tokio::test(start_paused = true)]
async fn evictions_at_kueues_own_time_are_not_compared() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let check =
        json!({ "metadata": { "name": "external" }, "spec": { "controllerName": "team.example.com/check" } });
    world.create("kueue.x-k8s.io", "admissionchecks", check).await;
    let (page, _recording, tasks) = start(&world);
    world.settle().await;
    by_hand(&world, "retried").await;
    let retried = |one: &mut Value| {
        one["status"]["admission"] = json!({ "clusterQueue": "a", "podSetAssignments": [{ "name": "main", "count": 1,
            "flavors": { "nvidia.com/gpu": "a100" }, "resourceUsage": { "nvidia.com/gpu": "1" } }] });
        one["status"]["conditions"] = conditions(&[("QuotaReserved", "True", "QuotaReserved")]);
        one["status"]["admissionChecks"] = json!([{
            "name": "external", "state": "Retry", "message": "later", "requeueAfterSeconds": 300,
            "lastTransitionTime": "2026-01-01T00:10:00Z",
        }]);
    };
    world.update("kueue.x-k8s.io", "workloads", "retried", true, retried).await;
    world.settle().await;
    world.sleep(PATIENCE * 2).await;
    assert_eq!(page.rows(), Vec::<String>::new());
    end(&tasks).await;
}

async fn by_hand(world: &World, name: &str) {
    let workload = json!({
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "a", "active": true, "priority": 0, "podSets": [{ "name": "main", "count": 1, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "1" } } }] } } }] },
    });
    world.create("kueue.x-k8s.io", "workloads", workload).await;
}

fn conditions(of: &[(&str, &str, &str)]) -> Value {
    let one = |(kind, status, reason): &(&str, &str, &str)| {
        json!({ "type": kind, "status": status, "reason": reason, "message": "said by hand",
        "lastTransitionTime": "2026-01-01T00:10:00Z" })
    };
    of.iter().map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_and_other_flavors_other_victims_and_other_reasons_are_told() {
    let world = World::new(false).await;
    let flavor = json!({ "metadata": { "name": "h100" }, "spec": { "nodeLabels": { "gpu": "h100" } } });
    world.create("kueue.x-k8s.io", "resourceflavors", flavor).await;
    let quota = |flavor: &str| json!({ "name": flavor, "resources": [{ "name": "nvidia.com/gpu", "nominalQuota": 1 }] });
    let spec = json!({ "namespaceSelector": {}, "resourceGroups": [{ "coveredResources": ["nvidia.com/gpu"], "flavors": [quota("a100"), quota("h100")] }] });
    world
        .create("kueue.x-k8s.io", "clusterqueues", json!({ "metadata": { "name": "a" }, "spec": spec }))
        .await;
    let local = json!({ "metadata": { "name": "a", "namespace": "team" }, "spec": { "clusterQueue": "a" } });
    world.create("kueue.x-k8s.io", "localqueues", local).await;
    let (page, recording, tasks) = start(&world);
    world.settle().await;

    // It would fit, and Kueue says that it does not.
    by_hand(&world, "stays-out").await;
    world
        .update("kueue.x-k8s.io", "workloads", "stays-out", true, |one| {
            one["status"]["conditions"] = conditions(&[("QuotaReserved", "False", "WaitingForQuota")]);
        })
        .await;
    world.settle().await;
    // It gets another flavor than the first that suits.
    by_hand(&world, "elsewhere").await;
    let admission = json!({ "clusterQueue": "a", "podSetAssignments": [{ "name": "main", "count": 1,
        "flavors": { "nvidia.com/gpu": "h100" }, "resourceUsage": { "nvidia.com/gpu": "1" } }] });
    world
        .update("kueue.x-k8s.io", "workloads", "elsewhere", true, |one| {
            one["status"]["admission"] = admission.clone();
            one["status"]["conditions"] =
                conditions(&[("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted")]);
        })
        .await;
    world.settle().await;
    // It has to leave, for nobody.
    world
        .update("kueue.x-k8s.io", "workloads", "elsewhere", true, |one| {
            one["status"]["conditions"] = conditions(&[
                ("QuotaReserved", "True", "QuotaReserved"),
                ("Evicted", "True", "Preempted"),
                ("Preempted", "True", "InClusterQueue"),
            ]);
        })
        .await;
    world.settle().await;
    // It can never be admitted, and Kueue says that it only has to wait.
    by_hand(&world, "large").await;
    world
        .update("kueue.x-k8s.io", "workloads", "large", false, |one| {
            one["spec"]["podSets"][0]["count"] = json!(9)
        })
        .await;
    world
        .update("kueue.x-k8s.io", "workloads", "large", true, |one| {
            one["status"]["conditions"] = conditions(&[("QuotaReserved", "False", "WaitingForQuota")]);
        })
        .await;
    world.settle().await;
    world.sleep(PATIENCE * 2).await;

    let rows = page.rows();
    let wanted: [[&str; 4]; 4] = [
        [
            "admission",
            "team/stays-out",
            "admitted by a: main x1 nvidia.com/gpu=a100",
            "WaitingForQuota: said by hand",
        ],
        ["admission", "team/elsewhere", "nvidia.com/gpu=a100", "nvidia.com/gpu=h100"],
        ["eviction", "team/elsewhere", "it stays", "Preempted, InClusterQueue"],
        ["reason", "team/large", "ExceedsMaxQuota: ", "WaitingForQuota: said by hand"],
    ];
    has_rows(&page, &wanted);
    wrote_nothing(&world);
    end(&tasks).await;
    assert_eq!(replayed(&recording).0.rows(), rows);
}

/// Kueue writes that it is evicted, though it had nothing. What was told of it before stands when it is active again.
#[tokio::test(start_paused = true)]
async fn who_is_deactivated_while_it_waits_is_no_difference() {
    for fits in [false, true] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": i64::from(fits) }), json!({})).await;
        let (page, _recording, _tasks) = start(&world);
        world.settle().await;
        by_hand(&world, "idle").await;
        world.sleep(PATIENCE * 2).await;
        assert_eq!(page.rows().len(), usize::from(fits), "it would be admitted: {:?}", page.rows());
        let turn = async |active: bool, evicted: &'static str, reason: &'static str| {
            world
                .update(GROUP, "workloads", "idle", false, |one| one["spec"]["active"] = json!(active))
                .await;
            world.settle().await;
            let said = conditions(&[("QuotaReserved", "False", reason), ("Evicted", evicted, "Deactivated")]);
            world
                .update(GROUP, "workloads", "idle", true, |one| one["status"]["conditions"] = said.clone())
                .await;
            world.sleep(PATIENCE * 2).await;
        };
        turn(false, "True", "Deactivated").await;
        turn(true, "False", if fits { "WaitingForQuota" } else { "ExceedsMaxQuota" }).await;
        assert_eq!(page.rows().len(), usize::from(fits), "{:?}", page.rows());
    }
}

/// A watch that begins anew lists what is known already.
#[tokio::test(start_paused = true)]
async fn what_a_list_repeats_is_no_news() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let (_page, recording, tasks) = start(&world);
    world.settle().await;
    by_hand(&world, "stays-out").await;
    world.settle().await;
    end(&tasks).await;
    let text = recording.text();
    let is_of_workloads = |line: &&str| line.contains(r#""kind":"Workload""#);
    let of_kind: Vec<&str> = text.lines().filter(is_of_workloads).collect();
    let word = |kind: &str| format!(r#""type":"{kind}""#);
    let find = |kind: &str| of_kind.iter().rev().find(|line| line.contains(&word(kind))).unwrap().to_string();
    let (synced, last) =
        (find("SYNCED"), of_kind.iter().rev().find(|line| line.contains("stays-out")).unwrap());
    let time = |line: &str| serde_json::from_str::<Value>(line).unwrap()["time"].as_str().unwrap().to_owned();
    let begun = synced.replace(&word("SYNCED"), &word("RESTARTED"));
    // All of it at the time of the last event; and a minute of quiet after.
    let again: Vec<String> = [begun.as_str(), last, synced.as_str()]
        .iter()
        .map(|line| line.replace(&time(line), &time(last)))
        .collect();
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains(&word("ENDED"))).collect();
    let end = r#"{"time":"2026-01-02T00:00:00Z","type":"ENDED"}"#;
    for middle in ["".to_owned(), again.join("\n")] {
        let text = [kept.join("\n"), middle, end.to_owned()].join("\n").replace("\n\n", "\n");
        let page = Page::default();
        let output = Box::new(page.clone());
        let summary = shadow::replay(&Configuration::default(), text.as_bytes(), PATIENCE, output).unwrap();
        assert_eq!(summary, Summary { same: 0, different: 1, open: 0 }, "{:?}", page.rows());
    }
}

/// It fits, and the recording ends before Kueue's time for saying so is over.
#[tokio::test(start_paused = true)]
async fn what_is_open_when_a_recording_ends_is_not_told() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let (_page, recording, tasks) = start(&world);
    world.settle().await;
    by_hand(&world, "new").await;
    world.sleep(PATIENCE / 2).await;
    end(&tasks).await;
    let (page, summary) = replayed(&recording);
    assert_eq!((page.rows(), summary), (Vec::new(), Summary { same: 0, different: 0, open: 1 }));
}

/// Who came late once is looked at again afterwards.
#[tokio::test(start_paused = true)]
async fn what_was_told_of_a_workload_does_not_hide_what_comes_later() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let (page, _recording, _tasks) = start(&world);
    world.settle().await;
    by_hand(&world, "one").await;
    world.sleep(PATIENCE * 2).await;
    assert_eq!(page.rows().len(), 1, "it would have been admitted: {:?}", page.rows());
    // It is changed: what was told is of what it was. Now both admit it.
    let gets_quota = |one: &mut Value| {
        one["status"]["admission"] = json!({ "clusterQueue": "a", "podSetAssignments": [{ "name": "main", "count": 1,
            "flavors": { "nvidia.com/gpu": "a100" }, "resourceUsage": { "nvidia.com/gpu": "1" } }] });
        one["status"]["conditions"] = conditions(&[("QuotaReserved", "True", "QuotaReserved")]);
    };
    let (group, plural) = ("kueue.x-k8s.io", "workloads");
    world.update(group, plural, "one", false, |one| one["spec"]["priority"] = json!(1)).await;
    world.settle().await;
    world.update(group, plural, "one", true, gets_quota).await;
    world.settle().await;
    assert_eq!(page.rows().len(), 1, "both admit it now: {:?}", page.rows());
    world
        .update(group, plural, "one", true, |one| {
            one["status"] = json!({ "conditions": conditions(&[("QuotaReserved", "False", "Pending")]) });
        })
        .await;
    // It is too large here, and Kueue admits it all the same.
    world.update(group, plural, "one", false, |one| one["spec"]["podSets"][0]["count"] = json!(9)).await;
    world.settle().await;
    world.update(group, plural, "one", true, gets_quota).await;
    world.settle().await;
    assert_eq!(page.rows().len(), 2, "{:?}", page.rows());
}

/// Somebody would have to leave for it, and Kueue finds room without that: nobody is taken for one who leaves from then on.
#[tokio::test(start_paused = true)]
async fn who_got_room_otherwise_needs_no_victims_any_more() {
    let world = World::new(false).await;
    world
        .queue("a", "", json!({ "nominalQuota": 1 }), json!({ "withinClusterQueue": "LowerPriority" }))
        .await;
    let (page, _recording, _tasks) = start(&world);
    world.settle().await;
    let (group, plural) = ("kueue.x-k8s.io", "workloads");
    let gets_quota = |one: &mut Value| {
        one["status"]["admission"] = json!({ "clusterQueue": "a", "podSetAssignments": [{ "name": "main", "count": 1,
            "flavors": { "nvidia.com/gpu": "a100" }, "resourceUsage": { "nvidia.com/gpu": "1" } }] });
        one["status"]["conditions"] = conditions(&[("QuotaReserved", "True", "QuotaReserved")]);
    };
    by_hand(&world, "low").await;
    world.update(group, plural, "low", true, gets_quota).await;
    by_hand(&world, "high").await;
    world.update(group, plural, "high", false, |one| one["spec"]["priority"] = json!(1)).await;
    world.settle().await;
    world.update(group, plural, "high", true, gets_quota).await;
    world.settle().await;
    let wanted = [["admission", "team/high", "WaitingForPreempted"], ["eviction", "team/low", "it stays"]];
    shows(&page, &wanted);
}

#[test]
fn a_recording_without_complete_lists_is_refused() {
    let line = r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"1","resourceVersion":"1"}}}"#;
    let error =
        shadow::replay(&Configuration::default(), line.as_bytes(), PATIENCE, Box::new(std::io::sink()))
            .unwrap_err();
    assert!(error.to_string().contains("SYNCED"), "{error}");
}
