use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;
use crate::test_support::context_with;

enum Answer {
    Ok(Value),
    Status(u16),
    /// The lines of a watch, after which it ends at once.
    Lines(Vec<String>),
    /// The lines of a watch, after which it stays open.
    Open(Vec<String>),
    /// What a watch sends, piece by piece, after which it stays open.
    Pieces(Vec<Vec<u8>>),
}

type Asked = Arc<Mutex<Vec<(Timestamp, String)>>>;

/// A server that gives these answers in turn, then 500, and notes what it was asked when.
fn server(answers: Vec<Answer>) -> (Context, Asked) {
    let asked = Asked::default();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let (log, clock) = (asked.clone(), Arc::new(Mutex::new(None::<crate::Clock>)));
    let shared_clock = clock.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let now = shared_clock.lock().unwrap().as_ref().unwrap().now();
        log.lock().unwrap().push((now, request.uri().query().unwrap_or_default().to_owned()));
        let (code, body) = match answers.lock().unwrap().pop_front() {
            Some(Answer::Ok(value)) => (200, Body::from(value.to_string().into_bytes())),
            Some(Answer::Lines(lines)) => (200, stream(lines, false)),
            Some(Answer::Open(lines)) => (200, stream(lines, true)),
            Some(Answer::Pieces(pieces)) => {
                let pieces = stream::iter(pieces).map(Ok::<_, Infallible>);
                (200, Body::from_stream(pieces.chain(stream::pending())))
            }
            Some(Answer::Status(code)) => (code, status(code)),
            None => (500, status(500)),
        };
        std::future::ready(Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap()))
    });
    let ctx = context_with(kube::Client::new(service, "default"));
    *clock.lock().unwrap() = Some(ctx.clock.clone());
    (ctx, asked)
}

fn status(code: u16) -> Body {
    Body::from(json!({"kind": "Status", "code": code, "message": "no"}).to_string().into_bytes())
}

fn stream(lines: Vec<String>, open: bool) -> Body {
    let frames = lines.into_iter().map(|line| Ok::<_, Infallible>(format!("{line}\n")));
    let rest = if open { stream::pending().left_stream() } else { stream::empty().right_stream() };
    Body::from_stream(stream::iter(frames).chain(rest))
}

fn object(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

/// `data` must be a map of strings.
fn bad(name: &str, version: u32) -> Value {
    let mut object = object(name, version);
    object["data"] = json!(7);
    object
}

fn list(version: u32, next: &str, items: &[Value]) -> Answer {
    Answer::Ok(
        json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items}),
    )
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

fn gone() -> String {
    event("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired"}))
}

/// The next changes, in short.
async fn told(stream: &mut (impl Stream<Item = Change<ConfigMap>> + Unpin), count: usize) -> Vec<String> {
    let name = |object: ConfigMap| object.metadata.name.unwrap_or_default();
    let changes: Vec<_> = stream.take(count).collect().await;
    let brief = |change| match change {
        Change::Restarted => "restarted".to_owned(),
        Change::Synced { .. } => "synced".to_owned(),
        Change::Applied(object) => format!("+{}", name(object)),
        Change::Deleted(object) => format!("-{}", name(object)),
    };
    changes.into_iter().map(brief).collect()
}

fn start(ctx: &Context) -> Pin<Box<dyn Stream<Item = Change<ConfigMap>> + Send>> {
    Box::pin(watch(ctx, Api::all(ctx.clients.watch.clone()), Config::default().labels("a=b")))
}

