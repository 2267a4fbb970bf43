//! Random faults, crashes and histories: what must hold after every write, and what must hold when the faults stop.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_sim::faults::{Aim, Fault, WatchFault};
use harness::{GPU, Harness};
use kit::Rng;
use kube::api::DeleteParams;

const NODES: [(&str, u32); 3] = [("a", 4), ("b", 3), ("c", 2)];
const CAPACITY: u32 = 9;
const SEEDS: u64 = 25;

/// GPUs in use by node, kept from the commits; the first moment of too many is remembered.
#[derive(Default)]
struct Usage {
    by_pod: BTreeMap<String, String>,
    broken: Option<String>,
}

impl Usage {
    fn take(&mut self, commit: &cluster_sim::Commit) {
        if commit.resource.resource.as_ref() != "pods" {
            return;
        }
        let node =
            commit.new.as_ref().and_then(|pod| pod.value()["spec"]["nodeName"].as_str().map(str::to_owned));
        let uid = commit.uid.to_string();
        match node {
            Some(node) => {
                self.by_pod.insert(uid, node);
            }
            None => {
                self.by_pod.remove(&uid);
            }
        }
        for (name, gpus) in NODES {
            let used = self.by_pod.values().filter(|node| *node == name).count();
            if used > usize::try_from(gpus).unwrap() {
                self.broken.get_or_insert(format!(
                    "{name} has {used} of {gpus} {GPU} by revision {}",
                    commit.revision
                ));
            }
        }
    }
}

async fn episode(seed: u64) {
    let rng = Rng::seeded(seed);
    let roll = |below: u64| rng.u64(..below);
    let mut harness = Harness::new().await;
    for (name, gpus) in NODES {
        harness.node(name, gpus).await;
    }
    let usage = Arc::new(Mutex::new(Usage::default()));
    let observer = usage.clone();
    harness.cluster.on_commit(move |commit| observer.lock().unwrap().take(commit));
    let faults = harness.cluster.faults();
    for fault in [
        Fault::Conflict,
        Fault::LostResponse,
        Fault::LostRequest,
        Fault::ServerError(503),
        Fault::TimeoutAfterWrite,
        Fault::Latency(Duration::from_millis(800)),
    ] {
        faults.add(Aim::writes().by("gang-scheduler"), 30_000, u64::MAX, fault);
    }
    for fault in [
        WatchFault::Delay(Duration::from_secs(2)),
        WatchFault::Duplicate,
        WatchFault::Close,
        WatchFault::Expire,
    ] {
        faults.add_watch(Aim::default().by("watch"), 20_000, u64::MAX, fault);
    }
    let job = harness.job("owner").await;
    let mut leader = harness.start().0;
    let mut sizes = BTreeMap::new();
    for number in 0..7 {
        let group = format!("g{number}");
        let size = 1 + u32::try_from(roll(4)).unwrap();
        let minimum = if roll(3) == 0 { 1.max(size - 1) } else { size };
        sizes.insert(group.clone(), (size, minimum));
        harness.pod_group(&group, minimum.into()).await;
        harness.group_pods(&group, size, Some(&job)).await;
        harness.sleep(roll(20)).await;
        if roll(4) == 0 {
            leader.kill();
            leader = harness.start().0;
        }
        if roll(3) == 0 {
            // Somebody deletes a whole gang, bound or not.
            let victim = format!("g{}", roll(number + 1));
            remove(&harness, &victim, sizes.get(&victim).map_or(0, |sizes| sizes.0)).await;
            sizes.remove(&victim);
        }
    }
    harness.sleep(60).await;
    harness.cluster.faults().clear();
    harness.sleep(240).await;
    assert_eq!(usage.lock().unwrap().broken, None, "seed {seed}");

    let bound = harness.bound().await;
    let mut used = 0;
    let mut waiting = Vec::new();
    for (group, (size, minimum)) in &sizes {
        let count = bound.iter().filter(|(pod, _)| pod.starts_with(&format!("{group}-"))).count();
        let count = u32::try_from(count).unwrap();
        used += count;
        assert!(
            count == 0 || count >= *minimum,
            "seed {seed}: {group} has {count} of {minimum}: {:?}",
            harness.written()
        );
        if count == 0 {
            waiting.push((group.clone(), *size, *minimum));
        }
    }
    for (group, size, minimum) in waiting {
        assert!(used + minimum > CAPACITY, "seed {seed}: {group} of {size} would fit, {used} are used");
        let reason = harness.unscheduled(&format!("{group}-0")).await.0;
        assert_eq!(reason, "Unschedulable", "seed {seed}: {group}");
    }
    let before = harness.written().len();
    harness.sleep(600).await;
    assert_eq!(harness.written().len(), before, "seed {seed}: writes go on: {:?}", harness.written());
    leader.kill();
}

async fn remove(harness: &Harness, group: &str, size: u32) {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for index in 0..size {
        // An undone gang's pods are gone already: nobody recreates them here.
        let _gone = harness.pods_api().delete(&format!("{group}-{index}"), &now).await;
    }
}

#[test]
fn faults_do_no_harm() {
    for seed in 0..SEEDS {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(episode(seed));
    }
}
