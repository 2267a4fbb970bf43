//! What a kubelet reads of a pod.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::node::{NodeSelector, Toleration};
use model::pod::PodResources;
use model::resources::{AmountError, ResourceList, ResourceName};
use serde::Deserialize;
use serde_json::Value;

/// A pod's uid: what a kubelet knows a pod by. Names come back, uids do not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub(crate) struct PodUid(pub(crate) Arc<str>);

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod, as far as a node is concerned with it.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) uid: PodUid,
    pub(crate) meta: Meta,
    pub(crate) spec: Spec,
    pub(crate) phase: String,
    /// What its containers ask for: the amounts, or why they cannot be read.
    pub(crate) requests: Result<ResourceList, AmountError>,
    /// Amounts by container, init containers included.
    pub(crate) by_container: BTreeMap<String, ResourceList>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    uid: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) deletion_grace_period_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) node_name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) containers: Vec<Container>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) init_containers: Vec<Container>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) restart_policy: RestartPolicy,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) affinity: Affinity,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) service_account_name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) hostname: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) node_affinity: NodeAffinity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Option<NodeSelector>,
}

/// What happens when a container ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) image: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) env: Vec<EnvVar>,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) env_from: Vec<EnvFrom>,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EnvVar {
    pub(crate) name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) value: String,
    pub(crate) value_from: Option<EnvSource>,
}

/// Where a variable's value comes from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EnvSource {
    pub(crate) field_ref: Option<FieldRef>,
    pub(crate) resource_field_ref: Option<ResourceFieldRef>,
    pub(crate) config_map_key_ref: Option<KeyRef>,
    pub(crate) secret_key_ref: Option<KeyRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FieldRef {
    pub(crate) field_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceFieldRef {
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) container_name: String,
    /// `limits.cpu`, `requests.memory`, …
    pub(crate) resource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KeyRef {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) optional: bool,
}

/// All keys of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EnvFrom {
    #[serde(deserialize_with = "model::null_as_default")]
    pub(crate) prefix: String,
    pub(crate) config_map_ref: Option<KeyRef>,
    pub(crate) secret_ref: Option<KeyRef>,
}

impl Pod {
    /// Reads a stored pod.
    pub(crate) fn read(value: &Value) -> Result<Self, serde_json::Error> {
        let meta = Meta::deserialize(&value["metadata"])?;
        let spec = Spec::deserialize(&value["spec"])?;
        let asked = PodResources::deserialize(&value["spec"])?;
        let by_container = asked
            .init_containers
            .iter()
            .chain(&asked.containers)
            .filter_map(|one| Some((one.name.clone(), one.resources.effective().ok()?)))
            .collect();
        Ok(Self {
            uid: PodUid(meta.uid.as_str().into()),
            phase: value["status"]["phase"].as_str().unwrap_or("Pending").to_owned(),
            requests: asked.effective_requests(),
            by_container,
            meta,
            spec,
        })
    }

    /// Whether it has ended for good.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether its deletion has begun.
    pub(crate) fn is_terminating(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// How long its containers may go on once its deletion has begun.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.meta.deletion_grace_period_seconds.unwrap_or(0))
    }

    /// The extended resources that a container asks for, in whole units.
    pub(crate) fn devices_of(&self, container: &str) -> BTreeMap<ResourceName, usize> {
        self.by_container
            .get(container)
            .into_iter()
            .flatten()
            .filter(|(resource, amount)| is_extended(resource.as_str()) && **amount > 0)
            .map(|(resource, amount)| (resource.clone(), usize::try_from(*amount).unwrap_or(usize::MAX)))
            .collect()
    }
}