#[tokio::test(start_paused = true)]
async fn a_paged_list_then_a_watch_that_is_resumed_where_it_was() {
    let (ctx, asked) = server(vec![
        list(5, "token", &[object("a", 1)]),
        list(5, "", &[object("b", 2)]),
        Answer::Lines(vec![
            event("ADDED", &object("c", 6)),
            event("DELETED", &object("a", 7)),
            event("BOOKMARK", &json!({"metadata": {"resourceVersion": "9"}})),
        ]),
        Answer::Open(vec![event("MODIFIED", &object("b", 10))]),
    ]);
    let told = told(&mut start(&ctx), 7).await;
    assert_eq!(told, ["restarted", "+a", "+b", "synced", "+c", "-a", "+b"]);
    let queries: Vec<_> = asked.lock().unwrap().iter().map(|(_, query)| query.clone()).collect();
    assert!(
        queries[0].contains("labelSelector=a%3Db") && !queries[0].contains("resourceVersion"),
        "{queries:?}"
    );
    assert!(queries[1].contains("continue=token"), "{queries:?}");
    assert!(
        queries[2].contains("resourceVersion=5") && queries[2].contains("allowWatchBookmarks=true"),
        "{queries:?}"
    );
    assert!(queries[3].contains("resourceVersion=9"), "{queries:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_ahead_is_told_in_order_and_to_the_end() {
    let (ctx, asked) = server(vec![
        list(5, "", &[object("a", 1), object("b", 2)]),
        Answer::Open(vec![event("DELETED", &object("a", 6)), event("ADDED", &object("c", 7))]),
    ]);
    let mut stream =
        Box::pin(Watch::new(&ctx, Api::all(ctx.clients.watch.clone()), Config::default()).read_ahead());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(asked.lock().unwrap().len(), 2, "nobody has asked for a change yet");
    assert_eq!(told(&mut stream, 6).await, ["restarted", "+a", "+b", "synced", "-a", "+c"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_lists_again() {
    let (ctx, _) = server(vec![
        list(5, "", &[object("a", 1)]),
        Answer::Open(vec![gone()]),
        list(8, "", &[]),
        Answer::Status(410),
        list(9, "token", &[]),
        Answer::Status(410),
        list(9, "", &[object("z", 1)]),
    ]);
    let told = told(&mut start(&ctx), 9).await;
    assert_eq!(
        told,
        ["restarted", "+a", "synced", "restarted", "synced", "restarted", "restarted", "+z", "synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_waited_out_longer_each_time_and_never_told() {
    let mut answers: Vec<_> = (0..8).map(|_| Answer::Status(500)).collect();
    answers.push(list(1, "", &[]));
    let (ctx, asked) = server(answers);
    assert_eq!(told(&mut start(&ctx), 2).await, ["restarted", "synced"]);
    let times: Vec<_> = asked.lock().unwrap().iter().map(|(time, _)| time.as_millisecond()).collect();
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((800..=1_201).contains(&waits[0]) && (30_000..=45_001).contains(&waits[7]), "{waits:?}");
    assert!(waits[..6].windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_told_something_is_resumed_at_once_and_another_is_not() {
    let (ctx, asked) = server(vec![
        list(1, "", &[]),
        Answer::Lines(vec![event("ADDED", &object("a", 2))]),
        Answer::Lines(vec![]),
        Answer::Open(vec![event("ADDED", &object("b", 3))]),
    ]);
    assert_eq!(told(&mut start(&ctx), 4).await, ["restarted", "synced", "+a", "+b"]);
    let times: Vec<_> = asked.lock().unwrap().iter().map(|(time, _)| time.as_millisecond()).collect();
    assert_eq!(times[2] - times[1], 0, "{times:?}");
    assert!(times[3] - times[2] >= 800, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up() {
    let (ctx, asked) = server(vec![
        list(1, "", &[]),
        Answer::Open(vec![]),
        Answer::Open(vec![event("ADDED", &object("a", 2))]),
    ]);
    assert_eq!(told(&mut start(&ctx), 3).await, ["restarted", "synced", "+a"]);
    let times: Vec<_> = asked.lock().unwrap().iter().map(|(time, _)| time.as_second()).collect();
    assert_eq!(times[2] - times[1], 90);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_understood_harms_nobody_else() {
    let (ctx, asked) = server(vec![
        list(5, "", &[bad("x", 1), object("a", 2)]),
        Answer::Open(vec![
            event("MODIFIED", &bad("x", 6)),
            event("DELETED", &bad("x", 7)),
            event("ADDED", &bad("y", 8)),
            event("MODIFIED", &object("y", 9)),
            // It was told before: only a list can take it back.
            event("MODIFIED", &bad("a", 10)),
            event("DELETED", &bad("a", 11)),
        ]),
        list(12, "", &[object("y", 9)]),
    ]);
    let told = told(&mut start(&ctx), 7).await;
    assert_eq!(told, ["restarted", "+a", "synced", "+y", "restarted", "+y", "synced"]);
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_version_leaves_the_watch_where_it_was() {
    let mut unversioned = object("a", 7);
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (ctx, asked) = server(vec![
        list(5, "", &[object("a", 1)]),
        Answer::Lines(vec![
            event("ADDED", &object("b", 6)),
            event("BOOKMARK", &json!({"metadata": {}})),
            event("MODIFIED", &unversioned),
        ]),
        Answer::Lines(vec![event("BOOKMARK", &json!({"metadata": {"resourceVersion": ""}}))]),
        Answer::Open(vec![event("ADDED", &object("c", 8))]),
    ]);
    let told = told(&mut start(&ctx), 6).await;
    assert_eq!(told, ["restarted", "+a", "synced", "+b", "+a", "+c"]);
    let queries: Vec<_> = asked.lock().unwrap().iter().map(|(_, query)| query.clone()).collect();
    assert!(queries[2..].iter().all(|query| query.contains("resourceVersion=6")), "{queries:?}");
}

/// A watch from no version would not tell what is gone meanwhile.
#[tokio::test(start_paused = true)]
async fn after_a_list_without_a_version_comes_another() {
    let (ctx, asked) = server(vec![
        Answer::Ok(json!({"metadata": {}, "items": [object("a", 1)]})),
        Answer::Ok(json!({"metadata": {}, "items": []})),
        list(5, "", &[object("b", 2)]),
        Answer::Open(vec![event("ADDED", &object("c", 6))]),
    ]);
    let told = told(&mut start(&ctx), 9).await;
    let wanted = ["restarted", "+a", "synced", "restarted", "synced", "restarted", "+b", "synced", "+c"];
    assert_eq!(told, wanted);
    let times: Vec<_> = asked.lock().unwrap().iter().map(|(time, _)| time.as_millisecond()).collect();
    assert!(times[1] - times[0] >= 800 && times[2] - times[1] >= 1_600, "{times:?}");
}

/// Asked again from where it was, the server would send the same event again, and nothing after it.
#[tokio::test(start_paused = true)]
async fn what_a_watch_cannot_go_on_from_is_listed_anew() {
    let mut endless = object("endless", 7);
    endless["data"] = json!({"notes": "x".repeat(usize::try_from(MAX_LINE).unwrap())});
    for odd in [event("MOVED", &object("a", 7)), event("ADDED", &endless)] {
        let (ctx, asked) = server(vec![
            list(5, "", &[object("a", 1)]),
            Answer::Open(vec![event("ADDED", &object("b", 6)), odd, event("DELETED", &object("a", 8))]),
            list(8, "", &[object("b", 6)]),
        ]);
        let told = told(&mut start(&ctx), 7).await;
        assert_eq!(told, ["restarted", "+a", "synced", "+b", "restarted", "+b", "synced"]);
        assert_eq!(asked.lock().unwrap().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_may_be_long_and_come_in_pieces() {
    let mut long = object("long", 6);
    long["data"] = json!({"notes": "x".repeat(2 << 20)});
    let text = format!("{}\n{}\n", event("ADDED", &long), event("ADDED", &object("\u{e4}", 7)));
    // Within the letter of two bytes.
    let (head, tail) = text.as_bytes().split_at(text.find('\u{e4}').unwrap() + 1);
    let pieces = head.chunks(100_000).chain([tail]).map(<[u8]>::to_vec).collect();
    let (ctx, _) = server(vec![list(5, "", &[]), Answer::Pieces(pieces)]);
    assert_eq!(told(&mut start(&ctx), 4).await, ["restarted", "synced", "+long", "+\u{e4}"]);
}

/// One of several API servers may not know of it yet, or not any more.
#[tokio::test(start_paused = true)]
async fn what_was_told_to_be_gone_is_listed_again() {
    let here = |version| list(version, "", &[object("a", 1)]);
    let (ctx, _) = server(vec![here(5), Answer::Lines(Vec::new()), Answer::Status(404), here(5)]);
    let api: Api<ConfigMap> = Api::all(ctx.clients.watch.clone());
    let mut stream = Box::pin(Watch::new(&ctx, api, Config::default()).optional().stream());
    assert_eq!(told(&mut stream, 3).await, ["restarted", "+a", "synced"]);
    assert_eq!(told(&mut stream, 2).await, ["restarted", "synced"]);
    assert_eq!(told(&mut stream, 3).await, ["restarted", "+a", "synced"]);
}

/// It comes or goes on several API servers.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_listed_and_not_watched_is_asked_for_at_leisure() {
    let answers = (0..40).map(|index| if index % 2 == 0 { list(5, "", &[]) } else { Answer::Status(404) });
    let (ctx, asked) = server(answers.collect());
    let api: Api<ConfigMap> = Api::all(ctx.clients.watch.clone());
    let mut stream = Box::pin(Watch::new(&ctx, api, Config::default()).optional().stream());
    let _ended = tokio::time::timeout(Duration::from_secs(5), told(&mut stream, 200)).await;
    let asked = asked.lock().unwrap().len();
    assert!(asked < 20, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_an_empty_list_until_it_is() {
    let answers = || vec![Answer::Status(404), Answer::Status(404), list(5, "", &[object("a", 1)])];
    let (ctx, asked) = server(answers());
    let api: Api<ConfigMap> = Api::all(ctx.clients.watch.clone());
    let mut stream = Box::pin(Watch::new(&ctx, api, Config::default()).optional().stream());
    assert_eq!(told(&mut stream, 2).await, ["restarted", "synced"]);
    assert_eq!(asked.lock().unwrap().len(), 1);
    assert_eq!(told(&mut stream, 3).await, ["restarted", "+a", "synced"]);
    assert_eq!(asked.lock().unwrap().len(), 3);

    let (ctx, asked) = server(answers());
    assert_eq!(told(&mut start(&ctx), 3).await, ["restarted", "+a", "synced"]);
    assert_eq!(asked.lock().unwrap().len(), 3);
}
