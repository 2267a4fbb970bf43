//! Every kind by Kueue's rules, as a table: what is asked, and which fields are refused for what.

use std::path::Path;

use serde_json::{Value, json};

use super::Site;
use super::jobs::{mutate_or_warn, validate_any};
use super::review::{Request, Verdict};
use crate::config::{Configuration, closed_with};
use crate::surroundings::Surroundings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GATED: &str = "kueue.x-k8s.io/admission-gated-by";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn site(gates: Value) -> Site {
    let file = json!({ "featureGates": gates });
    let config = Configuration::parse(Path::new("config"), &file.to_string()).unwrap();
    let mut surroundings = Surroundings::default();
    surroundings.queues.insert("defaulted".to_owned());
    let (_, surroundings) = tokio::sync::watch::channel(surroundings);
    Site { config: config.into(), surroundings }
}

fn request(group: &str, kind: &str, old: &Value, new: &Value) -> Request {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
            "namespace": new["metadata"]["namespace"], "object": new, "oldObject": old,
            "kind": { "group": group, "version": "v1", "kind": kind },
        },
    });
    Request::parse(review.to_string().as_bytes()).unwrap()
}

/// `Kind field` of what is refused, without Kueue's prefix.
fn refused(gates: Value, (group, kind): (&str, &str), old: &Value, new: &Value) -> Vec<String> {
    match validate_any(&site(gates), &request(group, kind, old, new)) {
        Verdict::Allow => Vec::new(),
        Verdict::Deny(errors) => errors
            .iter()
            .map(|error| format!("{:?} {}", error.kind, error.field.replace("kueue.x-k8s.io/", "")))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn object(annotations: Value, spec: Value) -> Value {
    json!({
        "metadata": { "name": "x", "namespace": "team", "labels": { QUEUE: "q" }, "annotations": annotations },
        "spec": spec,
    })
}

fn template(annotations: Value) -> Value {
    let pods = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] });
    json!({ "metadata": { "annotations": annotations }, "spec": pods })
}

const JOB: (&str, &str) = ("batch", "Job");
const POD: (&str, &str) = ("", "Pod");
const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");
const GROUPS: (&str, &str) = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet");
const RAY: (&str, &str) = ("ray.io", "RayCluster");

/// One of each kind, with these annotations.
fn each(annotations: &Value) -> Vec<((&'static str, &'static str), Value)> {
    let job = json!({ "suspend": true, "template": template(json!({})) });
    let groups = json!({ "leaderWorkerTemplate": { "workerTemplate": template(json!({})) } });
    let workers = json!({ "Worker": { "template": template(json!({})) } });
    let tensors = json!({ "runPolicy": { "suspend": true }, "pytorchReplicaSpecs": workers });
    [
        (JOB, job),
        (POD, template(json!({}))["spec"].clone()),
        (DEPLOYMENT, json!({ "template": template(json!({})) })),
        (("apps", "StatefulSet"), json!({ "template": template(json!({})) })),
        (GROUPS, groups),
        (("kubeflow.org", "PyTorchJob"), tensors),
    ]
    .map(|(kind, spec)| (kind, object(annotations.clone(), spec)))
    .into()
}

#[test]
fn who_holds_an_admission_back_is_named_well_and_at_creation_only() {
    let at = |kind: &str| vec![format!("{kind} metadata.annotations[admission-gated-by]")];
    for (before, after, wanted) in [
        (None, "a.io/x, b.io/y", vec![]),
        (None, " ", vec![]),
        (None, "a.io/x,", at("Invalid")),
        (None, "x", at("Invalid")),
        (Some("a.io/x, b.io/y"), "b.io/y", vec![]),
        (Some(""), "b.io/y", at("Forbidden")),
        (Some(""), " ", at("Forbidden")),
        (Some("a.io/x"), "a.io/x,b.io/y", at("Forbidden")),
    ] {
        for (kind, new) in each(&json!({ GATED: after })) {
            let old = before.map_or(Value::Null, |before| {
                let mut old = new.clone();
                old["metadata"]["annotations"][GATED] = json!(before);
                old
            });
            assert_eq!(refused(json!({}), kind, &old, &new), wanted, "{kind:?} {before:?} {after:?}");
            let closed = json!({ "AdmissionGatedBy": false });
            assert!(refused(closed, kind, &old, &new).is_empty(), "{kind:?} {before:?} {after:?}");
        }
    }
}

