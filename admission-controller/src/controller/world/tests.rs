use kit::watch::Change;
use model::selector::LabelSelector;
use quota_engine::Settings;
use serde_json::{Value, json};

use super::*;
use crate::jobs::{JobKind, JobObject, TABLE};

struct Told {
    world: World,
    engine: Engine,
}

impl Told {
    fn job(&mut self, change: fn(JobObject) -> Change<JobObject>, version: u32, metadata: &Value) -> String {
        let mut object = json!({
            "metadata": {
                "name": "j", "namespace": "team", "uid": "u", "resourceVersion": version.to_string(),
                "annotations": { "a": "long words" }, "labels": { "b": "long words" },
            },
            "spec": { "template": { "spec": { "containers": [{ "name": "long words" }] } } },
            "status": { "active": 1, "uncountedTerminatedPods": { "succeeded": ["long words"] } },
        });
        set_all(&mut object["metadata"], metadata);
        let change = change(serde_json::from_value(object).unwrap());
        self.world.take(&mut self.engine, Seen::Job(&TABLE[0], change));
        self.kept()
    }

    fn workload(&mut self) {
        self.workload_of("u", "7");
    }

    fn workload_of(&mut self, job: &str, version: &str) {
        let owner =
            json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job, "controller": true });
        self.workload_in("team", &owner, version);
    }

    fn workload_in(&mut self, namespace: &str, owner: &Value, version: &str) {
        let workload = serde_json::from_value(json!({ "metadata": {
            "name": "w", "namespace": namespace, "uid": format!("w-{namespace}"), "resourceVersion": version,
            "ownerReferences": [owner],
        }}));
        let change = Change::Applied(workload.unwrap());
        self.world.take(&mut self.engine, Seen::Workload(change));
    }

    fn kept(&self) -> String {
        format!("{:?}", self.world.stored_job(&Uid::from("u")))
    }

    fn is_to_be_read(&self) -> bool {
        self.world.job_to_read(&Uid::from("u")).is_some()
    }
}

fn set_all(at: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        at[key] = value.clone();
    }
}

fn told() -> Told {
    let world = World::new(&Configuration::default());
    Told { world, engine: Engine::new(Settings::default()) }
}

fn queued() -> Value {
    json!({ "labels": { "kueue.x-k8s.io/queue-name": "a" } })
}

#[test]
fn of_a_job_without_a_queue_it_is_kept_only_that_it_exists() {
    let mut told = told();
    let kept = told.job(Change::Applied, 1, &json!({}));
    assert!(kept.contains("Bare") && !kept.contains("long words"), "{kept}");
    assert!(told.world.job(&Uid::from("u")).is_none() && !told.is_to_be_read());

    let kept = told.job(Change::Applied, 2, &queued());
    assert!(kept.contains("long words"), "{kept}");
    assert_eq!(told.world.job(&Uid::from("u")).unwrap().view.queue.as_deref(), Some("a"));

    let kept = told.job(Change::Applied, 3, &json!({}));
    assert!(!kept.contains("long words"), "its label was taken away: {kept}");
    assert_eq!(told.job(Change::Deleted, 4, &json!({})), "None");
    assert!(told.world.kind_of_job.is_empty());
}

#[test]
fn a_job_whose_workload_comes_later_is_read_in_the_version_that_was_not_kept() {
    let mut told = told();
    told.job(Change::Applied, 3, &json!({}));
    told.workload();
    assert!(told.is_to_be_read());
    let object = json!({
        "metadata": { "name": "j", "namespace": "team", "uid": "u", "resourceVersion": "3" },
        "spec": { "suspend": true },
    });
    told.world.take_job_answer(&TABLE[0], serde_json::from_value(object).unwrap());
    assert!(told.world.job(&Uid::from("u")).unwrap().view.suspended && !told.is_to_be_read());

    // A new list names it in the same version, and the watch tells of it again: it stays.
    told.world.take(&mut told.engine, Seen::Job(&TABLE[0], Change::Restarted));
    told.job(Change::Applied, 3, &json!({}));
    told.world.take(&mut told.engine, Seen::Job(&TABLE[0], Change::Synced { as_of: None }));
    assert!(told.world.job(&Uid::from("u")).unwrap().view.suspended);
    assert!(told.job(Change::Applied, 5, &json!({})).contains("long words"));
}

