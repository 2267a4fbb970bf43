//! One pod on the node, from its admission to the end of its containers or of its object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde_json::Value;

use super::admission::{planned, pods};
use super::devices::Millis;
use super::env::{self, Surroundings};
use super::pod::{Container, Pod, PodUid};
use super::pod_status::{self, Addresses};
use super::{ContainerStart, Inner, is_gone, node_status, plugins};
use crate::{ApiError, DeleteOptions, GroupResource, Part};

/// Pause before a start that failed is tried again; doubled up to the longest.
const RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// Pause after a refused write.
const REWRITE: Duration = Duration::from_secs(1);

/// Refuses to touch another pod of the same name.
pub(super) fn same(value: &Value, uid: &PodUid) -> Result<(), ApiError> {
    if value["metadata"]["uid"] == *uid.0 {
        return Ok(());
    }
    Err(ApiError::not_found(&pods(), value["metadata"]["name"].as_str().unwrap_or_default()))
}

/// What to do next.
enum Next {
    /// Write the status, then wait until the time, if any.
    Report(Box<Value>, Option<Millis>),
    /// Its containers are over and so is its object.
    Forget,
    /// Its containers are over and its deletion waits for that.
    Remove(Box<Pod>),
}

/// Runs a pod. Safe to drop anywhere and to call again.
pub(super) async fn run(kubelet: Arc<Inner>, uid: PodUid) {
    let mut retry = RETRY;
    loop {
        let Some(changed) = kubelet.disk().pods.get(&uid).map(|taken| taken.changed.clone()) else { return };
        let prepared = prepare(&kubelet, &uid).await;
        let (next, over) = match step(&kubelet, &uid) {
            None => return,
            Some(Next::Forget) => {
                kubelet.disk().pods.remove(&uid);
                return;
            }
            Some(Next::Remove(pod)) => {
                remove(kubelet.clone(), *pod).await;
                (None, true)
            }
            Some(Next::Report(status, next)) => match report(&kubelet, &uid, *status).await {
                Ok(()) => (next, false),
                Err(_) => (Some(kubelet.now().saturating_add(millis(REWRITE))), false),
            },
        };
        let next = match prepared {
            Ok(()) => next,
            Err(()) if over => None,
            Err(()) => {
                let again = kubelet.now().saturating_add(millis(retry));
                retry = (retry * 2).min(LONGEST_RETRY);
                Some(next.map_or(again, |next| next.min(again)))
            }
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = until(&kubelet, next) => {}
        }
    }
}

async fn until(kubelet: &Inner, next: Option<Millis>) {
    match next.map(|at| u64::try_from(at.saturating_sub(kubelet.now())).unwrap_or(0)) {
        Some(left) => tokio::time::sleep(Duration::from_millis(left)).await,
        None => std::future::pending().await,
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// Finds out what the containers are to be started with, once. `Err`: not possible yet, the pod's status will say why.
async fn prepare(kubelet: &Inner, uid: &PodUid) -> Result<(), ()> {
    let pod = {
        let disk = kubelet.disk();
        let Some(taken) = disk.pods.get(uid) else { return Ok(()) };
        if !taken.starts.is_empty() || taken.run.is_stopping() || taken.run.is_over() {
            return Ok(());
        }
        taken.pod.clone()
    };
    let result = starts(kubelet, &pod).await;
    let mut disk = kubelet.disk();
    let Some(taken) = disk.pods.get_mut(uid) else { return Ok(()) };
    let (run, wrong) = planned(kubelet, &taken.pod, kubelet.now());
    match (result, wrong) {
        (Ok(starts), None) => {
            if taken.trouble.take().is_some() {
                // The annotations may have been mended; nothing has been started by the old ones.
                taken.run = run;
            }
            taken.starts = starts;
            Ok(())
        }
        (Ok(_), Some(wrong)) => {
            taken.trouble = Some(wrong);
            Ok(())
        }
        (Err(trouble), _) => {
            taken.trouble = Some(trouble);
            Err(())
        }
    }
}

async fn starts(kubelet: &Inner, pod: &Pod) -> Result<BTreeMap<String, ContainerStart>, String> {
    let address = kubelet.disk().pods.get(&pod.uid).map(|taken| taken.address.clone()).unwrap_or_default();
    let mut starts = BTreeMap::new();
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        plugins::pre_start(kubelet, pod, &container.name).await?;
        let start = start(kubelet, pod, container, &address).map_err(|error| error.to_string())?;
        starts.insert(container.name.clone(), start);
    }
    Ok(starts)
}

fn start(
    kubelet: &Inner,
    pod: &Pod,
    container: &Container,
    address: &str,
) -> Result<ContainerStart, env::EnvError> {
    let given = {
        let disk = kubelet.disk();
        disk.devices.given(&pod.uid, &container.name).cloned().unwrap_or_default()
    };
    let combined = plugins::combined(given.values());
    let facts = node_status::facts(kubelet);
    let data = |kind: &'static str, name: &str| data(kubelet, &pod.meta.namespace, kind, name);
    let around = Surroundings {
        node: &kubelet.spec.name,
        host_ip: &kubelet.spec.host_ip(),
        pod_ip: address,
        allocatable: &facts.allocatable,
        data: &data,
    };
    let env = env::environment(pod, container, combined.envs.clone(), &around)?;
    let devices = given.into_iter().map(|(resource, given)| (resource, given.ids)).collect();
    Ok(ContainerStart { env, given: combined, devices })
}

/// The data of a ConfigMap or Secret.
fn data(kubelet: &Inner, namespace: &str, kind: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let plural = if kind == "Secret" { "secrets" } else { "configmaps" };
    let object = kubelet.store.get(&GroupResource::core(plural), namespace, name)?;
    let entries = object.value()["data"].as_object().into_iter().flatten();
    let decoded = entries.filter_map(|(key, value)| {
        let text = value.as_str()?;
        let text = match plural {
            "secrets" => {
                String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).ok()?).ok()?
            }
            _ => text.to_owned(),
        };
        Some((key.clone(), text))
    });
    Some(decoded.collect())
}

