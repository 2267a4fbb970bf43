use super::*;
use crate::Rng;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn record(version: u64, holder: &str) -> Record {
    Record {
        uid: "u".into(),
        version: version.to_string(),
        holder: holder.into(),
        duration: s(15),
        transitions: 3,
    }
}

fn write(version: u64, transitions: i32, acquire: bool) -> Action {
    Action::Write { uid: "u".into(), version: version.to_string(), transitions, acquire }
}

#[test]
fn the_first_candidate_creates_and_renews() {
    let mut state = State::new("a", Terms::default());
    assert_eq!(state.next(s(0)), Action::Read);
    state.read(s(0), None);
    assert_eq!(state.next(s(0)), Action::Create { transitions: 0 });
    state.wrote(s(0), s(1), Outcome::Done(record(1, "a")));
    assert_eq!(
        state.may_write_until(),
        Some(s(10)),
        "duration less margin, from the beginning of the request"
    );
    assert_eq!(state.next(s(1)), Action::Wait(s(2)));
    assert_eq!(state.next(s(2)), write(1, 3, false));
}

#[test]
fn a_successor_waits_out_what_it_saw_and_starts_again_when_it_changes() {
    let mut state = State::new("b", Terms::default());
    state.read(s(100), Some(record(1, "a")));
    assert_eq!(state.next(s(100)), Action::Wait(s(102)));
    state.read(s(118), Some(record(1, "a")));
    assert_eq!(
        state.next(s(118)),
        Action::Wait(s(119)),
        "15 s of the lease and 4 s of the time-out after the first look"
    );
    assert_eq!(state.next(s(119)), write(1, 4, true));
    state.read(s(119), Some(record(2, "a")));
    assert_eq!(state.next(s(137)), Action::Read);
    assert_eq!(state.next(s(138)), write(2, 4, true));
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut state = State::new("b", Terms::default());
    state.read(s(5), Some(record(7, "")));
    assert_eq!(state.next(s(5)), write(7, 4, true));
}

#[test]
fn a_longer_lease_than_ours_is_respected() {
    let mut state = State::new("b", Terms::default());
    state.read(s(0), Some(Record { duration: s(60), ..record(1, "a") }));
    assert_eq!(state.next(s(63)), Action::Read);
    assert_eq!(state.next(s(64)), write(1, 4, true));
}

#[test]
fn an_unanswered_request_counts_from_its_beginning_once_it_is_seen_to_be_done() {
    let mut state = State::new("b", Terms::default());
    state.read(s(5), Some(record(7, "")));
    state.wrote(s(5), s(9), Outcome::Unknown);
    assert_eq!(state.may_write_until(), None);
    assert_eq!(state.next(s(10)), Action::Read);
    state.read(s(10), Some(record(8, "b")));
    assert_eq!(state.may_write_until(), Some(s(15)));
    assert_eq!(state.next(s(10)), write(8, 3, false));
    // Two unanswered renewals: nothing is gained by them until one is certain, nor lost.
    state.wrote(s(10), s(14), Outcome::Unknown);
    state.wrote(s(14), s(18), Outcome::Unknown);
    assert_eq!(state.transitions(), Some(3));
    assert_eq!(state.may_write_until(), Some(s(15)));
    state.read(s(19), Some(record(9, "b")));
    assert_eq!(state.may_write_until(), Some(s(15)));
}

#[test]
fn losing_the_record_ends_leadership() {
    let mut state = State::new("a", Terms::default());
    state.read(s(0), None);
    state.wrote(s(0), s(0), Outcome::Done(record(1, "a")));
    state.wrote(s(2), s(2), Outcome::Lost);
    state.read(s(3), Some(record(2, "b")));
    assert_eq!((state.may_write_until(), state.transitions()), (None, None));
    state.read(s(3), Some(record(2, "b")));
    assert_eq!(state.next(s(5)), Action::Read);
}

#[test]
fn a_namesake_is_a_stranger() {
    let mut state = State::new("a", Terms::default());
    state.read(s(0), Some(record(1, "a")));
    assert_eq!(state.may_write_until(), None);
    assert_eq!(state.next(s(18)), Action::Read);
    assert_eq!(state.next(s(19)), write(1, 4, true));
}

#[test]
fn the_default_terms_are_safe_and_others_need_not_be() {
    assert!(Terms::default().are_safe());
    assert!(!Terms { request_timeout: s(5), ..Terms::default() }.are_safe());
    assert!(!Terms { margin: s(14), ..Terms::default() }.are_safe());
}

