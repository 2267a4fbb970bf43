//! The charts: rendered, refused, installed, upgraded and uninstalled by Helm; and whether what they say about the programs
//! (arguments, ports, configuration, permissions, webhooks) is true.

mod installed;
mod rendered;
mod story;
mod upgrade;
mod values;

use std::path::Path;

use crate::registry::Test;

const GPU: &str = "nvidia.com/gpu";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Every test of the charts.
pub(crate) fn all() -> Vec<Test> {
    [values::all(), rendered::all(), installed::all()].into_iter().flatten().collect()
}

/// The schema of a chart's values.
fn schema(repository: &Path, chart: &str) -> anyhow::Result<serde_json::Value> {
    let file = repository.join("charts").join(chart).join("values.schema.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}