#[test]
fn a_part_of_a_job_is_not_kept_whatever_it_has() {
    let mut told = told();
    let mut part = queued();
    part["ownerReferences"] = json!([
        { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s", "controller": true },
    ]);
    let kept = told.job(Change::Applied, 1, &part);
    told.workload();
    assert!(!kept.contains("long words") && !told.is_to_be_read(), "{kept}");
}

/// Where nobody has selected namespaces, those of the control plane and of the program itself are left alone, label or not.
#[test]
fn jobs_of_the_system_are_not_kept() {
    for (namespace, selector, wanted) in [
        ("team", None, true),
        ("kube-system", None, false),
        ("trireme-system", None, false),
        ("trireme-system", Some(LabelSelector::default()), true),
    ] {
        let config = Configuration { managed_jobs_namespace_selector: selector, ..Configuration::default() };
        let mut world = World::new(&config);
        let mut told = told();
        let object = json!({ "metadata": { "name": namespace, "uid": namespace, "resourceVersion": "1" } });
        let change = Change::Applied(serde_json::from_value(object).unwrap());
        world.take(&mut told.engine, Seen::Namespace(change));
        assert_eq!(world.manages(namespace, Some("a")), wanted, "{namespace}");
    }
}

#[test]
fn where_jobs_need_no_queue_they_are_kept() {
    let manages = Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() };
    let mut told = Told { world: World::new(&manages), ..told() };
    assert!(told.job(Change::Applied, 1, &json!({})).contains("long words"));
}

/// Else gates of its pods stay closed: nobody knows whose they are until a Workload of it changes.
#[test]
fn the_slices_of_a_job_are_known_when_its_kind_is_served_again() {
    let mut told = told();
    told.job(Change::Applied, 1, &queued());
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true });
    let slice = json!({ "metadata": {
        "name": "first", "namespace": "team", "uid": "w", "resourceVersion": "2", "ownerReferences": [owner],
        "annotations": { "kueue.x-k8s.io/elastic-job": "true" },
    }});
    let seen = |told: &mut Told, change| told.world.take(&mut told.engine, change);
    seen(&mut told, Seen::Workload(Change::Applied(serde_json::from_value(slice).unwrap())));
    let whose = |told: &Told| told.world.job_of_chain(&("team".into(), "first".into())).cloned();
    assert_eq!(whose(&told), Some("u".into()));
    seen(&mut told, Seen::Job(&TABLE[0], Change::Restarted));
    seen(&mut told, Seen::Job(&TABLE[0], Change::Synced { as_of: None }));
    told.job(Change::Applied, 1, &queued());
    assert_eq!(whose(&told), Some("u".into()));
}

/// Objects one above the other, the lowest first: kind and whether it names a queue; `-` before a kind: not seen; `!`: nor served.
fn chain(config: &Configuration, levels: &[(&str, bool)]) -> Standing {
    let mut told = Told { world: World::new(config), ..told() };
    let kinds: Vec<&JobKind> = config.watched_kinds().collect();
    let named =
        |kind: &str| kinds.iter().find(|one| one.kind == kind.trim_start_matches(['-', '!'])).copied();
    let mut lowest = None;
    for (level, (name, queued)) in levels.iter().enumerate() {
        let mut object = json!({ "metadata": {
            "name": format!("n{level}"), "namespace": "team", "uid": format!("u{level}"), "resourceVersion": "1",
        }});
        if *queued {
            object["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "a" });
        }
        if let Some((above, _)) = levels.get(level + 1) {
            let kind = named(above);
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": kind.map_or("example.com/v1".to_owned(), |kind| kind.api_version()),
                "kind": above.trim_start_matches(['-', '!']),
                "name": format!("n{}", level + 1), "uid": format!("u{}", level + 1), "controller": true,
            }]);
        }
        let object: JobObject = serde_json::from_value(object).unwrap();
        lowest = lowest.or_else(|| Some(object.metadata.clone()));
        let Some(kind) = named(name).filter(|_| !name.starts_with('-')) else { continue };
        let change = match name.starts_with('!') {
            true => Change::Synced { as_of: None },
            false => Change::Applied(object),
        };
        told.world.take(&mut told.engine, Seen::Job(kind, change));
    }
    told.world.standing(&lowest.unwrap())
}