/// The webhook that Kueue has for all of them asks for a name and a number at creation.
#[test]
fn a_suspended_training_job_may_get_what_it_could_not_be_created_with() {
    let roles = |at: &str| json!({ "runPolicy": { "suspend": true }, at: { "Worker": { "template": template(json!({})) } } });
    for (kind, spec, is_rechecked) in [
        (("kubeflow.org", "PyTorchJob"), roles("pytorchReplicaSpecs"), false),
        (("kubeflow.org", "TFJob"), roles("tfReplicaSpecs"), false),
        (("kubeflow.org", "XGBoostJob"), roles("xgbReplicaSpecs"), false),
        (("kubeflow.org", "PaddleJob"), roles("paddleReplicaSpecs"), false),
        (("kubeflow.org", "JAXJob"), roles("jaxReplicaSpecs"), false),
        (("workload.codeflare.dev", "AppWrapper"), json!({ "suspend": true, "components": [] }), false),
        (("kubeflow.org", "MPIJob"), roles("mpiReplicaSpecs"), true),
        (JOB, json!({ "suspend": true, "template": template(json!({})) }), true),
    ] {
        let old = object(json!({}), spec);
        let mut new = old.clone();
        new["metadata"]["labels"] =
            json!({ QUEUE: "Team_A", "kueue.x-k8s.io/max-exec-time-seconds": "soon" });
        let both =
            ["queue-name", "max-exec-time-seconds"].map(|key| format!("Invalid metadata.labels[{key}]"));
        assert_eq!(refused(json!({}), kind, &Value::Null, &new), both, "{kind:?}");
        let wanted = if is_rechecked { both.to_vec() } else { Vec::new() };
        assert_eq!(refused(json!({}), kind, &old, &new), wanted, "{kind:?}");
    }
}

#[test]
fn without_its_gate_nobody_asks_to_be_resized() {
    let closed = || json!({ "ElasticJobsViaWorkloadSlices": false });
    for (kind, new) in each(&json!({ ELASTIC: "true" })) {
        let wanted = if kind == JOB { vec![] } else { vec!["Forbidden metadata.annotations[elastic-job]"] };
        assert_eq!(refused(json!({}), kind, &Value::Null, &new), wanted, "{kind:?}");
        let mut old = new.clone();
        old["metadata"]["annotations"] = json!({});
        assert!(refused(closed(), kind, &old, &new).is_empty(), "{kind:?}");
    }
    let head = json!({ "template": template(json!({})) });
    let elastic = object(
        json!({ ELASTIC: "true" }),
        json!({
            "suspend": true, "headGroupSpec": head, "enableInTreeAutoscaling": true,
            "workerGroupSpecs": [{ "groupName": "w", "template": template(json!({})) }],
        }),
    );
    assert_eq!(refused(closed(), RAY, &Value::Null, &elastic), ["Invalid spec.enableInTreeAutoscaling"]);
    let ungated = ["headGroupSpec", "workerGroupSpecs[0]"]
        .map(|group| format!("Invalid spec.{group}.template.spec.schedulingGates"));
    assert_eq!(refused(json!({}), RAY, &Value::Null, &elastic), ungated);
    let Verdict::Change(gated) =
        mutate_or_warn(&site(json!({})), &request(RAY.0, RAY.1, &Value::Null, &elastic))
    else {
        panic!("it is given the gate")
    };
    assert!(refused(json!({}), RAY, &Value::Null, &gated).is_empty());
}

