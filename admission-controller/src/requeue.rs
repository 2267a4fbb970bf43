//! When an evicted workload may be looked at again: `status.requeueState`.

use crds::view::workload::RequeueState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The state after the workload was put off until then, counted or not; `None` where that changes nothing. Whoever puts it
/// off longest is heeded.
pub fn put_off(seen: Option<&RequeueState>, until: Timestamp, counted: bool) -> Option<RequeueState> {
    let seen = seen.cloned().unwrap_or_default();
    let mut state = seen.clone();
    if state.requeue_at.as_ref().is_none_or(|at| at.0 < until) {
        state.requeue_at = Some(Time(until));
    }
    if counted {
        state.count = Some(state.count.unwrap_or(0).saturating_add(1));
    }
    (state != seen).then_some(state)
}
