//! What arrives at the webhooks need not come from an API server: whatever it is, it gets an answer that says what is
//! wrong with it, and the next one is answered as if nothing had been.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use admission_controller::config::Configuration;
use admission_controller::surroundings::Surroundings;
use admission_controller::webhook::router;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use kit::http::{BODY_LIMIT, bounded};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const QUEUES: &str = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
const WORKLOADS: &str = "/validate-kueue-x-k8s-io-v1beta2-workload";
const ADMISSION: [&str; 13] = [
    "/mutate-pod",
    "/validate-pod",
    "/mutate-pod-owner",
    "/validate-pod-owner",
    "/mutate-job",
    "/validate-job",
    QUEUES,
    "/validate-kueue-x-k8s-io-v1beta2-cohort",
    "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
    WORKLOADS,
    "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
    "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
    "/mutate-kueue-x-k8s-io-v1beta2-workload",
];

fn service() -> Router {
    let (_, surroundings) = tokio::sync::watch::channel(Surroundings::default());
    bounded(router(Arc::new(Configuration::default()), surroundings))
}

async fn ask(service: &Router, path: &str, body: Vec<u8>) -> (u16, String) {
    let answer = service.clone().oneshot(Request::post(path).body(Body::from(body)).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    (status, String::from_utf8(to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap())
}

fn review(kind: &str, object: Value) -> Value {
    let group = if kind == "PyTorchJob" { "kubeflow.org" } else { "kueue.x-k8s.io" };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "team", "dryRun": true,
            "kind": { "group": group, "version": "v1", "kind": kind }, "object": object, "oldObject": null,
        },
    })
}

fn job() -> Value {
    json!({
        "metadata": { "name": "j", "labels": { "kueue.x-k8s.io/queue-name": "q" } },
        "spec": { "pytorchReplicaSpecs": { "Worker": { "template": { "spec": { "containers": [] } } } } },
    })
}

fn with(pointer: &str, value: Value) -> Vec<u8> {
    let mut review = review("PyTorchJob", job());
    *review.pointer_mut(pointer).unwrap() = value;
    review.to_string().into_bytes()
}

fn deep() -> Vec<u8> {
    deep_at(review("PyTorchJob", json!("HERE")))
}

/// With lists in lists at the place that is marked, more than a stack would hold.
fn deep_at(review: Value) -> Vec<u8> {
    let depth = 100_000;
    let object = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    review.to_string().replace("\"HERE\"", &object).into_bytes()
}