/// Whether a resource is one that device plugins may serve: qualified, and not Kubernetes' own
/// (`IsExtendedResourceName` of the core API helpers).
pub(crate) fn is_extended(resource: &str) -> bool {
    let Some((domain, name)) = resource.split_once('/') else { return false };
    let label = |text: &str| {
        !text.is_empty()
            && text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let named = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let qualified = domain.len() <= 253
        && domain.split('.').all(|part| {
            label(part) && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        });
    !domain.ends_with("kubernetes.io")
        && !resource.starts_with("requests.")
        && qualified
        && named
        && label(name)
}

/// What a pod's annotations say its containers do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behaviour {
    /// How long the containers run; until the pod is deleted when absent.
    pub(crate) run_for: Option<Duration>,
    /// Exit codes of the first, second, … run; the last one stands for all further runs.
    pub(crate) exit_codes: Vec<i32>,
    /// How long they go on once they are told to stop; the whole grace period when absent.
    pub(crate) stop_after: Option<Duration>,
}

/// How long a pod's containers run: `30s`, `5m`, `1h`, `500ms`.
pub const RUN_FOR: &str = "sim.trireme.dev/run-for";
/// With what code they exit; a list is for the first, second, … run.
pub const EXIT_CODE: &str = "sim.trireme.dev/exit-code";
/// How long they go on once they are told to stop; never beyond the pod's grace period.
pub const STOP_AFTER: &str = "sim.trireme.dev/stop-after";

impl Behaviour {
    /// Reads the annotations, or says which one is wrong and how it should look.
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let duration_of = |name: &str| {
            annotations
                .get(name)
                .map(|text| {
                    duration(text).ok_or_else(|| {
                        format!("annotation {name}: {text:?} is not a duration; write for example \"30s\"")
                    })
                })
                .transpose()
        };
        let exit_codes = match annotations.get(EXIT_CODE) {
            None => vec![0],
            Some(text) => text
                .split(',')
                .map(|one| one.trim().parse::<u8>().map(i32::from))
                .collect::<Result<_, _>>()
                .map_err(|_| {
                    format!("annotation {EXIT_CODE}: {text:?} is not a list of codes from 0 to 255; write for example \"1\"")
                })?,
        };
        Ok(Self { run_for: duration_of(RUN_FOR)?, exit_codes, stop_after: duration_of(STOP_AFTER)? })
    }

    /// The exit code of the run with this number, counted from 0.
    pub(crate) fn exit_code(&self, run: u32) -> i32 {
        let last = self.exit_codes.len().saturating_sub(1);
        let run = usize::try_from(run).unwrap_or(usize::MAX);
        self.exit_codes.get(run.min(last)).copied().unwrap_or(0)
    }
}

/// A whole number and a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("30s", Some(30_000)),
            ("500ms", Some(500)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            (" 2s ", Some(2_000)),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("18446744073709551615h", None),
            ("", None),
        ] {
            assert_eq!(duration(text), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn exit_codes_go_by_run_and_the_last_one_stays() {
        let read = |text: &str| Behaviour::read(&[(EXIT_CODE.to_owned(), text.to_owned())].into());
        let codes = read("1, 2,0").unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|run| codes.exit_code(run)), [1, 2, 0, 0, 0]);
        assert_eq!(Behaviour::read(&BTreeMap::new()).unwrap().exit_code(7), 0);
        for bad in ["", "x", "256", "-1", "1,,2"] {
            assert!(read(bad).unwrap_err().contains(EXIT_CODE), "{bad:?}");
        }
    }

    #[test]
    fn extended_resources_are_qualified_and_not_kubernetes_own() {
        for (name, expected) in [
            ("nvidia.com/gpu", true),
            ("nvidia.com/mig-1g.10gb.me", true),
            ("cpu", false),
            ("kubernetes.io/x", false),
            ("node.kubernetes.io/x", false),
            ("requests.nvidia.com/gpu", false),
            ("nvidia.com/", false),
            ("NVIDIA.com/gpu", false),
            ("nvidia.com/-gpu", false),
            ("nvidia.com/a/b", false),
        ] {
            assert_eq!(is_extended(name), expected, "{name}");
        }
    }
}
