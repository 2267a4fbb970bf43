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