/// What is only judged is read into its type, which has no depth to speak of; what may be changed is read as a tree.
#[tokio::test(start_paused = true)]
async fn however_deep_an_object_is_it_is_answered() {
    let service = service();
    for path in ADMISSION {
        let is_judged = path.starts_with("/validate-kueue-x-k8s-io");
        let (status, text) = ask(&service, path, deep()).await;
        match is_judged {
            true => assert_eq!(status, 200, "{path}: {text}"),
            false => assert!(status == 400 && text.contains("recursion limit exceeded"), "{path}: {text}"),
        }
    }
    for (spec, words) in [
        (json!({ "priority": "HERE", "podSets": [] }), "the Workload cannot be read"),
        (json!({ "unknown": "HERE", "podSets": [] }), "\"allowed\":true"),
        (
            json!({ "podSets": [{ "name": "a", "count": 1, "template": { "spec": "HERE" } }] }),
            "cannot be read",
        ),
    ] {
        let mut review = review("Workload", json!({ "metadata": { "name": "w" }, "spec": spec }));
        review["request"]["kind"]["group"] = json!("kueue.x-k8s.io");
        let (status, text) =
            ask(&service, "/validate-kueue-x-k8s-io-v1beta2-workload", deep_at(review)).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_admission_review_is_refused_and_says_why() {
    let service = service();
    for path in ADMISSION {
        for (body, status, words) in [
            (Vec::new(), 400, "the body is no JSON"),
            (b"{\"kind\":".to_vec(), 400, "the body is no JSON"),
            (b"\xff\xfe{}".to_vec(), 400, "the body is no JSON"),
            (b"{\"kind\":\"\xc3\x28\"}".to_vec(), 400, "the body is no JSON"),
            (b"null".to_vec(), 400, "no AdmissionReview of admission.k8s.io/v1"),
            (b"[]".to_vec(), 400, "no AdmissionReview of admission.k8s.io/v1"),
            (b"7".to_vec(), 400, "no AdmissionReview of admission.k8s.io/v1"),
            (with("/kind", json!("ConversionReview")), 400, "no AdmissionReview of admission.k8s.io/v1"),
            (with("/apiVersion", json!("admission.k8s.io/v1beta1")), 400, "no AdmissionReview"),
            (with("/request", Value::Null), 400, "no request.uid"),
            (with("/request", json!("text")), 400, "no request.uid"),
            (with("/request/uid", json!("")), 400, "no request.uid"),
            (with("/request/uid", json!(7)), 400, "no request.uid"),
            (vec![b' '; BODY_LIMIT + 1], 413, "larger than 7340032 bytes"),
        ] {
            let (found, text) = ask(&service, path, body).await;
            assert_eq!(found, status, "{path}: {text}");
            assert!(text.contains(words), "{path}: {text:?} does not say {words:?}");
        }
        let (status, text) = ask(&service, path, review("PyTorchJob", job()).to_string().into_bytes()).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["response"]["uid"]), (200, &json!("u")));
        assert_eq!(answer["response"]["allowed"], true, "{text}");
    }
}

/// Two objects of the largest size an API server takes fit into the review of an update.
#[tokio::test(start_paused = true)]
async fn the_review_of_the_largest_update_is_answered() {
    let mut large = job();
    large["metadata"]["annotations"] = json!({ "notes": "x".repeat(3_100_000) });
    let mut update = review("PyTorchJob", large.clone());
    update["request"]["operation"] = json!("UPDATE");
    update["request"]["oldObject"] = large;
    let body = update.to_string().into_bytes();
    assert!(body.len() > 2 * 3_000_000);
    let (status, text) = ask(&service(), "/validate-job", body).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\"allowed\":true"), "{text}");
}

