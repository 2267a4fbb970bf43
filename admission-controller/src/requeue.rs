//! When an evicted workload may be looked at again: condition `Requeued` and `status.requeueState`.

use crds::reasons::workload::evicted;
use crds::view::workload::RequeueState;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The reason of `Requeued` = True that follows on this one of False; `None` where somebody else has to say so.
pub fn end_of(reason: &str) -> Option<&'static str> {
    match reason {
        evicted::CLUSTER_QUEUE_STOPPED => Some(evicted::CLUSTER_QUEUE_RESTARTED),
        evicted::LOCAL_QUEUE_STOPPED => Some(evicted::LOCAL_QUEUE_RESTARTED),
        evicted::PODS_READY_TIMEOUT | evicted::ADMISSION_CHECK => Some(evicted::BACKOFF_FINISHED),
        other if other.starts_with(evicted::DEACTIVATED) => Some(evicted::REACTIVATED),
        _ => None,
    }
}

/// How long a workload is put off for the so-many-th time: twice as long each time, up to the longest. The first time is as it
/// is written, however long.
pub fn backoff(base: SignedDuration, longest: SignedDuration, times: i32) -> SignedDuration {
    let mut wait = base;
    for _ in 1..times {
        let doubled = wait.checked_mul(2).unwrap_or(SignedDuration::MAX);
        wait = if longest.is_zero() { doubled } else { doubled.min(longest) };
        if wait.is_zero() || wait == longest || wait == SignedDuration::MAX {
            break;
        }
    }
    wait
}

/// The state after the workload was put off until then, counted or not; `None` where that changes nothing. Whoever puts it
/// off longest is heeded.
pub fn put_off(seen: Option<&RequeueState>, until: Option<Timestamp>, counted: bool) -> Option<RequeueState> {
    let seen = seen.cloned().unwrap_or_default();
    let mut state = seen.clone();
    state.requeue_at = state.requeue_at.max(until.map(Time));
    if counted {
        state.count = Some(state.count.unwrap_or(0).saturating_add(1));
    }
    (state != seen).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In seconds: the first wait, the longest (0 is none), how often it was put off with this time, and the wait.
    #[test]
    fn each_wait_is_twice_the_one_before_up_to_the_longest() {
        let seconds = SignedDuration::from_secs;
        for (base, longest, times, wanted) in [
            (60, 3600, 1, 60),
            (60, 3600, 2, 120),
            (60, 3600, 6, 1920),
            (60, 3600, 7, 3600),
            (60, 3600, 1_000_000, 3600),
            (60, 3600, i32::MAX, 3600),
            // Nobody counts so, but anybody may write it.
            (60, 3600, 0, 60),
            (60, 3600, i32::MIN, 60),
            // The longest is no limit of what is written.
            (7200, 3600, 1, 7200),
            (7200, 3600, 2, 3600),
            (0, 3600, 1_000_000, 0),
            (60, 0, 11, 60 << 10),
            (60, 0, 1_000_000, i64::MAX),
            (i64::MAX, 0, 2, i64::MAX),
            (i64::MAX, 3600, 2, 3600),
        ] {
            let wait = backoff(seconds(base), seconds(longest), times);
            assert_eq!(wait.as_secs(), wanted, "{times} times, from {base} to {longest}");
        }
    }

    #[test]
    fn the_later_time_holds_and_counts_do_not_run_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let state = |(count, until): (Option<i32>, Option<i64>)| RequeueState {
            count,
            requeue_at: until.map(|second| Time(at(second))),
        };
        for (seen, until, counted, wanted) in [
            (None, None, false, None),
            (None, Some(7), false, Some((None, Some(7)))),
            (None, Some(7), true, Some((Some(1), Some(7)))),
            (Some((Some(1), Some(9))), Some(7), false, None),
            (Some((Some(1), Some(9))), Some(7), true, Some((Some(2), Some(9)))),
            (Some((Some(1), Some(9))), Some(11), false, Some((Some(1), Some(11)))),
            (Some((Some(i32::MAX), None)), None, true, None),
            (Some((Some(i32::MAX), None)), Some(7), true, Some((Some(i32::MAX), Some(7)))),
        ] {
            let seen = seen.map(state);
            let after = put_off(seen.as_ref(), until.map(at), counted);
            assert_eq!(after, wanted.map(state), "{seen:?}, until {until:?}, counted: {counted}");
        }
    }
}
