//! Pods come and go: the watch, and admission one pod at a time.

use std::sync::Arc;

use kit::Tasks;
use serde_json::Value;
use tokio::sync::Notify;

use super::admit::{self, Rejection};
use super::devices::Millis;
use super::pod::{Behaviour, Pod, PodUid};
use super::run::PodRun;
use super::{Inner, Taken, is_gone, lock, node_status, plugins, pod_status, worker};
use crate::{Change, ChangeKind, GroupResource, Part};

pub(super) fn pods() -> GroupResource {
    GroupResource::core("pods")
}

/// Follows the pods that are bound to this node.
pub(super) async fn follow(kubelet: Arc<Inner>, tasks: Tasks) {
    let mut changes = kubelet.store.watch(&pods());
    resume(&kubelet, &tasks);
    loop {
        let change = changes.next().await;
        if change.object.value()["spec"]["nodeName"] == kubelet.spec.name.as_str() {
            heed(&kubelet, &tasks, &change);
        }
    }
}

/// After a restart: the containers of before are still there, their pods perhaps not.
fn resume(kubelet: &Arc<Inner>, tasks: &Tasks) {
    let uids: Vec<PodUid> = kubelet.disk().pods.keys().cloned().collect();
    for uid in uids {
        let mut disk = kubelet.disk();
        let Some(taken) = disk.pods.get_mut(&uid) else { continue };
        let meta = &taken.pod.meta;
        let object = kubelet.store.get(&pods(), &meta.namespace, &meta.name);
        if object.is_none_or(|object| **object.uid() != *uid.0) {
            taken.gone = true;
        }
        drop(disk);
        super::spawn(tasks, worker::run(kubelet.clone(), uid));
    }
}

fn heed(kubelet: &Arc<Inner>, tasks: &Tasks, change: &Change) {
    let uid = PodUid(change.object.uid().clone());
    let mut disk = kubelet.disk();
    let pod = Pod::read(change.object.value());
    if let Some(taken) = disk.pods.get_mut(&uid) {
        if change.kind == ChangeKind::Deleted {
            taken.gone = true;
        } else if let Ok(pod) = pod {
            taken.pod = pod;
        }
        taken.changed.notify_one();
        return;
    }
    drop(disk);
    if change.kind == ChangeKind::Deleted {
        lock(&kubelet.queue).retain(|waiting| waiting.uid != uid);
        return;
    }
    match pod {
        Ok(pod) => arrive(kubelet, tasks, pod),
        Err(error) => {
            let object = change.object.clone();
            let rejection = Rejection::Unreadable(error.to_string());
            let kubelet = kubelet.clone();
            super::spawn(tasks, async move {
                refuse(&kubelet, &object.key().namespace, &object.key().name, &uid, &rejection).await;
            });
        }
    }
}

/// A pod that the node has not taken, or not yet.
fn arrive(kubelet: &Arc<Inner>, tasks: &Tasks, pod: Pod) {
    if pod.is_terminating() {
        // Nothing of it runs here: its deletion can be finished.
        lock(&kubelet.queue).retain(|waiting| waiting.uid != pod.uid);
        super::spawn(tasks, worker::remove(kubelet.clone(), pod));
        return;
    }
    if pod.is_terminal() {
        return;
    }
    let mut queue = lock(&kubelet.queue);
    match queue.iter_mut().find(|waiting| waiting.uid == pod.uid) {
        Some(waiting) => *waiting = pod,
        None => queue.push(pod),
    }
    kubelet.arrived.notify_one();
}

