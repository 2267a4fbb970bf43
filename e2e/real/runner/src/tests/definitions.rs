//! Our own CustomResourceDefinitions: the real server takes their schemas and their CEL rules.

mod rules;

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::cluster::{documents, yaml_files};
use crate::registry::{Outcome, Test, need};

/// One test per definition in crds/generated, and those of their rules.
pub(crate) fn all(repository: &Path) -> Vec<Test> {
    let files = yaml_files(&repository.join("crds/generated")).unwrap_or_default();
    let names = files.iter().filter_map(|file| documents(file).ok()).flatten();
    let names = names.filter_map(|definition| definition["metadata"]["name"].as_str().map(str::to_owned));
    names.map(test).chain(rules::all()).collect()
}

fn test(name: String) -> Test {
    Test::new(format!("definitions/{name}"), move |world| {
        let name = name.clone();
        async move {
            let running = need!(world.running());
            let outcome = running.definitions.get(&name).context("it was not applied")?;
            ensure!(outcome.is_ok(), "refused: {}", outcome.as_ref().err().map_or("", String::as_str));
            Ok(Outcome::Passed)
        }
    })
}