/// Who applies the whole object anew leaves out the gates that it was given.
#[test]
fn only_a_cluster_is_asked_for_its_gates_when_it_is_resized() {
    for (kind, field, wanted) in [
        ("RayCluster", None, 2),
        ("RayJob", Some("rayClusterSpec"), 0),
        ("RayService", Some("rayClusterConfig"), 0),
    ] {
        let of = |workers: i64| {
            let group = json!({ "groupName": "w", "replicas": workers, "template": template(json!({})) });
            let cluster = json!({
                "headGroupSpec": { "template": template(json!({})) }, "workerGroupSpecs": [group],
            });
            let spec = match field {
                Some(field) => json!({ "shutdownAfterJobFinishes": true, field: cluster }),
                None => cluster,
            };
            object(json!({ ELASTIC: "true" }), spec)
        };
        let created = request(RAY.0, kind, &Value::Null, &of(1));
        let Verdict::Change(stored) = mutate_or_warn(&site(json!({})), &created) else {
            panic!("it is given the gate")
        };
        assert!(stored.to_string().contains("schedulingGates"), "{stored}");
        let errors = refused(json!({}), (RAY.0, kind), &stored, &of(2));
        assert_eq!(errors.len(), wanted, "{kind}: {errors:?}");
        if wanted == 0 {
            let resized = request(RAY.0, kind, &stored, &of(2));
            let Verdict::Change(given) = mutate_or_warn(&site(json!({})), &resized) else { panic!("{kind}") };
            assert_eq!(given.to_string().matches("schedulingGates").count(), 2, "{kind}: {given}");
        }
    }
}

