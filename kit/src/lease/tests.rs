use std::convert::Infallible;
use std::sync::Mutex;

use kube::client::Body;

use super::*;
use crate::Identity;
use crate::test_support::context_with;

/// A server that keeps one object, checks resourceVersions and can be cut off.
#[derive(Default)]
struct Store {
    object: Option<Value>,
    version: u64,
    cut: bool,
}

fn client(store: &Arc<Mutex<Store>>) -> kube::Client {
    let store = store.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let store = store.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await.expect("a body").to_bytes();
            let body: Option<Value> = serde_json::from_slice(&bytes).ok();
            let (code, answer) = answer(&mut store.lock().expect("store"), &head.method, body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).expect("response"))
        }
    });
    kube::Client::new(service, "default")
}

fn answer(store: &mut Store, method: &http::Method, body: Option<Value>) -> (u16, Value) {
    if store.cut {
        return (503, json!({"kind": "Status", "code": 503}));
    }
    let mut body = match (method.as_str(), store.object.clone(), body) {
        ("GET", Some(object), _) => return (200, object),
        ("GET" | "PATCH", None, _) => return (404, json!({"kind": "Status", "code": 404})),
        ("POST", None, Some(body)) => body,
        ("PATCH", Some(object), Some(body)) => {
            if object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                return (409, json!({"kind": "Status", "code": 409}));
            }
            let mut object = object;
            for (key, value) in body["spec"].as_object().expect("a spec") {
                object["spec"][key] = value.clone();
            }
            object
        }
        _ => return (409, json!({"kind": "Status", "code": 409})),
    };
    store.version += 1;
    body["metadata"]["resourceVersion"] = json!(store.version.to_string());
    body["metadata"]["uid"] = json!("u");
    store.object = Some(body.clone());
    (200, body)
}

fn candidate(store: &Arc<Mutex<Store>>, name: &str) -> (Context, Lease) {
    let mut ctx = context_with(client(store));
    ctx.identity = Identity::new(name);
    let lease = Lease::campaign(&ctx, "ns", "l", Terms::default());
    (ctx, lease)
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_at_once_and_a_crash_after_the_lease() {
    let store = Arc::default();
    let (ctx_a, a) = candidate(&store, "a");
    let mut leads_a = a.leadership();
    assert!(leads_a.changed().await);
    assert_eq!(leads_a.term(), Some(0));
    let (ctx_b, b) = candidate(&store, "b");
    let mut leads_b = b.leadership();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(leads_a.may_write() && !leads_b.may_write());

    a.release().await;
    assert!(!leads_a.may_write());
    let before = ctx_a.clock.now();
    assert!(leads_b.changed().await);
    assert!(ctx_a.clock.now().duration_since(before) <= jiff::SignedDuration::from_millis(2_300));
    assert_eq!(leads_b.term(), Some(1));

    let (ctx_c, c) = candidate(&store, "c");
    tokio::time::sleep(Duration::from_secs(5)).await;
    ctx_b.tasks.kill();
    let before = ctx_c.clock.now();
    assert!(c.leadership().changed().await);
    let waited = ctx_c.clock.now().duration_since(before).as_secs_f64();
    assert!((15.0..=21.5).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_cut_off_falls_silent_by_itself_and_leads_again_if_nobody_took_over() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let (ctx, lease) = candidate(&store, "a");
    let mut leads = lease.leadership();
    assert!(leads.changed().await);
    store.lock().expect("store").cut = true;
    let before = ctx.clock.now();
    assert!(!leads.changed().await);
    let waited = ctx.clock.now().duration_since(before).as_secs_f64();
    assert!((7.9..=10.1).contains(&waited), "{waited}");
    store.lock().expect("store").cut = false;
    assert!(leads.changed().await);
}

/// Whoever saw that it had run out believes that it is lost, and must hear that it is not.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_comes_too_late_begins_another_term() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let (_ctx, lease) = candidate(&store, "a");
    let mut leads = lease.leadership();
    assert!(leads.changed().await);
    let term = leads.term();
    store.lock().expect("store").cut = true;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!leads.may_write());
    store.lock().expect("store").cut = false;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(leads.may_write() && leads.term() > term);
    assert!(!leads.changed().await);
    assert!(leads.changed().await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_makes_no_second_leader() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let (_ctx_a, a) = candidate(&store, "a");
    assert!(a.leadership().changed().await);
    let (_ctx_b, b) = candidate(&store, "b");
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        store.lock().expect("store").object = None;
        for _ in 0..250 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!(a.leadership().may_write() && b.leadership().may_write()));
        }
        assert!(a.leadership().may_write(), "who held it makes it again");
    }
}

#[tokio::test(start_paused = true)]
async fn who_looks_late_hears_of_the_end_of_a_term_before_the_next_one() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let (_ctx, lease) = candidate(&store, "a");
    let mut leads = lease.leadership();
    assert!(leads.changed().await);
    for holder in ["another", ""] {
        {
            let mut store = store.lock().expect("store");
            store.version += 1;
            let version = store.version.to_string();
            let object = store.object.as_mut().expect("a lease");
            object["metadata"]["resourceVersion"] = json!(version);
            object["spec"]["holderIdentity"] = json!(holder);
            object["spec"]["leaseTransitions"] = json!(1);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(leads.term(), Some(2));
    assert!(!leads.changed().await);
    assert!(leads.changed().await);
}
