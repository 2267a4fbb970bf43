use quota_engine::Uid;

use super::*;
use crate::surroundings::Surroundings;

fn site() -> Site {
    site_in(Surroundings::default())
}

fn site_in(surroundings: Surroundings) -> Site {
    let (_, surroundings) = tokio::sync::watch::channel(surroundings);
    Site { config: Configuration::default().into(), surroundings }
}

fn request(operation: &str, object: Value, old: Value) -> Request {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "namespace": "team-a",
            "kind": { "group": "kubeflow.org", "version": "v1", "kind": "PyTorchJob" },
            "object": object, "oldObject": old,
        },
    });
    Request::parse(review.to_string().as_bytes()).unwrap()
}

fn job(queue: &str, suspend: Option<bool>, scheduler: &str) -> Value {
    let mut template = json!({ "spec": { "containers": [] } });
    if !scheduler.is_empty() {
        template["spec"]["schedulerName"] = json!(scheduler);
    }
    let mut job = json!({
        "metadata": { "name": "llama", "labels": {} },
        "spec": { "pytorchReplicaSpecs": { "Worker": { "template": template } } },
    });
    if !queue.is_empty() {
        job["metadata"]["labels"][kueue::QUEUE_NAME] = json!(queue);
    }
    if let Some(suspend) = suspend {
        job["spec"]["runPolicy"] = json!({ "suspend": suspend });
    }
    job
}

#[test]
fn a_managed_job_is_created_suspended_for_our_scheduler() {
    let site = site();
    let scheduler = "/spec/pytorchReplicaSpecs/Worker/template/spec/schedulerName";
    for (wanted, given) in [("trireme", ""), ("trireme", "default-scheduler"), ("volcano", "volcano")] {
        let verdict = mutate(&site, &request("CREATE", job("q", None, given), Value::Null));
        let Verdict::Change(changed) = verdict else { panic!("{verdict:?}") };
        assert_eq!(changed.pointer("/spec/runPolicy/suspend"), Some(&json!(true)));
        assert_eq!(changed.pointer(scheduler), Some(&json!(wanted)));
    }
    for untouched in [job("", None, ""), job("q", Some(true), "trireme")] {
        assert_eq!(mutate(&site, &request("CREATE", untouched, Value::Null)), Verdict::Allow);
    }
    let mut wrong = job("q", None, "");
    wrong["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!("two");
    let verdict = mutate(&site, &request("CREATE", wrong, Value::Null));
    let Verdict::Change(changed) = verdict else { panic!("{verdict:?}") };
    assert_eq!(changed.pointer(scheduler), Some(&json!("trireme")), "a job that is corrected later");
    let mut child = job("q", None, "");
    child["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1", "controller": true }
    ]);
    assert_eq!(mutate(&site, &request("CREATE", child, Value::Null)), Verdict::Allow);
}

/// Of what owns it the kind is managed, and who waits is told by the queue that one of them names.
#[test]
fn a_job_of_owners_without_a_queue_is_created_suspended() {
    let scheduled = |queue: &str| {
        let mut job = job(queue, None, "");
        job["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set", "controller": true }
        ]);
        job
    };
    for (passed, is_suspended) in [
        (&[][..], false),
        (&[("set", None)], true),
        (&[("set", Some("wrapper"))], false),
        (&[("set", Some("wrapper")), ("wrapper", None)], true),
        (&[("set", Some("wrapper")), ("wrapper", Some("set"))], false),
    ] {
        let passed =
            passed.iter().map(|(job, owner): &(&str, Option<&str>)| (Uid::from(*job), owner.map(Uid::from)));
        let known = Surroundings { passed: passed.collect(), ..Surroundings::default() };
        let site = site_in(known);
        let verdict = mutate(&site, &request("CREATE", scheduled("q"), Value::Null));
        assert_eq!(matches!(verdict, Verdict::Change(_)), is_suspended, "{:?}", *site.surroundings.borrow());
        let verdict = mutate(&site, &request("CREATE", scheduled(""), Value::Null));
        assert_eq!(verdict, Verdict::Allow, "it waits in no queue");
    }
}

