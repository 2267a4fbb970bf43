//! Events go an hour after they were last written (`--event-ttl` of kube-apiserver).

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::Cluster;
use crate::object::ObjectKey;
use crate::resources::GroupResource;
use crate::store::{Change, ChangeKind, Origin, Verb};

const TIME_TO_LIVE: SignedDuration = SignedDuration::from_hours(1);

/// One write of an event: all live equally long, so that they expire in the order in which they came.
struct Written {
    expires: Timestamp,
    key: ObjectKey,
    revision: u64,
}

/// Removes events in their time.
pub(super) async fn run(cluster: Cluster) {
    let events = GroupResource::core("events");
    let mut changes = cluster.store(super::WRITER).watch(&events);
    let mut written = VecDeque::new();
    loop {
        while let Some(change) = changes.try_next() {
            note(&mut written, &change, &cluster);
        }
        let now = cluster.0.clock.now();
        while written.front().is_some_and(|one: &Written| one.expires <= now) {
            written.pop_front().into_iter().for_each(|one| remove(&cluster, &events, &one));
        }
        let left = written.front().map(|one| one.expires.duration_since(now));
        tokio::select! {
            biased;
            change = changes.next() => note(&mut written, &change, &cluster),
            () = wait(&cluster, left) => {}
        }
    }
}

async fn wait(cluster: &Cluster, left: Option<SignedDuration>) {
    match left {
        Some(left) => cluster.0.clock.sleep(Duration::try_from(left).unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}

fn note(written: &mut VecDeque<Written>, change: &Change, cluster: &Cluster) {
    if change.kind != ChangeKind::Deleted {
        let expires = cluster.0.clock.now().saturating_add(TIME_TO_LIVE);
        let (key, revision) = (change.object.key().clone(), change.object.resource_version());
        // A time beyond what a clock can show never comes.
        written.extend(expires.ok().map(|expires| Written { expires, key, revision }));
    }
}

/// Removes the event unless it was written again, or deleted, since.
fn remove(cluster: &Cluster, events: &GroupResource, one: &Written) {
    let origin = Origin {
        writer: super::WRITER.into(),
        verb: Verb::Delete,
        subresource: "".into(),
        precise: true,
        at: cluster.0.clock.now(),
    };
    // The only refusal is that there is nothing to remove.
    let _ = cluster.state().remove(origin, events, &one.key, one.revision);
}
