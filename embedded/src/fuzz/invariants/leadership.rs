//! Invariant 6: no write is sent after the holder's deadline.

use serde_json::Value;

use crate::fuzz::world::{World, Write, text};

const LEASES: &str = "leases.coordination.k8s.io";

/// What every replica may write: its lease, its certificates and what it tells of events.
const WITHOUT_LEASE: &[&str] = &[LEASES, "secrets", "events", "events.events.k8s.io"];

/// A replica of a led program writes only while it holds the lease.
///
/// A request may have been under way when the lease ran out: the holder's own time-out bounds that.
pub(super) fn writer_holds_lease(world: &World, write: &Write) -> Result<(), String> {
    let Some((program, replica)) = write.writer.split_once('/') else { return Ok(()) };
    if !matches!(program, "admission-controller" | "gang-scheduler")
        || WITHOUT_LEASE.contains(&write.resource.as_str())
    {
        return Ok(());
    }
    let held = world.believable(LEASES, "trireme-system", program).any(|lease| {
        let holder = text(lease, "/spec/holderIdentity");
        holder == write.writer || holder == replica
    });
    let newest = world.get(LEASES, "trireme-system", program);
    let taken_over_at = newest.map_or(i64::MAX, |lease| acquired(lease));
    let current = newest.is_some_and(|lease| {
        let holder = text(lease, "/spec/holderIdentity");
        holder == write.writer || holder == replica
    });
    // Once another replica has acted as leader for a request's time-out, nothing of the old one may arrive any more.
    if current || (held && world.now < taken_over_at.saturating_add(REQUEST_TIMEOUT)) {
        return Ok(());
    }
    Err(format!("{} wrote {} {:?} without the lease", write.writer, write.resource, write.key()))
}

/// kit's time-out of a single request, in milliseconds.
const REQUEST_TIMEOUT: i64 = 4_000;

fn acquired(lease: &Value) -> i64 {
    text(lease, "/spec/acquireTime")
        .parse::<jiff::Timestamp>()
        .map_or(i64::MAX, jiff::Timestamp::as_millisecond)
}
