use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;

use super::*;

/// A server that answers everything alike and remembers what it was asked.
fn server(code: u16, answer: Value) -> (Api<Pod>, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (log, answer) = (log.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let kind = head.headers["content-type"].to_str().unwrap().to_owned();
            log.lock().unwrap().push(format!("{} {} {kind} {text}", head.method, head.uri));
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    (Api::namespaced(kube::Client::new(service, "team"), "team"), seen)
}

fn target() -> Target {
    Target::new("p", "u-1").at("41")
}

#[tokio::test]
async fn requests_carry_uid_and_resource_version() {
    let (api, seen) =
        server(200, json!({"metadata": {"uid": "u-1", "resourceVersion": "42", "generation": 3}}));
    let written: Written =
        merge(&api, &target(), json!({"status": {"phase": "x"}}), Subresource::Status).await.unwrap();
    assert_eq!(written, Written { uid: "u-1".into(), resource_version: "42".into(), generation: 3 });
    delete(&api, &target(), Some(0)).await.unwrap();
    bind(&api, &target(), "n1", &BTreeMap::from([("a/b".into(), "c".into())])).await.unwrap();
    create::<_, Written>(&api, &json!({"kind": "Pod"})).await.unwrap();
    let base = "/api/v1/namespaces/team/pods";
    let expected = [
        format!(
            r#"PATCH {base}/p/status?fieldManager=trireme application/merge-patch+json {{"metadata":{{"resourceVersion":"41","uid":"u-1"}},"status":{{"phase":"x"}}}}"#
        ),
        format!(
            r#"DELETE {base}/p application/json {{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{{"resourceVersion":"41","uid":"u-1"}},"propagationPolicy":"Background"}}"#
        ),
        format!(
            r#"POST {base}/p/binding application/json {{"apiVersion":"v1","kind":"Binding","metadata":{{"annotations":{{"a/b":"c"}},"name":"p","resourceVersion":"41","uid":"u-1"}},"target":{{"apiVersion":"v1","kind":"Node","name":"n1"}}}}"#
        ),
        format!(r#"POST {base}?fieldManager=trireme application/json {{"kind":"Pod"}}"#),
    ];
    // serde_json keeps or sorts keys depending on another crate's features: compare as values.
    let normal = |line: &str| {
        let (head, body) = line.split_at(line.find('{').unwrap());
        (head.to_owned(), serde_json::from_str::<Value>(body).unwrap())
    };
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|line| normal(line)).collect();
    assert_eq!(seen, expected.iter().map(|line| normal(line)).collect::<Vec<_>>());
}

#[tokio::test]
async fn answers_are_sorted_by_what_to_do_next() {
    let uid_differs = "Precondition failed: UID in precondition: a, UID in object meta: b";
    let uid_deleted = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated";
    let cases = [
        (404, json!({"message": "pods \"p\" not found"}), "gone"),
        (404, json!("404 page not found"), "gone"),
        (409, json!({"message": uid_differs}), "gone"),
        (409, json!({"message": uid_deleted}), "gone"),
        (409, json!({"message": "the object has been modified"}), "conflict"),
        (409, json!({"message": "pod p is already assigned to node \"n\""}), "conflict"),
        (409, json!({"reason": "AlreadyExists", "message": "already exists"}), "conflict"),
        (422, json!({"details": {"causes": [{"field": "metadata.uid"}]}}), "gone"),
        (422, json!({"details": {"causes": [{"field": "spec.parallelism"}]}}), "refused"),
        (400, json!({}), "refused"),
        (403, json!({"reason": "Forbidden"}), "refused"),
        (413, json!({}), "refused"),
        (401, json!({}), "unavailable not applied"),
        (429, json!({"details": {"retryAfterSeconds": 3}}), "unavailable not applied after 3 s"),
        (408, json!({}), "unavailable maybe"),
        (500, json!({"message": "failed calling webhook"}), "unavailable maybe"),
        (500, json!({"message": "etcdserver: request is too large"}), "refused"),
        (503, json!("upstream connect error"), "unavailable maybe"),
        (504, json!({"details": {"retryAfterSeconds": 1}}), "unavailable maybe after 1 s"),
    ];
    for (code, mut answer, expected) in cases {
        if let Some(object) = answer.as_object_mut() {
            object.insert("kind".into(), json!("Status"));
            object.insert("code".into(), json!(code));
        }
        let (api, _) = server(code, answer.clone());
        let error = merge::<_, Written>(&api, &target(), json!({}), Subresource::Main).await.unwrap_err();
        let found = match &error {
            WriteError::Gone => "gone".into(),
            WriteError::Conflict(_) => "conflict".into(),
            WriteError::Refused(_) => "refused".into(),
            WriteError::Unavailable { may_have_applied, retry_after, .. } => {
                let applied = if *may_have_applied { "maybe" } else { "not applied" };
                let after =
                    retry_after.map(|wait| format!(" after {} s", wait.as_secs())).unwrap_or_default();
                format!("unavailable {applied}{after}")
            }
        };
        assert_eq!(found, expected, "{code} {answer}");
        assert_eq!(error.is_transient(), expected.starts_with("unavailable"));
    }
}

#[tokio::test]
async fn a_connection_that_was_never_made_applied_nothing() {
    let connector = hyper_util::client::legacy::connect::HttpConnector::new();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build::<_, kube::client::Body>(connector);
    // Port 1 on loopback: nobody listens there.
    let service = tower::ServiceBuilder::new()
        .map_request(|mut request: http::Request<kube::client::Body>| {
            *request.uri_mut() = format!("http://127.0.0.1:1{}", request.uri()).parse().unwrap();
            request
        })
        .service(client);
    let api: Api<Pod> = Api::namespaced(kube::Client::new(service, "team"), "team");
    let error = merge::<_, Written>(&api, &target(), json!({}), Subresource::Main).await.unwrap_err();
    assert!(matches!(error, WriteError::Unavailable { may_have_applied: false, .. }), "{error:?}");
}