#[test]
fn the_topmost_owner_that_names_a_queue_counts() {
    let file = "integrations:\n  frameworks: [batch/job, jobset.x-k8s.io/jobset, workload.codeflare.dev/appwrapper]\n  \
         externalFrameworks: [Workflow.v1.argoproj.io]\n";
    let config = Configuration::parse(std::path::Path::new("f"), file).unwrap();
    let all = Configuration { manage_jobs_without_queue_name: true, ..config.clone() };
    for (levels, by_label, by_all) in [
        (&[("Job", true)][..], Standing::Own, Standing::Own),
        (&[("Job", true), ("CronJob", true)], Standing::Own, Standing::Own),
        (&[("Job", false), ("JobSet", false), ("AppWrapper", false)], Standing::Own, Standing::Part),
        (&[("Job", true), ("JobSet", false), ("AppWrapper", false)], Standing::Own, Standing::Part),
        (&[("Job", true), ("JobSet", true), ("AppWrapper", false)], Standing::Part, Standing::Part),
        (&[("Job", true), ("JobSet", false), ("AppWrapper", true)], Standing::Part, Standing::Part),
        (&[("Job", true), ("Workflow", true)], Standing::Part, Standing::Part),
        (&[("Job", true), ("Workflow", false)], Standing::Own, Standing::Part),
        (&[("Job", true), ("-JobSet", true)], Standing::Unseen, Standing::Unseen),
        // RayJobs are switched off: they count for nothing, and what owns them may.
        (&[("Job", true), ("RayJob", true)], Standing::Own, Standing::Own),
        (&[("Job", true), ("-RayJob", true)], Standing::Unseen, Standing::Unseen),
        (&[("Job", true), ("!RayJob", true)], Standing::Own, Standing::Own),
        (&[("Job", true), ("!JobSet", true)], Standing::Unseen, Standing::Unseen),
        (&[("Job", true), ("RayJob", true), ("CronJob", true)], Standing::Own, Standing::Own),
        (&[("Job", true), ("RayJob", false), ("AppWrapper", false)], Standing::Own, Standing::Part),
        (
            &[("Job", true), ("RayJob", false), ("TFJob", true), ("AppWrapper", true)],
            Standing::Part,
            Standing::Part,
        ),
        (&[("Job", true), ("RayJob", false), ("-AppWrapper", true)], Standing::Unseen, Standing::Unseen),
        (&[("RayJob", true), ("AppWrapper", true)], Standing::Part, Standing::Part),
    ] {
        assert_eq!(chain(&config, levels), by_label, "{levels:?}");
        assert_eq!(chain(&all, levels), by_all, "without a queue: {levels:?}");
    }
    let deep = vec![("Job", true); 12];
    assert!(matches!(chain(&config, &deep), Standing::Endless(_)));
    assert_eq!(chain(&config, &deep[..11]), Standing::Part);
}