/// It is passed by, once it has been seen.
#[test]
fn a_job_of_an_owner_of_a_kind_that_is_switched_off_is_created_suspended_unless_that_is_part_of_one() {
    let mut part = job("q", None, "");
    part["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set", "controller": true }
    ]);
    let file = "integrations: { frameworks: [kubeflow.org/pytorchjob, trainer.kubeflow.org/trainjob] }";
    let config = Configuration::parse(std::path::Path::new("f"), file).unwrap();
    for (owner, is_suspended) in [(None, true), (Some(None), true), (Some(Some("train")), false)] {
        let passed = owner.map(|owner: Option<&str>| (Uid::from("set"), owner.map(Uid::from)));
        let known = Surroundings { passed: passed.into_iter().collect(), ..Surroundings::default() };
        let site = Site { config: config.clone().into(), ..site_in(known) };
        let verdict = mutate(&site, &request("CREATE", part.clone(), Value::Null));
        assert_eq!(matches!(verdict, Verdict::Change(_)), is_suspended, "{owner:?}");
    }
}

#[test]
fn a_job_is_started_with_as_few_pods_as_it_accepts() {
    let job = |pods: i64, suspend: bool| {
        json!({
            "metadata": {
                "name": "sweep", "labels": { kueue::QUEUE_NAME: "q" },
                "annotations": { "kueue.x-k8s.io/job-min-parallelism": "2" },
            },
            "spec": {
                "parallelism": pods, "completions": 8, "suspend": suspend,
                "template": { "spec": { "containers": [] } },
            },
        })
    };
    let of_job = |operation: &str, new: Value, old: Value| {
        let mut request = request(operation, new, old);
        (request.group, request.kind) = ("batch".to_owned(), "Job".to_owned());
        validate(&site(), &request)
    };
    assert_eq!(of_job("CREATE", job(8, true), Value::Null), Verdict::Allow);
    assert_ne!(of_job("CREATE", job(2, true), Value::Null), Verdict::Allow);
    assert_eq!(of_job("UPDATE", job(2, false), job(8, true)), Verdict::Allow);
    assert_ne!(of_job("UPDATE", job(3, false), job(2, false)), Verdict::Allow, "while it runs it keeps them");
}

#[test]
fn an_edit_does_not_lose_the_scheduler() {
    let site = site();
    let without_template = || {
        let mut job = job("q", Some(true), "");
        job["spec"]["pytorchReplicaSpecs"]["Worker"] = json!({});
        job
    };
    for (old, new, wanted) in [
        (job("q", Some(true), "trireme"), job("q", Some(true), ""), Some("trireme")),
        (without_template(), job("q", Some(true), ""), Some("trireme")),
        (job("q", Some(true), ""), job("q", Some(true), ""), None),
        (job("q", Some(true), "trireme"), job("q", Some(true), "volcano"), None),
        (job("q", Some(false), "trireme"), job("q", Some(false), "trireme"), None),
    ] {
        let verdict = mutate(&site, &request("UPDATE", new.clone(), old));
        let given = match &verdict {
            Verdict::Change(changed) => changed
                .pointer("/spec/pytorchReplicaSpecs/Worker/template/spec/schedulerName")
                .and_then(Value::as_str),
            _ => None,
        };
        assert_eq!(given, wanted, "{new}");
    }
}

#[test]
fn the_queue_changes_only_while_the_job_is_suspended() {
    let site = site();
    for (old, new, allowed) in [
        (job("a", Some(false), ""), job("b", Some(false), ""), false),
        (job("a", Some(true), ""), job("b", Some(true), ""), true),
        (job("a", Some(false), ""), job("a", Some(false), ""), true),
        (job("", Some(false), ""), job("b", Some(false), ""), false),
        (job("", Some(false), ""), job("", Some(false), ""), true),
    ] {
        let verdict = validate(&site, &request("UPDATE", new, old));
        assert_eq!(verdict == Verdict::Allow, allowed, "{verdict:?}");
    }
}

