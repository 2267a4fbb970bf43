use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::*;
use crate::test_support::context;

type Log = Arc<Mutex<Vec<u32>>>;

fn limits(in_flight: usize, accepted: usize) -> Limits {
    Limits { in_flight, accepted, ..Limits::default() }
}

/// A write that notes its number when it is sent and takes a second.
fn noted(log: &Log, number: u32) -> impl FnMut() -> Attempt<u32> + Send + 'static {
    let log = log.clone();
    move || {
        log.lock().unwrap().push(number);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(number)
        })
    }
}

fn unavailable() -> WriteError {
    WriteError::Unavailable { may_have_applied: true, retry_after: None, cause: "test".into() }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_allowed_are_in_flight_and_all_are_reported() {
    let ctx = context();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut writes = Writes::<u32, ()>::start(&ctx, limits(3, 100), always());
    for key in 0..20 {
        let (now, most) = (now.clone(), most.clone());
        let send = move || {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        };
        writes.submit(Priority::Normal, "", key, send).unwrap();
    }
    let mut keys = Vec::new();
    while writes.outstanding() > 0 {
        keys.push(writes.next().await.key);
    }
    assert_eq!(keys, (0..20).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn the_important_go_first_and_a_key_keeps_its_order() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 100), always());
    for (number, priority, key) in [
        (0, Priority::Normal, "x"),
        (1, Priority::Status, "s"),
        (2, Priority::Status, "a"),
        (3, Priority::Normal, "b"),
        // Behind 2, which it lifts above 3.
        (4, Priority::Urgent, "a"),
    ] {
        writes.submit(priority, "", key, noted(&log, number)).unwrap();
    }
    writes.drain().await;
    assert_eq!(*log.lock().unwrap(), [2, 4, 0, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn owners_take_turns_among_writes_of_equal_importance() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 100), always());
    let mut submit = |whose: &str, priority, numbers: std::ops::Range<u32>| {
        for number in numbers {
            writes.submit(priority, whose, number, noted(&log, number)).unwrap();
        }
    };
    submit("many", Priority::Normal, 0..5);
    submit("few", Priority::Normal, 10..12);
    submit("many", Priority::Urgent, 20..22);
    submit("one", Priority::Normal, 30..31);
    for _ in 0..2 {
        writes.next().await;
    }
    // The urgent ones of the others were no turns among these.
    writes.submit(Priority::Normal, "late", 40, noted(&log, 40)).unwrap();
    writes.drain().await;
    assert_eq!(*log.lock().unwrap(), [20, 21, 0, 10, 30, 40, 1, 11, 2, 3, 4]);
}

/// Who comes late is not made to wait for the turns that others have had.
#[tokio::test(start_paused = true)]
async fn who_had_no_writes_before_has_its_turn_at_once() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 100), always());
    for number in 0..6 {
        writes.submit(Priority::Normal, "many", number, noted(&log, number)).unwrap();
    }
    for _ in 0..3 {
        writes.next().await;
    }
    // The fourth is on its way.
    writes.submit(Priority::Normal, "late", 10, noted(&log, 10)).unwrap();
    writes.drain().await;
    assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 10, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn without_room_the_least_important_are_dropped_and_equals_are_refused() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 3), always());
    writes.submit(Priority::Status, "", "s1", noted(&log, 1)).unwrap();
    writes.submit(Priority::Status, "", "s2", noted(&log, 2)).unwrap();
    writes.submit(Priority::Normal, "", "n", noted(&log, 3)).unwrap();
    assert_eq!(writes.submit(Priority::Status, "", "s3", noted(&log, 4)), Err(Full));
    writes.submit(Priority::Urgent, "", "u", noted(&log, 5)).unwrap();
    assert_eq!(writes.room(), 0);
    let shed = writes.next().await;
    assert!(matches!((shed.key, &shed.result, shed.attempts), ("s2", Err(Failure::Shed), 0)));
    writes.drain().await;
    assert_eq!(*log.lock().unwrap(), [5, 3, 1]);
    assert_eq!(writes.room(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_server_is_asked_again_but_not_for_ever_and_its_key_waits() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 10), always());
    let mut failures_left = 2;
    writes
        .submit(Priority::Normal, "", "a", move || {
            failures_left -= 1;
            let result = if failures_left >= 0 { Err(unavailable()) } else { Ok(1) };
            async move { result }
        })
        .unwrap();
    writes.submit(Priority::Urgent, "", "a", noted(&log, 2)).unwrap();
    writes.submit(Priority::Status, "", "b", noted(&log, 3)).unwrap();
    writes.submit(Priority::Status, "", "hopeless", || async { Err(unavailable()) }).unwrap();
    let mut ended = Vec::new();
    while writes.outstanding() > 0 {
        let done = writes.next().await;
        ended.push((done.key, done.result.ok(), done.attempts));
    }
    let found: Vec<_> = ended.iter().filter(|(key, ..)| *key == "a").cloned().collect();
    assert_eq!(found, [("a", Some(1), 3), ("a", Some(2), 1)], "in order, and the first after two failures");
    assert!(ended.contains(&("hopeless", None, 5)), "{ended:?}");
    assert_eq!(log.lock().unwrap().iter().position(|number| *number == 3), Some(0), "others go on meanwhile");
}