#[test]
fn a_job_is_read_when_its_owner_turns_out_to_name_no_queue() {
    let mut told = told();
    let owner = |name: &str| {
        json!([
            { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name, "uid": "s", "controller": true },
        ])
    };
    let mut part = queued();
    part["ownerReferences"] = owner("s");
    assert!(told.job(Change::Applied, 1, &part).contains("Bare") && !told.is_to_be_read());
    told.world.dirty.clear();
    let jobset = TABLE.iter().find(|kind| kind.kind == "JobSet").unwrap();
    let object =
        json!({ "metadata": { "name": "s", "namespace": "team", "uid": "s", "resourceVersion": "2" } });
    let object: JobObject = serde_json::from_value(object).unwrap();
    told.world.take(&mut told.engine, Seen::Job(jobset, Change::Applied(object.clone())));
    assert!(told.world.dirty.contains(&Unit::Job("u".into())) && told.is_to_be_read());
    // Its owner is another one of the same name: whoever that is, it says nothing about this job.
    part["ownerReferences"][0]["uid"] = json!("earlier");
    assert!(told.job(Change::Applied, 3, &part).contains("Whole"));
    // Objects that own one another.
    let mut circle = object;
    circle.metadata.resource_version = Some("4".to_owned());
    circle.metadata.owner_references = serde_json::from_value(json!([
        { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true },
    ]))
    .unwrap();
    told.world.take(&mut told.engine, Seen::Job(jobset, Change::Applied(circle)));
    part["ownerReferences"] = owner("s");
    told.job(Change::Applied, 5, &part);
    assert!(told.is_to_be_read(), "somebody has to be told");
    told.job(Change::Applied, 6, &part);
    let job = told.world.job(&"u".into()).unwrap();
    assert!(matches!(told.world.standing(&job.object.metadata), Standing::Endless(_)));
}

#[test]
fn a_workload_that_is_given_to_another_job_is_the_firsts_no_more() {
    let mut told = told();
    told.workload_of("u", "7");
    told.workload_of("x", "8");
    let has = |uid: &str| told.world.has_workload(&Uid::from(uid), "team");
    assert_eq!((has("u"), has("x")), (false, true));
}

fn table(kind: &str) -> &'static JobKind {
    TABLE.iter().find(|one| one.kind == kind).unwrap()
}

/// An object of this namespace, with more metadata.
fn object_in(namespace: &str, more: &Value) -> JobObject {
    let mut metadata = json!({ "name": "n", "namespace": namespace, "uid": "n", "resourceVersion": "1" });
    set_all(&mut metadata, more);
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "replicatedJobs": [] } })).unwrap()
}

fn owned_by(api_version: &str, kind: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": "n", "uid": "n", "controller": true })
}

/// The garbage collector takes what names one; until then it is on its own.
#[test]
fn an_owner_in_another_namespace_is_none() {
    for (namespace, is_part) in [("team", true), ("other", false)] {
        let mut told = told();
        let above = object_in(namespace, &queued());
        told.world.take(&mut told.engine, Seen::Job(table("JobSet"), Change::Applied(above)));
        let mut part = queued();
        part["ownerReferences"] = json!([owned_by("jobset.x-k8s.io/v1alpha2", "JobSet")]);
        let kept = told.job(Change::Applied, 2, &part);
        assert_eq!(kept.contains("Bare"), is_part, "{namespace}: {kept}");
    }
}

#[test]
fn a_child_in_another_namespace_says_nothing_of_a_job() {
    let mut told = told();
    let job = object_in("team", &queued());
    told.world.take(&mut told.engine, Seen::Job(table("TrainJob"), Change::Applied(job)));
    for (namespace, says) in [("other", false), ("team", true)] {
        let owner = owned_by("trainer.kubeflow.org/v1alpha1", "TrainJob");
        let more = json!({ "uid": format!("child-{namespace}"), "ownerReferences": [owner] });
        let child = Change::Applied(object_in(namespace, &more));
        told.world.take(&mut told.engine, Seen::Job(table("JobSet"), child));
        let job = told.world.job(&Uid::from("n")).unwrap();
        assert_eq!(!job.object.child.is_null(), says, "{namespace}");
    }
}