#[test]
fn what_is_no_review_is_the_senders_mistake() {
    for body in ["", "{", "[]", "{}", r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#] {
        assert!(Request::<Value>::parse(body.as_bytes()).is_err(), "{body:?}");
    }
    // A job that is none is left to the API server's schema.
    let odd = request("CREATE", json!("text"), Value::Null);
    assert_eq!(mutate(&site(), &odd), Verdict::Allow);
}

fn within(namespace: &str, request: Request) -> Request {
    let mut request = request;
    request.namespace = namespace.to_owned();
    request
}

#[test]
fn who_names_no_queue_gets_that_of_its_namespace() {
    let queues = ["by-default".to_owned()].into();
    let site = site_in(Surroundings { queues, class: true, ..Surroundings::default() });
    let of = |namespace: &str, job: Value| within(namespace, request("CREATE", job, Value::Null));
    let labels = |namespace: &str, job: Value| match mutate(&site, &of(namespace, job)) {
        Verdict::Change(changed) => changed["metadata"]["labels"].clone(),
        other => json!(format!("{other:?}")),
    };
    let both = json!({ kueue::QUEUE_NAME: "default", kueue::PRIORITY_CLASS: "default" });
    assert_eq!(labels("by-default", job("", None, "")), both);
    let mut bare = job("", None, "");
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(labels("by-default", bare), both);
    let class = json!({ kueue::PRIORITY_CLASS: "default" });
    assert_eq!(labels("team-a", job("", None, "")), class, "it waits in no queue");
    let mut classed = job("", None, "");
    classed["metadata"]["labels"] = json!({ kueue::PRIORITY_CLASS: "high" });
    assert_eq!(labels("team-a", classed), "Allow");
    let chosen = json!({ kueue::QUEUE_NAME: "q", kueue::PRIORITY_CLASS: "default" });
    assert_eq!(labels("by-default", job("q", None, "")), chosen);
    let mut part = job("", None, "");
    part["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1", "controller": true }
    ]);
    assert_eq!(labels("by-default", part), "Allow");

    let (old, new) = (job("default", Some(true), ""), job("", Some(true), ""));
    let update = |namespace: &str| within(namespace, request("UPDATE", new.clone(), old.clone()));
    assert!(matches!(validate(&site, &update("by-default")), Verdict::Deny(_)), "it would only come back");
    assert_eq!(validate(&site, &update("team-a")), Verdict::Allow);
}

/// Kueue's webhook configurations send reviews of more namespaces than are selected.
#[test]
fn jobs_of_namespaces_that_are_not_selected_stay_as_they_are() {
    let free = || ["free".to_owned()].into();
    let site =
        site_in(Surroundings { queues: free(), unselected: free(), class: true, ..Surroundings::default() });
    let all = Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() };
    let everything = Site { config: all.into(), surroundings: site.surroundings.clone() };
    for (site, queue) in [(&site, "q"), (&site, ""), (&everything, "q"), (&everything, "")] {
        let asked = within("free", request("CREATE", job(queue, Some(false), ""), Value::Null));
        assert_eq!(mutate(site, &asked), Verdict::Allow, "{queue:?}");
    }
    let suspended = mutate(&site, &request("CREATE", job("q", Some(false), ""), Value::Null));
    assert!(matches!(suspended, Verdict::Change(_)), "others do not");
    let (old, new) = (job("a", Some(false), ""), job("b", Some(false), ""));
    let moved = |namespace: &str| within(namespace, request("UPDATE", new.clone(), old.clone()));
    assert_eq!(validate(&site, &moved("free")), Verdict::Allow);
    assert!(matches!(validate(&site, &moved("team-a")), Verdict::Deny(_)));
}