/// Admits the waiting pods, one after another.
pub(super) async fn admit(kubelet: Arc<Inner>, tasks: Tasks) {
    loop {
        let Some(pod) = take(&kubelet) else {
            kubelet.arrived.notified().await;
            continue;
        };
        if kubelet.disk().pods.contains_key(&pod.uid) || current(&kubelet, &pod).is_none() {
            continue;
        }
        match admitted(&kubelet, &pod).await {
            // Meanwhile it may have been deleted, and then nobody else will give its devices back.
            Ok(()) => match current(&kubelet, &pod) {
                Some(pod) => {
                    let uid = keep(&kubelet, pod);
                    super::spawn(&tasks, worker::run(kubelet.clone(), uid));
                }
                None => kubelet.disk().devices.release(&pod.uid),
            },
            Err(rejection) => {
                refuse(&kubelet, &pod.meta.namespace, &pod.meta.name, &pod.uid, &rejection).await;
            }
        }
    }
}

/// The pod as it is stored now, unless it is gone or going.
fn current(kubelet: &Inner, pod: &Pod) -> Option<Pod> {
    let object = kubelet.store.get(&pods(), &pod.meta.namespace, &pod.meta.name)?;
    Pod::read(object.value()).ok().filter(|stored| stored.uid == pod.uid && !stored.is_terminating())
}

fn take(kubelet: &Inner) -> Option<Pod> {
    let mut queue = lock(&kubelet.queue);
    let last = u64::try_from(queue.len().checked_sub(1)?).ok()?;
    let index = if kubelet.spec.shuffle && last > 0 { kubelet.rng.u64(0..=last) } else { 0 };
    Some(queue.remove(usize::try_from(index).ok()?))
}

/// First the devices, then the rest of the node: the order of the real kubelet's admission handlers.
async fn admitted(kubelet: &Inner, pod: &Pod) -> Result<(), Rejection> {
    plugins::allocate(kubelet, pod).await?;
    let facts = node_status::facts(kubelet);
    let mut disk = kubelet.disk();
    let fits = admit::check(&facts, pod, disk.active().map(|taken| &taken.pod));
    if fits.is_err() {
        disk.devices.release(&pod.uid);
    }
    fits
}

/// What the pod's containers will do, and what is wrong with its annotations about it.
pub(super) fn planned(kubelet: &Inner, pod: &Pod, now: Millis) -> (PodRun, Option<String>) {
    let (mut behaviour, trouble) = match Behaviour::read(&pod.meta.annotations) {
        Ok(behaviour) => (behaviour, None),
        Err(trouble) => (Behaviour::default(), Some(trouble)),
    };
    behaviour.stop_after = behaviour.stop_after.or(kubelet.spec.stop_after);
    let delay = Millis::try_from(kubelet.spec.start_delay.as_millis()).unwrap_or(Millis::MAX);
    (PodRun::new(pod, behaviour, now.saturating_add(delay)), trouble)
}

fn keep(kubelet: &Inner, pod: Pod) -> PodUid {
    let (uid, now) = (pod.uid.clone(), kubelet.now());
    let (run, trouble) = planned(kubelet, &pod, now);
    let mut disk = kubelet.disk();
    let address = kubelet.spec.pod_ip(disk.addresses);
    disk.addresses = disk.addresses.wrapping_add(1);
    let taken = Taken {
        pod,
        run,
        since: now,
        address,
        trouble,
        starts: Default::default(),
        gone: false,
        reported: None,
        changed: Arc::new(Notify::new()),
    };
    disk.pods.insert(uid.clone(), taken);
    uid
}

/// The pod fails, for good: the kubelet never tries a rejected pod again.
async fn refuse(kubelet: &Inner, namespace: &str, name: &str, uid: &PodUid, rejection: &Rejection) {
    let now = kubelet.now();
    let (reason, message) = (rejection.reason(), rejection.to_string());
    let change = |value: &mut Value| {
        worker::same(value, uid)?;
        value["status"] = pod_status::refused(&value["status"], &reason, &message, now);
        Ok(())
    };
    if let Err(error) = kubelet.store.update(&pods(), namespace, name, Part::Status, change).await
        && !is_gone(&error)
    {
        tracing::warn!(pod = %format!("{namespace}/{name}"), %error, "cannot report that the pod was rejected");
    }
}
