//! What the simulated server takes from the real one's OpenAPI.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::cluster::get;
use crate::registry::{Outcome, Test, need};
use crate::world::World;

/// The table of merge keys, below the root of the repository.
const MERGE_KEYS: &str = "cluster-sim/src/patch/merge-keys.txt";

/// When set, the table is written instead of compared.
const UPDATE: &str = "TRIREME_E2E_UPDATE";

/// Modules of Kubernetes itself: what else is in a server's OpenAPI comes from CustomResourceDefinitions, which know no
/// strategic merge.
const BUILTIN: [&str; 4] =
    ["io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator."];

const HEAD: &str = "\
# How the fields of built-in kinds take a strategic merge patch: KIND PATH STRATEGY KEY. Elements of lists add nothing to a path.
# Made from x-kubernetes-patch-strategy and x-kubernetes-patch-merge-key in the real server's /openapi/v2 by
# `TRIREME_E2E_UPDATE=1 e2e/real/run openapi/`, which also compares them. Without KEY (`-`) a list of plain values is a set.
";

/// Tests of the tables.
pub(crate) fn all() -> Vec<Test> {
    vec![Test::new("openapi/the_table_of_merge_keys_is_that_of_the_real_server", merge_keys)]
}

async fn merge_keys(world: Arc<World>) -> Result<Outcome> {
    let running = need!(world.running());
    let rows = Definitions::read(get(&running.plane.client, "/openapi/v2").await?).rows()?;
    let mut made = HEAD.to_owned();
    for ((kind, path), how) in &rows {
        made.push_str(&format!("{kind} {path} {how}\n"));
    }
    let file = world.repository.join(MERGE_KEYS);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, made)?;
        return Ok(Outcome::Passed);
    }
    let kept = std::fs::read_to_string(&file)?;
    let (kept, made): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), made.lines().collect());
    let differences: Vec<_> = kept.symmetric_difference(&made).take(20).collect();
    ensure!(differences.is_empty(), "{MERGE_KEYS} is stale ({UPDATE}=1 writes it): {differences:#?}");
    Ok(Outcome::Passed)
}

/// Kind and path, to strategy and key.
type Rows = BTreeMap<(String, String), String>;

struct Definitions {
    /// Group, version and kind of what can be patched.
    patched: BTreeSet<String>,
    all: BTreeMap<String, Value>,
}

impl Definitions {
    fn read(mut openapi: Value) -> Self {
        let paths = openapi["paths"].as_object().into_iter().flat_map(serde_json::Map::values);
        let kinds = paths.map(|path| &path["patch"]["x-kubernetes-group-version-kind"]);
        let patched = kinds.filter(|kind| !kind.is_null()).map(Value::to_string).collect();
        let all = match openapi["definitions"].take() {
            Value::Object(all) => all.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        Self { patched, all }
    }

    fn rows(&self) -> Result<Rows> {
        let mut rows = Rows::new();
        for (name, definition) in &self.all {
            if !BUILTIN.iter().any(|module| name.starts_with(module)) {
                continue;
            }
            let kinds = definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
            for kind in kinds.filter(|kind| self.patched.contains(&kind.to_string())) {
                let kind = kind["kind"].as_str().unwrap_or_default();
                self.walk(kind, name, "", &mut vec![], &mut rows)?;
            }
        }
        ensure!(!rows.is_empty(), "no patch strategies in the server's OpenAPI");
        Ok(rows)
    }

    /// Adds the rows of a definition. `outer` are those in which it stands: one that contains itself ends there.
    fn walk<'a>(
        &'a self,
        kind: &str,
        name: &'a str,
        path: &str,
        outer: &mut Vec<&'a str>,
        rows: &mut Rows,
    ) -> Result<()> {
        if outer.contains(&name) {
            return Ok(());
        }
        outer.push(name);
        let properties = self.all.get(name).and_then(|definition| definition["properties"].as_object());
        for (field, schema) in properties.into_iter().flatten() {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            if let Some(strategy) = schema["x-kubernetes-patch-strategy"].as_str() {
                let how =
                    format!("{strategy} {}", schema["x-kubernetes-patch-merge-key"].as_str().unwrap_or("-"));
                // The table knows kinds by name alone: versions and groups must agree where they share one.
                let before = rows.insert((kind.to_owned(), path.clone()), how.clone());
                ensure!(before.is_none_or(|before| before == how), "{kind} {path} is patched in two ways");
            }
            let next = schema["$ref"].as_str().or_else(|| schema["items"]["$ref"].as_str());
            if let Some(next) = next.and_then(|reference| reference.strip_prefix("#/definitions/")) {
                self.walk(kind, next, &path, outer, rows)?;
            }
        }
        outer.pop();
        Ok(())
    }
}