fn judged(kind: (&str, &str), operation: &str, object: Value, old: Value) -> Vec<String> {
    let mut request = request(operation, object, old);
    (request.group, request.kind) = (kind.0.to_owned(), kind.1.to_owned());
    match validate(&site(), &request) {
        Verdict::Allow => Vec::new(),
        Verdict::Deny(errors) => {
            errors.iter().map(|error| format!("{:?} {}", error.kind, error.field)).collect()
        }
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn kinds_are_held_to_their_own_rules() {
    let labelled =
        |spec: Value| json!({ "metadata": { "labels": { kueue::QUEUE_NAME: "q" } }, "spec": spec });
    let asks = |key: &str| json!({ "metadata": { "annotations": { key: "a rack" } }, "spec": {} });
    let rack = format!("annotations[{}]", kueue::PODSET_REQUIRED_TOPOLOGY);
    let cluster = "spec.rayClusterSpec";
    let ray = json!({ "headGroupSpec": { "template": {} }, "workerGroupSpecs": [{ "groupName": "head", "template": {} }] });
    for (kind, spec, wanted) in [
        (("ray.io", "RayJob"), json!({ "shutdownAfterJobFinishes": true }), "Required spec.rayClusterSpec"),
        (
            ("ray.io", "RayJob"),
            json!({ "clusterSelector": { "a": "b" }, "rayClusterSpec": ray }),
            "Invalid spec.clusterSelector",
        ),
        (
            ("ray.io", "RayJob"),
            json!({ "rayClusterSpec": ray }),
            "Invalid spec.shutdownAfterJobFinishes, Forbidden spec.rayClusterSpec.workerGroupSpecs[0].groupName",
        ),
        (("ray.io", "RayJob"), json!({ "clusterSelector": { "a": "b" } }), ""),
        (
            ("ray.io", "RayCluster"),
            json!({ "enableInTreeAutoscaling": true, "headGroupSpec": { "template": {} } }),
            "Invalid spec.enableInTreeAutoscaling",
        ),
        (
            ("ray.io", "RayService"),
            json!({ "rayClusterConfig": {
                "enableInTreeAutoscaling": true, "workerGroupSpecs": ray["workerGroupSpecs"],
                "headGroupSpec": { "template": asks(kueue::PODSET_REQUIRED_TOPOLOGY) },
            }}),
            &format!(
                "Invalid {cluster}.enableInTreeAutoscaling, Forbidden {cluster}.workerGroupSpecs[0].groupName, \
                 Invalid {cluster}.headGroupSpec.template.metadata.{rack}"
            ),
        ),
        (
            ("ray.io", "RayCluster"),
            json!({ "workerGroupSpecs": vec![json!({ "groupName": "a" }); 18] }),
            "TooMany spec.workerGroupSpecs",
        ),
        (
            ("kubeflow.org", "PyTorchJob"),
            json!({ "pytorchReplicaSpecs": { "Master": { "template": asks(kueue::PODSET_REQUIRED_TOPOLOGY) } } }),
            &format!("Invalid spec.pytorchReplicaSpecs[Master].template.metadata.{rack}"),
        ),
        (
            ("jobset.x-k8s.io", "JobSet"),
            json!({ "replicatedJobs": [{ "name": "a", "template": { "spec": {
                "template": asks(kueue::PODSET_REQUIRED_TOPOLOGY),
            }}}] }),
            &format!("Invalid spec.replicatedJobs[0].template.spec.template.metadata.{rack}"),
        ),
    ] {
        let object = labelled(spec);
        assert_eq!(judged(kind, "CREATE", object.clone(), Value::Null).join(", "), wanted, "{object}");
        // It was so before: whoever finishes with it, by taking a finalizer away, is not held up.
        assert!(judged(kind, "UPDATE", object.clone(), object.clone()).is_empty(), "{object}");
    }
}

/// KubeRay makes it of a RayJob whose templates may have no gate, since Kueue gives it to clusters only.
#[test]
fn a_cluster_that_is_part_of_an_elastic_job_needs_no_gate() {
    let template = json!({ "spec": { "containers": [] } });
    let mut cluster = json!({
        "metadata": {
            "labels": { kueue::QUEUE_NAME: "q" }, "annotations": { kueue::ELASTIC_JOB: "true" },
        },
        "spec": {
            "enableInTreeAutoscaling": true, "headGroupSpec": { "template": template }, "workerGroupSpecs": [],
        },
    });
    let told = |cluster: &Value| judged(("ray.io", "RayCluster"), "CREATE", cluster.clone(), Value::Null);
    assert_eq!(told(&cluster), ["Invalid spec.headGroupSpec.template.spec.schedulingGates"]);
    cluster["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "ray.io/v1", "kind": "RayJob", "name": "r", "uid": "r", "controller": true,
    }]);
    assert!(told(&cluster).is_empty());
}