/// Brings the containers up to now, frees the devices of a pod that is over, and says what to do next.
fn step(kubelet: &Inner, uid: &PodUid) -> Option<Next> {
    let now = kubelet.now();
    let mut disk = kubelet.disk();
    let host = kubelet.spec.host_ip();
    let taken = disk.pods.get_mut(uid)?;
    if taken.gone {
        taken.run.stop(now, Duration::ZERO);
    } else if taken.pod.is_terminating() && !taken.run.is_stopping() {
        taken.run.stop(now, taken.pod.grace());
    }
    if taken.trouble.is_none() {
        taken.run.advance(now);
    }
    let over = taken.run.is_over();
    // In trouble its containers would start at once, but may not.
    let next = if taken.trouble.is_none() { taken.run.next() } else { None };
    let (gone, terminating) = (taken.gone, taken.pod.is_terminating());
    let meta = taken.pod.meta.clone();
    let stored = kubelet.store.get(&pods(), &meta.namespace, &meta.name).filter(|pod| **pod.uid() == *uid.0);
    let addresses = Addresses { host, pod: taken.address.clone() };
    let old = stored.as_ref().map_or(&Value::Null, |pod| &pod.value()["status"]);
    let trouble = taken.trouble.as_deref();
    let status = pod_status::running(old, &taken.pod, &taken.run, trouble, &addresses, taken.since, now);
    let reported = *old == status || taken.reported.as_ref() == Some(&status);
    let pod = taken.pod.clone();
    if over {
        disk.devices.release(uid);
        // A pod that the node had no room for may find it now; the real one does not look again, so neither does this.
    }
    match (over, gone || stored.is_none(), terminating && reported) {
        (true, true, _) => Some(Next::Forget),
        (true, false, true) => Some(Next::Remove(Box::new(pod))),
        _ => Some(Next::Report(Box::new(status), next)),
    }
}

/// Writes the status if it differs from what is stored.
async fn report(kubelet: &Inner, uid: &PodUid, status: Value) -> Result<(), ApiError> {
    let (namespace, name, changed) = {
        let disk = kubelet.disk();
        let Some(taken) = disk.pods.get(uid) else { return Ok(()) };
        (taken.pod.meta.namespace.clone(), taken.pod.meta.name.clone(), taken.changed.clone())
    };
    match kubelet.store.get(&pods(), &namespace, &name) {
        Some(pod) if **pod.uid() == *uid.0 && pod.value()["status"] != status => {}
        _ => return Ok(()),
    }
    let reported = |disk: &mut super::Disk, status: Option<Value>| match disk.pods.get_mut(uid) {
        Some(taken) => std::mem::replace(&mut taken.reported, status),
        None => None,
    };
    if reported(&mut kubelet.disk(), Some(status.clone())).as_ref() == Some(&status) {
        return Ok(());
    }
    let change = |value: &mut Value| {
        same(value, uid)?;
        value["status"] = status.clone();
        Ok(())
    };
    let written = kubelet.store.update(&pods(), &namespace, &name, Part::Status, change).await;
    // Look again: a pod that is over and terminating may be removed now that its status is known.
    changed.notify_one();
    match written {
        Err(error) if !is_gone(&error) => {
            reported(&mut kubelet.disk(), None);
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Ends the deletion of a pod of which nothing runs here.
pub(super) async fn remove(kubelet: Arc<Inner>, pod: Pod) {
    let options = DeleteOptions::now().with_uid(&pod.uid.0);
    let deleted = kubelet.store.delete(&pods(), &pod.meta.namespace, &pod.meta.name, options).await;
    if let Err(error) = deleted
        && !matches!(error.code, 404 | 409)
    {
        tracing::warn!(pod = %format!("{}/{}", pod.meta.namespace, pod.meta.name), %error, "cannot remove the pod");
    }
}