/// An object in a review is somebody's, who is told what is wrong with it; an object of another kind is nobody's business here.
#[tokio::test(start_paused = true)]
async fn odd_objects_are_judged_by_their_field_or_left_to_the_schema() {
    let service = service();
    for (path, kind, object, allowed, words) in [
        ("/mutate-job", "PyTorchJob", json!("text"), true, ""),
        ("/mutate-job", "PyTorchJob", Value::Null, true, ""),
        ("/mutate-job", "PyTorchJob", json!({ "metadata": 7, "spec": [] }), true, ""),
        ("/mutate-job", "Unicorn", job(), true, ""),
        ("/validate-job", "PyTorchJob", json!({ "metadata": { "labels": { "a": 7 } } }), true, ""),
        (QUEUES, "Unicorn", json!({}), true, ""),
        (QUEUES, "ClusterQueue", json!("text"), false, "the ClusterQueue cannot be read"),
        (QUEUES, "ClusterQueue", Value::Null, false, "the ClusterQueue cannot be read"),
        (QUEUES, "ClusterQueue", json!({ "spec": { "resourceGroups": 7 } }), false, "cannot be read"),
        (
            WORKLOADS,
            "Workload",
            json!({ "spec": { "podSets": [{ "name": "a", "count": 1e99, "template": {} }] } }),
            false,
            "the Workload cannot be read",
        ),
    ] {
        let (status, text) = ask(&service, path, review(kind, object).to_string().into_bytes()).await;
        assert_eq!(status, 200, "{path} {kind}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["response"]["allowed"], allowed, "{path} {kind}: {text}");
        assert!(text.contains(words), "{path} {kind}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_conversion_review_fails_with_its_reason() {
    let service = service();
    let convert = crds::names::trireme::CONVERT_PATH;
    let review = |desired: &str, object: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": { "uid": "u", "desiredAPIVersion": desired, "objects": [object] },
        })
    };
    let queue =
        json!({ "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": { "name": "q" } });
    let text = |value: Value| value.to_string().into_bytes();
    for (body, words) in [
        (b"{".to_vec(), "not a ConversionReview"),
        (b"\xff".to_vec(), "not a ConversionReview"),
        (deep(), "not a ConversionReview"),
        (
            text(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview" })),
            "with a request",
        ),
        (text(review("kueue.x-k8s.io/v1", queue.clone())), "objects[0] (LocalQueue q)"),
        (text(review("kueue.x-k8s.io/v1beta2", json!({ "kind": "LocalQueue" }))), "objects[0]"),
        (text(review("kueue.x-k8s.io/v1beta2", json!("text"))), "not a ConversionReview"),
    ] {
        let (status, text) = ask(&service, convert, body).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["response"]["result"]["status"]), (200, &json!("Failed")), "{text}");
        assert!(text.contains(words), "{text} does not say {words:?}");
    }
    // A list may be longer than any object.
    let (status, words) = ask(&service, convert, vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!((status, words.contains("not a ConversionReview")), (200, true), "{words}");
    let (status, words) = ask(&service, convert, vec![b' '; (64 << 20) + 1]).await;
    assert_eq!((status, words.contains("larger than 67108864")), (413, true), "{words}");
    let (_, text) = ask(&service, convert, text(review("kueue.x-k8s.io/v1beta2", queue))).await;
    assert!(text.contains("\"Success\"") && text.contains("kueue.x-k8s.io/v1beta2"), "{text}");
}

/// Whatever the operation and the part of the object, and however often a key stands there, there is one answer; and nothing is done
/// by it that a dry run would have to leave undone.
#[tokio::test(start_paused = true)]
async fn odd_requests_are_answered() {
    let service = service();
    let request = |change: &dyn Fn(&mut Value)| {
        let mut review = review("PyTorchJob", job());
        change(&mut review["request"]);
        review.to_string().into_bytes()
    };
    for path in ADMISSION {
        for body in [
            request(&|request| request["operation"] = json!("DELETE")),
            request(&|request| {
                request["operation"] = json!("DELETE");
                request["oldObject"] = request["object"].take();
            }),
            request(&|request| request["operation"] = json!("CONNECT")),
            request(&|request| request["operation"] = json!("")),
            request(&|request| request["operation"] = json!(7)),
            request(&|request| request["operation"] = json!("UPDATE")),
            request(&|request| request["subResource"] = json!("scale")),
            request(&|request| request["subResource"] = json!("status")),
            request(&|request| request["subResource"] = json!("ephemeralcontainers")),
            request(&|request| request["subResource"] = json!("eviction")),
            request(&|request| request["subResource"] = json!("binding")),
            request(&|request| request["kind"] = json!("PyTorchJob")),
            request(&|request| request["namespace"] = Value::Null),
            request(&|request| request["dryRun"] = json!("yes")),
            String::from_utf8(request(&|_| ()))
                .unwrap()
                .replacen("\"uid\":", "\"uid\":\"first\",\"uid\":", 1)
                .into_bytes(),
        ] {
            let (status, text) = ask(&service, path, body.clone()).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(status, 200, "{path}: {text}");
            assert_eq!(answer["response"]["uid"], "u", "{path}: {text}");
            assert_eq!(
                answer["response"]["allowed"],
                true,
                "{path} {}: {text}",
                String::from_utf8_lossy(&body)
            );
        }
        let dry = ask(&service, path, request(&|_| ())).await;
        let real = ask(&service, path, request(&|request| request["dryRun"] = json!(false))).await;
        assert_eq!(dry, real, "{path}");
    }
}