#[tokio::test(start_paused = true)]
async fn refusals_and_conflicts_are_not_repeated_and_silence_ends() {
    let ctx = context();
    let mut writes = Writes::<_, ()>::start(&ctx, limits(4, 10), always());
    writes
        .submit(Priority::Normal, "", "conflict", || async { Err(WriteError::Conflict("x".into())) })
        .unwrap();
    let done = writes.next().await;
    assert!(
        matches!(&done.result, Err(failure @ Failure::Error(WriteError::Conflict(_))) if !failure.may_have_applied(1))
    );
    assert_eq!(done.attempts, 1);
    writes.submit(Priority::Normal, "", "silent", std::future::pending).unwrap();
    let done = writes.next().await;
    assert!(matches!(&done.result, Err(failure) if failure.may_have_applied(done.attempts)), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_leave() {
    let (ctx, log) = (context(), Log::default());
    let leading = Arc::new(AtomicBool::new(true));
    let gate = leading.clone();
    let mut writes =
        Writes::start(&ctx, limits(1, 10), Arc::new(move || gate.load(Ordering::SeqCst).then_some(0)));
    writes.submit(Priority::Normal, "", "first", noted(&log, 1)).unwrap();
    writes.submit(Priority::Normal, "", "second", noted(&log, 2)).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    leading.store(false, Ordering::SeqCst);
    assert!(writes.next().await.result.is_ok());
    assert!(matches!(
        writes.next().await,
        Done { key: "second", result: Err(Failure::NotLeading), attempts: 0 }
    ));
    assert_eq!(*log.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_of_another_term_is_not_sent_and_what_was_sent_is_waited_for() {
    let (ctx, log) = (context(), Log::default());
    let term = Arc::new(AtomicI32::new(0));
    let gate = term.clone();
    let mut writes = Writes::start(&ctx, limits(2, 10), Arc::new(move || Some(gate.load(Ordering::SeqCst))));
    writes.submit(Priority::Normal, "", "tried", || async { Err(unavailable()) }).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    writes.submit(Priority::Normal, "", "sent", noted(&log, 1)).unwrap();
    writes
        .submit(Priority::Normal, "", "failing", || async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Err(unavailable())
        })
        .unwrap();
    writes.submit(Priority::Normal, "", "queued", noted(&log, 2)).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    term.store(1, Ordering::SeqCst);
    writes.submit(Priority::Normal, "", "unaware", noted(&log, 3)).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ended = writes.begin_term().await.into_iter();
    let mut ended: Vec<_> = ended.map(|done| (done.key, done.result.ok(), done.attempts)).collect();
    ended.sort_unstable();
    let failed = |key: &'static str, attempts: u32| (key, None, attempts);
    let expected = [
        failed("failing", 1),
        failed("queued", 0),
        ("sent", Some(1), 1),
        failed("tried", 1),
        failed("unaware", 0),
    ];
    assert_eq!(ended, expected);
    assert_eq!(*log.lock().unwrap(), [1]);
    writes.submit(Priority::Normal, "", "tried", || async { Err(unavailable()) }).unwrap();
    writes.submit(Priority::Normal, "", "later", noted(&log, 4)).unwrap();
    assert!(matches!(writes.next().await, Done { key: "later", result: Ok(4), attempts: 1 }));
    let ended = writes.begin_term().await;
    assert!(matches!(ended[..], [Done { key: "tried", result: Err(Failure::NotLeading), attempts: 1.. }]));
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_was_sent_and_gives_back_the_rest() {
    let (ctx, log) = (context(), Log::default());
    let mut writes = Writes::start(&ctx, limits(1, 10), always());
    writes.submit(Priority::Normal, "", "sent", noted(&log, 1)).unwrap();
    writes.submit(Priority::Normal, "", "queued", noted(&log, 2)).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    ctx.tasks.stop();
    assert!(matches!(
        writes.next().await,
        Done { key: "queued", result: Err(Failure::Stopping), attempts: 0 }
    ));
    assert!(matches!(writes.next().await, Done { key: "sent", result: Ok(1), attempts: 1 }));
    drop(writes);
    ctx.tasks.ended().await;
    assert_eq!(*log.lock().unwrap(), [1]);
}