#[test]
fn the_topology_of_one_template_is_counted_where_it_can_be_read() {
    let annotations = |pairs: &[(&str, &str)]| -> Value {
        pairs.iter().map(|(key, value)| (format!("kueue.x-k8s.io/podset-{key}"), json!(value))).collect()
    };
    let all = |kind: &str, names: &[&str]| -> Vec<String> {
        let at = |name: &&str| format!("{kind} spec.template.metadata.annotations[podset-{name}]");
        names.iter().map(at).collect()
    };
    let layers = "slice-required-topology-constraints";
    for (pairs, elastic, wanted) in [
        // There are 2 pods. What is wrong otherwise is told first.
        (vec![("slice-size", "3")], false, all("Forbidden", &["slice-size"])),
        (
            vec![("slice-size", "3"), ("slice-required-topology", "rack")],
            false,
            all("Invalid", &["slice-size"]),
        ),
        (vec![("required-topology", "rack"), ("group-name", "g")], false, vec![]),
        (
            vec![(layers, r#"[{"topology":"rack"}]"#)],
            false,
            vec![format!("Invalid spec.template.metadata.annotations[podset-{layers}][0].size")],
        ),
        (vec![(layers, r#"[{"topology":"rack","size":4}]"#)], false, all("Invalid", &[layers])),
        (
            vec![("required-topology", "rack"), ("preferred-topology", "rack")],
            true,
            vec!["Invalid spec.template.metadata.annotations".to_owned()],
        ),
        (
            vec![("required-topology", "rack")],
            true,
            vec!["Forbidden spec.template.metadata.annotations.podset-required-topology".to_owned()],
        ),
    ] {
        let spec = json!({ "suspend": true, "parallelism": 2, "template": template(annotations(&pairs)) });
        let of_job = if elastic { json!({ ELASTIC: "true" }) } else { json!({}) };
        assert_eq!(refused(json!({}), JOB, &Value::Null, &object(of_job, spec)), wanted, "{pairs:?}");
    }
    // Of groups of two with a leader: each template by itself, and together only where both can be read.
    let of_groups = |leader: &[(&str, &str)], worker: &[(&str, &str)]| {
        let [leader, worker] = [leader, worker].map(|pairs| template(annotations(pairs)));
        let template = json!({ "leaderTemplate": leader, "workerTemplate": worker, "size": 3 });
        let new = object(json!({}), json!({ "leaderWorkerTemplate": template }));
        refused(json!({}), GROUPS, &Value::Null, &new)
    };
    let alone = [("required-topology", "rack"), ("group-name", "g")];
    let of_leader =
        "Invalid spec.leaderWorkerTemplate.leaderTemplate.metadata.annotations[podset-group-name]";
    let of_worker = "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations";
    assert_eq!(of_groups(&alone, &[]), [of_leader]);
    assert_eq!(
        of_groups(&alone, &[("unconstrained-topology", "maybe")]),
        [format!("Invalid {of_worker}[podset-unconstrained-topology]")]
    );
    let over = r#"[{"topology":"rack","size":4},{"topology":"host","size":3}]"#;
    let wanted = [
        format!("Invalid {of_worker}[podset-{layers}][1].size"),
        format!("Invalid {of_worker}[podset-{layers}]"),
    ];
    assert_eq!(of_groups(&[], &[(layers, over)]), wanted);
}

#[test]
fn ranks_follow_the_leader_unless_both_are_a_group() {
    let offset = |leader: &Value, worker: &Value| {
        let spec = json!({ "leaderWorkerTemplate": {
            "leaderTemplate": template(leader.clone()), "workerTemplate": template(worker.clone()),
        }});
        let new = object(json!({}), spec);
        let Verdict::Change(changed) =
            mutate_or_warn(&site(json!({})), &request(GROUPS.0, GROUPS.1, &Value::Null, &new))
        else {
            panic!("its templates are marked")
        };
        let at =
            "/spec/leaderWorkerTemplate/workerTemplate/metadata/annotations/kueue.x-k8s.io~1pod-index-offset";
        changed.pointer(at).cloned()
    };
    let grouped = json!({ "kueue.x-k8s.io/podset-group-name": "g" });
    assert_eq!(offset(&json!({}), &json!({})), Some(json!("1")));
    assert_eq!(offset(&json!({}), &grouped), None);
    assert_eq!(offset(&grouped, &json!({})), Some(json!("1")), "it is the workers that say so");
}

/// Whoever made the job: its pods are placed in any case.
#[test]
fn ranks_of_an_mpi_job_follow_its_launcher() {
    let owner = json!([{ "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w", "uid": "w",
        "controller": true }]);
    for owners in [json!([]), owner] {
        let role = || json!({ "replicas": 1, "template": template(json!({})) });
        let mut new = object(
            json!({}),
            json!({ "runLauncherAsWorker": true, "mpiReplicaSpecs": { "Launcher": role(), "Worker": role() } }),
        );
        new["metadata"]["ownerReferences"] = owners.clone();
        let asked = request("kubeflow.org", "MPIJob", &Value::Null, &new);
        let Verdict::Change(changed) = mutate_or_warn(&site(json!({})), &asked) else { panic!("{owners}") };
        let at =
            "/spec/mpiReplicaSpecs/Worker/template/metadata/annotations/kueue.x-k8s.io~1pod-index-offset";
        assert_eq!(changed.pointer(at), Some(&json!("1")), "{owners}");
        assert_eq!(changed.pointer("/spec/runPolicy/suspend").is_some(), owners == json!([]), "{owners}");
    }
}

#[test]
fn what_was_admitted_is_compared_by_its_meaning() {
    let groups = |cpu: &str| {
        let mut template = template(json!({}));
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        object(json!({}), json!({ "leaderWorkerTemplate": { "workerTemplate": template } }))
    };
    assert!(refused(json!({}), GROUPS, &groups("1"), &groups("1000m")).is_empty());
    assert_eq!(
        refused(json!({}), GROUPS, &groups("1"), &groups("1100m")),
        ["Invalid spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].resources.requests"]
    );
    let job = |says: &str| {
        let annotations = json!({ "kueue.x-k8s.io/job-completions-equal-parallelism": says });
        object(annotations, json!({ "completionMode": "Indexed", "template": template(json!({})) }))
    };
    assert!(refused(json!({}), JOB, &job("true"), &job("T")).is_empty());
    let at = "Forbidden metadata.annotations[job-completions-equal-parallelism]";
    assert_eq!(refused(json!({}), JOB, &job("1"), &job("false")), [at]);
}

#[test]
fn what_means_the_same_is_no_change_of_a_template() {
    let with = |at: &str, value: Value| {
        let mut template = template(json!({}));
        template["spec"]["tolerations"] = json!([{ "key": "gpu", "operator": "Exists" }]);
        crate::webhook::jobs::set_existing_parent(&mut template["spec"], at, value);
        object(json!({}), json!({ "leaderWorkerTemplate": { "workerTemplate": template } }))
    };
    let changed = |old: &Value, new: &Value| {
        let prefix = "Invalid spec.leaderWorkerTemplate.workerTemplate.spec.";
        let refused = refused(json!({}), GROUPS, old, new);
        refused.into_iter().map(|one| one.replace(prefix, "")).collect::<Vec<_>>()
    };
    let amounts = |memory: &str| json!([{ "name": "c", "resources": { "requests": { "memory": memory } } }]);
    let toleration = |value: Value| json!([{ "key": "gpu", "operator": "Exists", "value": value }]);
    let term = |selector: Value| {
        let term = json!({ "topologyKey": "zone", "labelSelector": selector });
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
    };
    for (at, old, new, wanted) in [
        ("/containers", amounts("1Gi"), amounts("1073741824"), None),
        ("/containers", amounts("1Gi"), amounts("1073741825"), Some("containers[0].resources.requests")),
        ("/containers", amounts("1Gi"), amounts("much"), Some("containers[0].resources.requests")),
        ("/overhead", json!({ "cpu": "1000m" }), json!({ "cpu": "1" }), None),
        ("/overhead", json!({ "cpu": "0" }), json!({}), Some("overhead")),
        ("/nodeSelector", json!({}), Value::Null, None),
        ("/nodeSelector", json!({ "a": "" }), json!({}), Some("nodeSelector")),
        ("/nodeSelector", json!({ "a": "1" }), json!({ "a": "1000m" }), Some("nodeSelector")),
        ("/tolerations", json!([]), Value::Null, None),
        ("/tolerations", toleration(json!("")), toleration(Value::Null), None),
        ("/tolerations", toleration(json!("x")), toleration(Value::Null), Some("tolerations")),
        ("/runtimeClassName", json!(""), Value::Null, None),
        ("/affinity", term(json!({ "matchLabels": {} })), term(json!({})), None),
        ("/affinity", term(json!({})), term(Value::Null), Some("affinity")),
    ] {
        let (old, new) = (with(at, old), with(at, new));
        let wanted: Vec<_> = wanted.into_iter().collect();
        assert_eq!(changed(&old, &new), wanted, "{old} {new}");
        assert_eq!(changed(&new, &old), wanted, "{new} {old}");
    }
}

#[test]
fn what_is_being_deleted_may_change() {
    let set = |replicas: i64, deleted: Value| {
        let mut set = object(json!({}), json!({ "replicas": replicas, "template": template(json!({})) }));
        set["metadata"]["deletionTimestamp"] = deleted;
        set
    };
    let at = |deleted: &Value| {
        refused(json!({}), ("apps", "StatefulSet"), &set(3, Value::Null), &set(1, deleted.clone()))
    };
    assert_eq!(at(&Value::Null), ["Invalid spec.replicas"]);
    assert!(at(&json!("2026-01-01T00:00:00Z")).is_empty());
}

#[test]
fn what_nobody_looked_at_is_told_when_it_joins_a_queue() {
    let job = |queue: &str| {
        let placed = json!({
            "kueue.x-k8s.io/podset-required-topology": "rack",
            "kueue.x-k8s.io/podset-preferred-topology": "rack",
        });
        let mut job = object(json!({}), json!({ "suspend": true, "template": template(placed) }));
        job["metadata"]["labels"] = json!({ QUEUE: queue, "kueue.x-k8s.io/max-exec-time-seconds": "soon" });
        job
    };
    let told =
        ["Invalid metadata.labels[max-exec-time-seconds]", "Invalid spec.template.metadata.annotations"];
    assert_eq!(refused(json!({}), JOB, &Value::Null, &job("q")), told);
    assert_eq!(refused(json!({}), JOB, &job(""), &job("q")), told);
    assert!(refused(json!({}), JOB, &job("q"), &job("r")).is_empty());
}

#[test]
fn a_pod_of_what_is_managed_need_not_say_that_it_is() {
    let pod = |annotations: Value, owner: &str| {
        let mut pod = object(annotations, template(json!({}))["spec"].clone());
        pod["metadata"]["labels"] = json!({ "kueue.x-k8s.io/managed": "true" });
        pod["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "batch/v1", "kind": owner, "name": "o", "uid": "o", "controller": true }]);
        pod
    };
    let warns = |old: &Value, new: &Value| {
        let verdict = validate_any(&site(json!({})), &request(POD.0, POD.1, old, new));
        matches!(verdict, Verdict::Warn(_))
    };
    let of_job = pod(json!({}), "Job");
    assert!(warns(&Value::Null, &of_job) && warns(&of_job, &of_job));
    assert!(!warns(&Value::Null, &pod(json!({}), "CronJob")));
    let by_parent = pod(json!({ "kueue.x-k8s.io/pod-suspending-parent": "job" }), "Job");
    assert!(!warns(&by_parent, &by_parent));
}

#[test]
fn a_pod_keeps_its_queue_where_it_would_be_given_one() {
    let pod = |namespace: &str, queue: &str| {
        let mut pod = object(json!({}), template(json!({}))["spec"].clone());
        pod["metadata"]["namespace"] = json!(namespace);
        pod["metadata"]["labels"][QUEUE] = json!(queue);
        pod["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
        pod
    };
    let loses = |namespace: &str| refused(json!({}), POD, &pod(namespace, "q"), &pod(namespace, ""));
    assert_eq!(loses("defaulted"), ["Invalid metadata.labels[queue-name]"]);
    assert!(loses("team").is_empty());
    let mut placed = pod("team", "q");
    placed["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/podset-slice-size": "x" });
    let topology = closed_with("TopologyAwareScheduling").chain(["TopologyAwareScheduling"]);
    let closed = topology.map(|gate| (gate, json!(false))).collect();
    assert_eq!(refused(closed, POD, &Value::Null, &placed).len(), 2, "as Kueue, whatever the gate");
}

#[test]
fn a_train_job_has_room_for_what_an_admission_adds_from_the_start() {
    const TRAIN: (&str, &str) = ("trainer.kubeflow.org", "TrainJob");
    let created = |spec: Value| {
        let new = object(json!({}), spec);
        match mutate_or_warn(&site(json!({})), &request(TRAIN.0, TRAIN.1, &Value::Null, &new)) {
            Verdict::Change(changed) => changed["spec"].clone(),
            other => panic!("{other:?}"),
        }
    };
    let empty = json!({
        "manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": { "template": { "spec": {} } },
    });
    let other = json!({ "manager": "team.example.com/queue" });
    for (patches, wanted) in [
        (json!([]), json!([empty])),
        (json!([other]), json!([other, empty])),
        (json!([empty, other]), json!([empty, other])),
    ] {
        let spec = created(json!({ "runtimePatches": patches }));
        assert_eq!(spec, json!({ "runtimePatches": wanted, "suspend": true }));
    }
}
