//! Resources of containers and pods.

use model::Quantity;
use serde_json::Value;

use super::{Findings, Gates, Path};

/// The quota layer counts pods under this name itself.
const PODS: &str = "pods";

/// `requests` and `limits` of what is here.
pub(super) fn resources(resources: &Value, gates: Gates, at: &Path<'_>, findings: &mut Findings) {
    for list in ["requests", "limits"] {
        let at = at.field(list);
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let at = at.key(name);
            if name == PODS {
                findings.invalid(&at, PODS, "pods are counted without being asked for");
            }
            let amount = match value {
                Value::String(text) => text.parse::<Quantity>(),
                other => other.to_string().parse(),
            };
            match amount {
                Ok(amount) if gates.non_negative_resources && amount.is_negative() => {
                    findings.invalid(&at, value.clone(), "must be 0 or more");
                }
                Ok(_) => {}
                Err(error) => findings.invalid_whole(&at, format!("must be a quantity: {error}")),
            }
        }
    }
}
