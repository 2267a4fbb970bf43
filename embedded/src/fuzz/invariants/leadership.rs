//! Invariant 6: no write is sent after the holder's deadline.

use crate::fuzz::world::{GRACE, World, Write, text};

const LEASES: &str = "leases.coordination.k8s.io";
const NAMESPACE: &str = "trireme-system";

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
    // Once it is seen to have passed to another for a request's time-out, nothing of the old holder may arrive any more.
    let is_there = world.get(LEASES, NAMESPACE, program).is_some();
    let allowed = if is_there { REQUEST_TIMEOUT } else { GRACE };
    let held = world.within(allowed, LEASES, NAMESPACE, program).any(|lease| {
        let holder = text(lease, "/spec/holderIdentity");
        holder == write.writer || holder == replica
    });
    if held {
        return Ok(());
    }
    Err(format!("{} wrote {} {:?} without the lease", write.writer, write.resource, write.key()))
}

/// kit's time-out of a single request, in milliseconds.
const REQUEST_TIMEOUT: i64 = 4_000;