/// A request under way: when it reaches the store, and when the candidate hears (or gives up).
struct Flight {
    started: u64,
    commits: Option<u64>,
    heard: u64,
    action: Action,
    answer: Option<Answer>,
}

enum Answer {
    Read(Option<Record>),
    Wrote(Outcome),
}

struct Candidate {
    state: State,
    paused_until: u64,
    flights: Vec<Flight>,
    stragglers: Vec<Flight>,
}

/// Applies a request to the store.
fn commit(store: &mut Option<Record>, next_version: &mut u64, me: &str, action: &Action) -> Answer {
    let mut put = |transitions: i32, store: &mut Option<Record>| {
        *next_version += 1;
        let new = Record { transitions, ..record(*next_version, me) };
        *store = Some(new.clone());
        Answer::Wrote(Outcome::Done(new))
    };
    match (action, store.clone()) {
        (Action::Create { transitions }, None) => put(*transitions, store),
        (Action::Write { version, transitions, .. }, Some(current)) if current.version == *version => {
            put(*transitions, store)
        }
        (Action::Create { .. } | Action::Write { .. }, _) => Answer::Wrote(Outcome::Lost),
        (_, current) => Answer::Read(current),
    }
}

/// One run over 300 s in steps of 50 ms. Returns how often leadership was gained.
fn run(seed: u64) -> usize {
    let (rng, terms) = (Rng::seeded(seed), Terms::default());
    let ms = |n: u64| Duration::from_millis(n);
    let mut candidates: Vec<Candidate> = (0..3)
        .map(|i| Candidate {
            state: State::new(format!("c{i}"), terms.clone()),
            paused_until: 0,
            flights: Vec::new(),
            stragglers: Vec::new(),
        })
        .collect();
    let (mut store, mut next_version, mut gained) = (None, 0, 0);
    // When each last could have sent a write: its effects last for the request time-out after that.
    let mut last_write: [Option<u64>; 3] = [None; 3];
    for now in (0..300_000).step_by(50) {
        for (i, c) in candidates.iter_mut().enumerate() {
            let me = format!("c{i}");
            // The store works while processes are paused, also on requests whose sender gave up.
            for flight in c.flights.iter_mut().chain(c.stragglers.iter_mut()) {
                if flight.commits.is_some_and(|at| at <= now) {
                    flight.commits = None;
                    flight.answer = Some(commit(&mut store, &mut next_version, &me, &flight.action));
                }
            }
            c.stragglers.retain(|flight| flight.commits.is_some());
            if now < c.paused_until {
                continue;
            }
            if rng.u64(..400) == 0 {
                c.paused_until = now + rng.u64(50..40_000);
                continue;
            }
            if c.flights.first().is_some_and(|flight| flight.heard <= now) {
                let flight = c.flights.remove(0);
                let started = ms(flight.started);
                let late = now > flight.started + 4_000;
                match (&flight.answer, &flight.action) {
                    (Some(Answer::Read(record)), _) if !late => c.state.read(ms(now), record.clone()),
                    (Some(Answer::Wrote(outcome)), _) if !late => {
                        c.state.wrote(started, ms(now), outcome.clone())
                    }
                    (_, Action::Read) => c.state.unread(ms(now)),
                    _ => {
                        c.state.wrote(started, ms(now), Outcome::Unknown);
                        c.stragglers.push(flight);
                    }
                }
            }
            if c.flights.is_empty() {
                match c.state.next(ms(now)) {
                    Action::Wait(_) => {}
                    action => {
                        let lost = rng.u64(..10) == 0;
                        let arrives =
                            now + if rng.u64(..10) == 0 { rng.u64(50..20_000) } else { rng.u64(50..300) };
                        let answered = arrives + rng.u64(0..500);
                        c.flights.push(Flight {
                            started: now,
                            commits: (!lost).then_some(arrives),
                            heard: if lost { now + 4_000 } else { answered.min(now + 4_000) },
                            action,
                            answer: None,
                        });
                    }
                }
            }
            if c.state.may_write_until().is_some_and(|until| ms(now) < until) {
                gained += usize::from(last_write[i].is_none_or(|last| last + 50 < now));
                last_write[i] = Some(now);
                for (other, last) in last_write.iter().enumerate().filter(|(other, _)| *other != i) {
                    let quiet = last.is_none_or(|last| last + 4_000 <= now);
                    assert!(quiet, "seed {seed}: {other} may still be writing when {i} may, at {now} ms");
                }
            }
        }
    }
    gained
}

#[test]
fn no_two_may_write_whatever_is_delayed_lost_or_paused() {
    let gained: usize = (0..300).map(run).sum();
    assert!(gained > 900, "leadership has to move for this to prove anything: {gained}");
}
