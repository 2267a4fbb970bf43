//! Documents that users of the peers submit: those of installed kinds are accepted, the others are listed as not ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cluster::{Applied, Applier, documents, yaml_files};
use crate::registry::{Outcome, Test, need};
use crate::stack;
use crate::world::World;

/// Documents that a server without our programs refuses too: `path: reason`, one a line.
const KNOWN: &str = include_str!("manifests.known");

/// One test per folder of `../shared/manifests`.
pub(crate) fn all(repository: &Path) -> Vec<Test> {
    let folders = match folders(&repository.join("../shared/manifests")) {
        Ok(folders) if !folders.is_empty() => folders,
        // Those that are known of are skipped, each by its name.
        _ => known().filter_map(|name| name.split('/').next()).map(str::to_owned).collect(),
    };
    let test = |folder: String| {
        Test::new(format!("manifests/{folder}"), move |world| check(world, folder.clone())).with_admission()
    };
    folders.into_iter().map(test).collect()
}

fn folders(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// What came of the documents of a folder.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    /// Documents by kind.
    foreign: BTreeMap<String, usize>,
    /// Files of no YAML or of templates, with the reason.
    unread: Vec<String>,
    /// What must not be: refusals that are not known, and known ones that are none.
    wrong: Vec<String>,
}

async fn check(world: Arc<World>, folder: String) -> Result<Outcome> {
    let running = need!(world.running());
    let root = need!(world.shared("manifests"));
    // Objects of the older version need the conversion.
    need!(world.tools.get(stack::ADMISSION));
    need!(stack::address(&world));
    stack::start_admission(&world, stack::ADMISSION).await?;
    let mut tally = Tally::default();
    let mut known: BTreeSet<&str> = known().filter(|name| name.split('/').next() == Some(&folder)).collect();
    for file in yaml_files(&root.join(&folder))? {
        let name = file.strip_prefix(&root)?.display().to_string();
        let all = match documents(&file) {
            Ok(all) => all,
            Err(error) => {
                let reason = format!("{:#}", error.root_cause());
                tally.unread.push(format!("{name}: {}", reason.lines().next().unwrap_or_default()));
                continue;
            }
        };
        let refused = tally.apply(&running.applier, &name, &all).await?;
        match (known.remove(name.as_str()), refused.is_empty()) {
            (true, true) => tally.wrong.push(format!("{name} is listed as refused, and is not any more")),
            (false, false) => tally.wrong.extend(refused),
            _ => (),
        }
    }
    tally.wrong.extend(known.iter().map(|name| format!("{name} is listed as refused, and was not read")));
    tally.report(&folder)
}

impl Tally {
    /// The refusals among the documents of a file.
    async fn apply(&mut self, applier: &Applier, name: &str, documents: &[Value]) -> Result<Vec<String>> {
        let mut refused = Vec::new();
        for document in documents {
            let word = |field: &str| document[field].as_str().unwrap_or_default();
            let kind = format!("{} {}", word("apiVersion"), word("kind"));
            match applier.apply(document, true).await.with_context(|| name.to_owned())? {
                Applied::Accepted(_) => self.accepted += 1,
                Applied::Unknown => *self.foreign.entry(kind).or_default() += 1,
                Applied::Refused(why) => refused.push(format!("{name} ({kind}): {why}")),
            }
        }
        Ok(refused)
    }

    fn report(&self, folder: &str) -> Result<Outcome> {
        let ours = self.foreign.keys().find(|kind| SERVED.iter().any(|group| kind.starts_with(group)));
        ensure!(ours.is_none(), "{ours:?} is not served");
        if !self.foreign.is_empty() {
            let list: Vec<_> = self.foreign.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
            println!("        not ours in {folder}: {}", list.join(", "));
        }
        for file in &self.unread {
            println!("        not read: {file}");
        }
        let wrong = &self.wrong;
        ensure!(wrong.is_empty(), "{} wrong, {} accepted:\n{}", wrong.len(), self.accepted, wrong.join("\n"));
        Ok(Outcome::Passed)
    }
}

/// What is ours to serve, whole.
const SERVED: [&str; 3] = ["kueue.x-k8s.io/", "scheduling.volcano.sh/", "trireme.dev/"];

/// The paths in [`KNOWN`].
fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(':').next())
}
