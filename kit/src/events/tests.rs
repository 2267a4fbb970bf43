use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;

use super::merge::MAX_REMEMBERED;
use super::*;
use crate::test_support::context_with;
use crate::writes::always;

fn event(uid: &str, note: &str) -> Event {
    Event {
        regarding: Regarding {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "team".into(),
            name: "p".into(),
            uid: uid.into(),
        },
        severity: Severity::Warning,
        reason: "FailedScheduling".into(),
        note: note.into(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_same_again_counts_up_within_the_window() {
    let mut merger = Merger::new(0xfffffffe);
    let Verdict::First { name, event: first } = merger.take(at(0x10), event("u", "a")) else {
        panic!("not first")
    };
    assert_eq!(name, "p.10ffffffff");
    merger.written(&first, Some("e1".into()));
    assert!(!merger.has_repeats());
    assert_eq!(merger.take(at(20), event("u", "a")), Verdict::Counted);
    assert_eq!(merger.take(at(30), event("u", "a")), Verdict::Counted);
    let repeat = Repeat { name, uid: "e1".into(), event: first, count: 3, last: at(30) };
    assert_eq!(merger.repeats(at(30)), [repeat]);
    assert_eq!(merger.repeats(at(40)), []);
    let later = merger.take(at(30 + 360), event("u", "a"));
    assert!(matches!(later, Verdict::First { ref name, .. } if name == "p.18600000000"), "{later:?}");
}

#[test]
fn an_object_that_talks_too_much_is_limited_and_others_are_not() {
    let mut merger = Merger::new(0);
    let first = |merger: &mut Merger, second, uid: &str, note: usize| {
        matches!(merger.take(at(second), event(uid, &note.to_string())), Verdict::First { .. })
    };
    let written = (0..100).filter(|note| first(&mut merger, 0, "loud", *note)).count();
    assert_eq!(written, 25);
    assert!(first(&mut merger, 0, "quiet", 0));
    assert!(!first(&mut merger, 299, "loud", 100));
    assert!(first(&mut merger, 300, "loud", 100));
    assert!(!first(&mut merger, 301, "loud", 101));
    let other = Event { reason: "Scheduled".into(), ..event("loud", "") };
    assert!(matches!(merger.take(at(301), other), Verdict::First { .. }), "of another kind");
}

#[test]
fn memory_is_bounded() {
    let mut merger = Merger::new(0);
    for i in 0..10_000 {
        merger.take(at(i / 50), event(&i.to_string(), ""));
        let (events, sources) = merger.remembered();
        assert!(events <= MAX_REMEMBERED && sources <= MAX_REMEMBERED, "{events} events, {sources} sources");
    }
    assert!(merger.repeats(at(200)).is_empty());
    assert!(matches!(merger.take(at(200), event("9999", "")), Verdict::Counted));
}

#[tokio::test(start_paused = true)]
async fn one_create_and_one_patch_for_many_repeats_and_none_when_closed() {
    let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let log = seen.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap();
            log.lock().unwrap().push((format!("{} {}", head.method, head.uri.path()), body));
            let answer = json!({"metadata": {"uid": "e1", "resourceVersion": "1"}}).to_string();
            Ok::<_, Infallible>(http::Response::new(Body::from(answer.into_bytes())))
        }
    });
    let ctx = context_with(kube::Client::new(service, "default"));
    let events = Events::start(&ctx, "test", always());
    for _ in 0..7 {
        events.publish(event("u", "a"));
    }
    ctx.clock.sleep(Duration::from_secs(60)).await;
    let (create, patch) = {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2, "{seen:?}");
        (seen[0].clone(), seen[1].clone())
    };
    assert_eq!(create.0, "POST /api/v1/namespaces/team/events");
    assert_eq!(create.1["involvedObject"]["uid"], "u");
    assert_eq!(create.1["firstTimestamp"], "2026-01-01T00:00:00Z");
    let name = create.1["metadata"]["name"].as_str().unwrap();
    assert_eq!(patch.0, format!("PATCH /api/v1/namespaces/team/events/{name}"));
    assert_eq!(patch.1["count"], 7);
    assert_eq!(patch.1["metadata"]["uid"], "e1");

    let closed = Events::start(&ctx, "test", Arc::new(|| None));
    closed.publish(event("v", "a"));
    ctx.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!((seen.lock().unwrap().len(), closed.dropped(), events.dropped()), (2, 1, 0));
}

/// Decisions go before what people read.
#[tokio::test(start_paused = true)]
async fn a_slow_server_is_asked_for_fewer() {
    /// After the burst, how long it takes to write this many.
    const MORE: usize = 20;
    for (takes, pause) in [(0, 20), (2, 20), (10, 100), (30, 900), (100, 1_000)] {
        let written: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let log = written.clone();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let log = log.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(takes)).await;
                log.lock().unwrap().push(crate::Clock::System.monotonic());
                let answer = json!({"metadata": {"uid": "e1", "resourceVersion": "1"}}).to_string();
                Ok::<_, Infallible>(http::Response::new(Body::from(answer.into_bytes())))
            }
        });
        let ctx = context_with(kube::Client::new(service, "default"));
        let events = Events::start(&ctx, "test", always());
        for number in 0..QUEUE {
            events.publish(event(&number.to_string(), "a"));
        }
        ctx.clock.sleep(Duration::from_secs(3_600)).await;
        let written = written.lock().unwrap();
        let burst = BURST as usize;
        let begun = written[burst] - written[0];
        assert!(begun >= Duration::from_millis(pause), "{begun:?} for the burst at {takes} ms each");
        assert!(
            written.last().unwrap().duration_since(written[0]) < Duration::from_secs(660),
            "it is no news"
        );
        // What is saved up during the burst goes with it.
        let first = 2 * burst;
        let took = written[first + MORE] - written[first];
        let expected = Duration::from_millis(pause) * MORE as u32;
        assert!(took.abs_diff(expected) <= expected / 10, "{took:?} for {MORE} at {takes} ms each");
    }
}