#[test]
fn what_names_an_owner_in_another_namespace_is_not_made_for_it() {
    let mut told = told();
    told.job(Change::Applied, 1, &json!({}));
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true });
    told.workload_in("other", &owner, "7");
    assert!(!told.is_to_be_read());
    let uid = Uid::from("u");
    let names = |namespace| told.world.workloads_of(&uid, namespace).len();
    assert_eq!((names(Some("team")), names(None)), (0, 1));
    assert_eq!(told.world.strangers_of(&uid, "team").len(), 1, "nobody else lets it go");
    told.workload_in("team", &owner, "8");
    assert!(told.is_to_be_read());
    assert_eq!(told.world.strangers_of(&uid, "team").len(), 1);

    told.workload_in("other", &owned_by("apps/v1", "StatefulSet"), "9");
    let made = |namespace| told.world.workloads_made_from(&Uid::from("n"), namespace).len();
    assert_eq!((made("team"), made("other")), (0, 1));
}

#[test]
fn a_request_for_nodes_in_another_namespace_is_none_of_a_workload() {
    let mut told = told();
    told.workload();
    let workload = told.world.workload_named("team", "w").unwrap();
    for (namespace, count) in [("other", 0), ("team", 1)] {
        let metadata = json!({
            "name": "r", "namespace": namespace, "uid": namespace, "resourceVersion": "8",
            "ownerReferences": [
                { "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "w-team", "controller": true },
            ],
        });
        let request = Change::Applied(serde_json::from_value(json!({ "metadata": metadata })).unwrap());
        told.world.take(&mut told.engine, Seen::ProvisioningRequest(request));
        assert_eq!(told.world.requests_of(&workload).len(), count, "{namespace}");
    }
}

#[test]
fn webhooks_are_told_of_namespaces_that_are_left_alone() {
    let file = "managedJobsNamespaceSelector:\n  matchLabels: { quota: counted }\n";
    let config = Configuration::parse(std::path::Path::new("f"), file).unwrap();
    let (sender, seen) = watch::channel(Surroundings::default());
    let mut told = Told { world: World::new(&config).telling(sender), ..told() };
    let mut is_left_alone = |change: fn(Namespace) -> Change<Namespace>, version: u32, labels: Value| {
        let version = version.to_string();
        let metadata = json!({ "name": "team", "uid": "n", "resourceVersion": version, "labels": labels });
        let namespace = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        told.world.take(&mut told.engine, Seen::Namespace(change(namespace)));
        seen.borrow().leaves_alone("team")
    };
    assert!(is_left_alone(Change::Applied, 1, json!({})));
    assert!(!is_left_alone(Change::Applied, 2, json!({ "quota": "counted" })));
    assert!(is_left_alone(Change::Applied, 3, json!({ "quota": "free" })));
    assert!(!is_left_alone(Change::Deleted, 4, json!({ "quota": "free" })), "its name is free");
}

/// Of a new job that names a queue webhooks see its owner's uid alone.
#[test]
fn webhooks_are_told_of_owners_that_do_not_count() {
    let (sender, seen) = watch::channel(Surroundings::default());
    let mut told = told();
    told.world = told.world.telling(sender);
    let uid = Uid::from("u");
    told.job(Change::Applied, 1, &json!({}));
    assert!(seen.borrow().owns_nothing(&uid));
    told.job(Change::Applied, 2, &queued());
    assert!(!seen.borrow().owns_nothing(&uid));
    let set = json!({ "ownerReferences": [owned_by("jobset.x-k8s.io/v1alpha2", "JobSet")] });
    told.job(Change::Applied, 3, &set);
    assert!(!seen.borrow().owns_nothing(&uid), "who knows what that names");
    told.world
        .take(&mut told.engine, Seen::Job(table("JobSet"), Change::Applied(object_in("team", &json!({})))));
    assert!(seen.borrow().owns_nothing(&uid));
    told.job(Change::Deleted, 4, &json!({}));
    assert!(!seen.borrow().owns_nothing(&uid));

    let all = Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() };
    let (sender, seen) = watch::channel(Surroundings::default());
    let mut told = Told { world: World::new(&all).telling(sender), ..told };
    told.job(Change::Applied, 1, &json!({}));
    assert!(!seen.borrow().owns_nothing(&uid), "it is managed itself");

    for manage_jobs_without_queue_name in [false, true] {
        let file = "integrations: { frameworks: [jobset.x-k8s.io/jobset] }";
        let config = Configuration::parse(std::path::Path::new("f"), file).unwrap();
        let config = Configuration { manage_jobs_without_queue_name, ..config };
        let (sender, seen) = watch::channel(Surroundings::default());
        let mut told = Told { world: World::new(&config).telling(sender), ..self::told() };
        let seen = |uid: &Uid| (seen.borrow().is_passed(uid), seen.borrow().owns_nothing(uid));
        assert_eq!(seen(&uid), (false, false));
        told.job(Change::Applied, 1, &queued());
        assert_eq!(seen(&uid), (true, true), "Jobs are switched off");
        told.job(Change::Applied, 2, &set);
        assert_eq!(seen(&uid), (true, false));
    }
}