#[test]
fn gates_of_an_admission_are_only_taken_away() {
    let gated = |gates: &str| {
        let mut job = job("q", Some(true), "");
        job["metadata"]["annotations"] = json!({ kueue::ADMISSION_GATED_BY: gates });
        job
    };
    let kind = ("kubeflow.org", "PyTorchJob");
    let here = format!("metadata.annotations[{}]", kueue::ADMISSION_GATED_BY);
    for (before, after, wanted) in [
        (None, "a.io/x,b.io/y", vec![]),
        (None, "a.io/x,,a.io/x", vec!["Invalid", "Invalid"]),
        (None, "x", vec!["Invalid"]),
        (Some("a.io/x,b.io/y"), "b.io/y", vec![]),
        (Some("a.io/x"), "a.io/x,b.io/y", vec!["Forbidden"]),
        (Some(""), "a.io/x", vec!["Forbidden"]),
    ] {
        let (operation, old) = before.map_or(("CREATE", Value::Null), |before| ("UPDATE", gated(before)));
        let wanted: Vec<String> = wanted.iter().map(|kind| format!("{kind} {here}")).collect();
        assert_eq!(judged(kind, operation, gated(after), old), wanted, "{before:?} {after}");
    }
}

/// It may be managed later, and then Kueue starts none that lacks it.
#[test]
fn every_new_train_job_has_a_place_for_patches() {
    let manager = "/spec/runtimePatches/0/manager";
    for (operation, queue, wanted) in [("CREATE", "q", true), ("CREATE", "", true), ("UPDATE", "", false)] {
        let object =
            json!({ "metadata": { "labels": { kueue::QUEUE_NAME: queue } }, "spec": { "suspend": true } });
        let mut request = request(operation, object.clone(), object);
        (request.group, request.kind) = ("trainer.kubeflow.org".to_owned(), "TrainJob".to_owned());
        let has_place = match mutate(&site(), &request) {
            Verdict::Change(changed) => changed.pointer(manager) == Some(&json!("kueue.x-k8s.io/manager")),
            _ => false,
        };
        assert_eq!(has_place, wanted, "{operation} {queue:?}");
    }
}

#[test]
fn workers_of_a_launcher_that_works_are_ranked_after_it() {
    let offset = format!(
        "/spec/mpiReplicaSpecs/Worker/template/metadata/annotations/{}",
        kueue::POD_INDEX_OFFSET.replace('/', "~1")
    );
    for (works, grouped, wanted) in [(true, false, Some("1")), (false, false, None), (true, true, None)] {
        let mut launcher = json!({ "spec": {} });
        if grouped {
            launcher["metadata"] = json!({ "annotations": { kueue::PODSET_GROUP_NAME: "g" } });
        }
        let object = json!({
            "metadata": { "labels": { kueue::QUEUE_NAME: "q" } },
            "spec": { "runLauncherAsWorker": works, "mpiReplicaSpecs": {
                "Launcher": { "template": launcher }, "Worker": { "template": { "spec": {} } },
            }},
        });
        let mut request = request("CREATE", object, Value::Null);
        request.kind = "MPIJob".to_owned();
        let Verdict::Change(changed) = mutate(&site(), &request) else { panic!("it is suspended") };
        assert_eq!(changed.pointer(&offset).and_then(Value::as_str), wanted, "{works} {grouped}");
    }
}