/// Kueue's own kinds, whatever of a review is missing or something else. Where nobody can read what was stored, what is to be stored
/// is judged by itself; where that cannot be read, the answer says so.
#[tokio::test(start_paused = true)]
async fn odd_requests_about_kueues_own_kinds_are_answered() {
    const JUDGED: [&str; 4] = ["ClusterQueue", "Cohort", "ResourceFlavor", "Workload"];
    const OTHERS: [&str; 7] = [
        "AdmissionCheck",
        "LocalQueue",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
        "Topology",
        "WorkloadPriorityClass",
    ];
    let service = service();
    let request = |kind: &str, operation: &str, change: &[(&str, Option<Value>)]| {
        let mut review = review(kind, json!({ "metadata": { "name": "x" } }));
        let request = review["request"].as_object_mut().unwrap();
        request.insert("operation".to_owned(), json!(operation));
        for (field, value) in change {
            match value {
                Some(value) => request.insert((*field).to_owned(), value.clone()),
                None => request.remove(*field),
            };
        }
        review.to_string().into_bytes()
    };
    let stored = json!({ "metadata": { "name": "x", "resourceVersion": "1" } });
    let status = ("subResource", Some(json!("status")));
    for (operation, change, is_whole) in [
        ("UPDATE", vec![("oldObject", Some(stored.clone()))], true),
        ("UPDATE", vec![("oldObject", Some(Value::Null))], true),
        ("UPDATE", vec![("oldObject", None)], true),
        ("UPDATE", vec![("oldObject", Some(json!("text")))], true),
        ("UPDATE", vec![("oldObject", Some(json!(7)))], true),
        ("UPDATE", vec![("oldObject", Some(json!({ "spec": [] })))], true),
        ("UPDATE", vec![status.clone(), ("oldObject", Some(stored.clone()))], true),
        ("UPDATE", vec![status.clone(), ("oldObject", None)], true),
        ("UPDATE", vec![("object", None), ("oldObject", Some(stored.clone()))], false),
        ("UPDATE", vec![("object", Some(Value::Null)), ("oldObject", Some(stored.clone()))], false),
        ("UPDATE", vec![("object", Some(json!("text"))), ("oldObject", Some(stored.clone()))], false),
        ("UPDATE", vec![status, ("object", Some(json!({ "metadata": 7 })))], false),
        ("DELETE", vec![("object", None), ("oldObject", Some(stored))], true),
        ("DELETE", vec![("object", None), ("oldObject", None)], true),
        ("PATCH", vec![], true),
        ("", vec![("object", None)], true),
    ] {
        for (kind, path) in JUDGED.iter().chain(&OTHERS).flat_map(|kind| ADMISSION.map(|path| (*kind, path)))
        {
            let is_read = path.starts_with("/validate-kueue-x-k8s-io") && JUDGED.contains(&kind);
            let (code, text) = ask(&service, path, request(kind, operation, &change)).await;
            let case = format!("{path} {kind} {operation} {change:?}: {text}");
            assert_eq!(code, 200, "{case}");
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["response"]["uid"], "u", "{case}");
            assert_eq!(answer["response"]["allowed"], is_whole || !is_read, "{case}");
            assert_eq!(text.contains("cannot be read"), is_read && !is_whole, "{case}");
        }
    }
}

/// Nothing but the body says what it is.
#[tokio::test(start_paused = true)]
async fn the_type_that_a_body_is_said_to_be_of_does_not_matter() {
    let service = service();
    let body = || review("ClusterQueue", json!({ "spec": { "resourceGroups": 7 } })).to_string().into_bytes();
    for path in ADMISSION {
        let wanted = ask(&service, path, body()).await;
        for name in ["application/json", "text/plain", "application/yaml", "multipart/form-data", "nonsense"]
        {
            let request = Request::post(path).header("content-type", name).body(Body::from(body())).unwrap();
            let answer = service.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            assert_eq!((status, &*text), (wanted.0, wanted.1.as_bytes()), "{path} {name}");
        }
    }
}