/// A StatefulSet is not scaled up from nothing before its Workload has given its quota back.
#[test]
fn webhooks_are_told_whose_workload_has_quota() {
    let (sender, seen) = watch::channel(Surroundings::default());
    let mut told = told();
    told.world = told.world.telling(sender);
    let mut is_occupied = |kind: &str, version: u32, reserved: &str, leaving: Value| {
        let (at, version) = ("2026-01-01T00:00:00Z", version.to_string());
        let condition = json!({
            "type": "QuotaReserved", "status": reserved, "reason": "R", "message": "", "lastTransitionTime": at,
        });
        let workload = json!({
            "metadata": {
                "name": "w", "namespace": "team", "uid": "w", "resourceVersion": version,
                "ownerReferences": [owned_by("apps/v1", kind)], "deletionTimestamp": leaving,
            },
            "status": { "conditions": [condition] },
        });
        let change = Change::Applied(serde_json::from_value(workload).unwrap());
        told.world.take(&mut told.engine, Seen::Workload(change));
        seen.borrow().occupied.contains(&Uid::from("n"))
    };
    assert!(!is_occupied("Deployment", 1, "True", Value::Null));
    assert!(is_occupied("StatefulSet", 2, "True", Value::Null));
    assert!(!is_occupied("StatefulSet", 3, "False", Value::Null));
    assert!(is_occupied("StatefulSet", 4, "False", json!("2026-01-01T00:00:00Z")));
    told.world.take(&mut told.engine, Seen::Workload(Change::Restarted));
    told.world.take(&mut told.engine, Seen::Workload(Change::Synced { as_of: None }));
    assert!(seen.borrow().occupied.is_empty(), "it is gone");
}

/// Deleted and made anew between two looks: the list tells of the new one before the old one is found gone.
#[test]
fn a_queue_that_was_made_anew_keeps_what_it_asks_for() {
    let mut told = told();
    let mut tell = |change: Change<&str>| {
        let queue = |uid| {
            serde_json::from_value(json!({
                "metadata": { "name": "q", "uid": uid, "resourceVersion": "1" },
                "spec": { "admissionChecksStrategy": { "admissionChecks": [{ "name": "c" }] } },
            }))
        };
        let change = change.map(|uid| queue(uid).unwrap());
        told.world.take(&mut told.engine, Seen::ClusterQueue(change));
        told.world.uses_check(&"c".into())
    };
    assert!(tell(Change::Applied("1")));
    tell(Change::Restarted);
    tell(Change::Applied("2"));
    assert!(tell(Change::Synced { as_of: Some(2) }));
    assert!(!tell(Change::Deleted("2")));
}
