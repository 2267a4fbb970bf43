//! Documents that users of the peers submit: those of installed kinds are accepted, the others are listed as not ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{Applied, documents, yaml_files};
use crate::registry::{Outcome, Test, need};
use crate::stack;
use crate::world::World;

/// Folders of ../shared/manifests.
const FOLDERS: [&str; 16] = [
    "appwrapper",
    "jobset",
    "kai",
    "kubeflow-mpi-operator",
    "kubeflow-trainer",
    "kubeflow-training-operator",
    "kuberay",
    "kueue",
    "lws",
    "nvidia-dcgm-exporter",
    "nvidia-device-plugin",
    "nvidia-gpu-operator",
    "nvidia-mig-parted",
    "scheduler-plugins",
    "seed",
    "volcano",
];

/// Documents that a server without our programs refuses too: `path: reason`, one a line.
const KNOWN: &str = include_str!("manifests.known");

/// One test per folder.
pub(crate) fn all() -> Vec<Test> {
    FOLDERS
        .map(|folder| {
            Test::new(format!("manifests/{folder}"), move |world| check(world, folder)).with_admission()
        })
        .into()
}

async fn check(world: Arc<World>, folder: &str) -> Result<Outcome> {
    let running = need!(world.running());
    let root = need!(world.shared("manifests"));
    // Objects of the older version need the conversion.
    need!(world.tools.get(stack::ADMISSION));
    need!(stack::address(&world));
    stack::start_admission(&world, stack::ADMISSION).await?;
    let applier = &running.applier;
    let mut refused = Vec::new();
    let mut foreign: BTreeMap<String, usize> = BTreeMap::new();
    let mut accepted = 0;
    for file in yaml_files(&root.join(folder))? {
        let name = file.strip_prefix(&root)?.display().to_string();
        if known(&name) {
            continue;
        }
        // Templates and configuration files with placeholders are no objects.
        let Ok(all) = documents(&file) else { continue };
        for document in all {
            let kind = format!(
                "{} {}",
                document["apiVersion"].as_str().unwrap_or(""),
                document["kind"].as_str().unwrap_or("")
            );
            match applier.apply(&document, true).await.with_context(|| name.clone())? {
                Applied::Accepted(_) => accepted += 1,
                Applied::Unknown => *foreign.entry(kind).or_default() += 1,
                Applied::Refused(why) => refused.push(format!("{name} ({kind}): {why}")),
            }
        }
    }
    if !foreign.is_empty() {
        let list: Vec<_> = foreign.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
        println!("        not ours in {folder}: {}", list.join(", "));
    }
    ensure!(
        refused.is_empty(),
        "{} documents were refused, {accepted} accepted:\n{}",
        refused.len(),
        refused.join("\n")
    );
    Ok(Outcome::Passed)
}

fn known(name: &str) -> bool {
    KNOWN.lines().filter(|line| !line.starts_with('#')).any(|line| line.split(':').next() == Some(name))
}
