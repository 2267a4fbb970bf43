//! Every field of Kueue's `Configuration` (`apis/config/v1beta1` and `v1beta2`), and what becomes of it here.
//!
//! Kueue's file is read as it is: what is not honoured is taken out before the rest is decoded, and named at start. What is no
//! field of Kueue's is refused by name, as Kueue does.

use std::collections::BTreeSet;
use std::path::Path;

use kit::config::ConfigError;
use serde_json::{Map, Value, json};

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
enum Support {
    /// It does what it does in Kueue.
    Honoured,
    /// This value is what happens here; any other is named.
    Only(&'static str),
    /// It has nothing to say here, for this reason.
    Moot(&'static str),
    /// What it asks for is not done, for this reason.
    Unsupported(&'static str),
}

/// The versions of the file that have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Both,
    V1beta1,
    V1beta2,
    /// None: it is this program's own.
    Neither,
}

use In::{Both, Neither, V1beta1, V1beta2};
use Support::{Honoured, Moot, Only, Unsupported};

const ONE_TASK: Support = Moot("one task decides, and the number of its writes under way is bounded");
const NO_LIMIT: Support = Moot("the API server's priority and fairness is the limit");
const OWN_CERTIFICATES: Support = Moot("the certificates are this program's own");
const ADMIN: Support =
    Moot("--admin-address says where health and metrics are served, as /healthz, /readyz and /metrics");
const LEASE_TERMS: Support = Moot("a lease lasts 15 s and is looked at every 2 s");
const NO_MULTIKUEUE: Support = Unsupported("there is no MultiKueue");

/// A field by its path; what lies below an entry is its own business.
const FIELDS: &[(&str, In, Support)] = &[
    ("apiVersion", Both, Honoured),
    ("kind", Both, Honoured),
    ("namespace", Both, Honoured),
    ("schedulerName", Neither, Honoured),
    ("takeOver", Neither, Honoured),
    ("webhook.port", Both, Honoured),
    ("webhook.host", Both, Moot("webhooks are served on all addresses")),
    ("webhook.certDir", Both, OWN_CERTIFICATES),
    ("leaderElection.leaderElect", Both, Honoured),
    ("leaderElection.resourceName", Both, Honoured),
    ("leaderElection.resourceNamespace", Both, Honoured),
    ("leaderElection.resourceLock", Both, Only("leases")),
    ("leaderElection.leaseDuration", Both, LEASE_TERMS),
    ("leaderElection.renewDeadline", Both, LEASE_TERMS),
    ("leaderElection.retryPeriod", Both, LEASE_TERMS),
    ("metrics.bindAddress", Both, ADMIN),
    ("metrics.enableClusterQueueResources", Both, Honoured),
    ("metrics.customLabels", Both, Honoured),
    ("metrics.localQueueMetrics.enable", Both, Honoured),
    ("metrics.localQueueMetrics.localQueueSelector", Both, Honoured),
    ("health.healthProbeBindAddress", Both, ADMIN),
    ("health.readinessEndpointName", Both, ADMIN),
    ("health.livenessEndpointName", Both, ADMIN),
    ("pprofBindAddress", Both, Unsupported("there is no profiler to be asked")),
    ("controller.groupKindConcurrency", Both, ONE_TASK),
    ("controller.cacheSyncTimeout", Both, Moot("first lists are waited for as long as they take")),
    ("tls.minVersion", Both, Only("VersionTLS12")),
    ("tls.cipherSuites", Both, Unsupported("the library's safe suites are used")),
    ("tls.curvePreferences", Both, Unsupported("the library's safe groups are used")),
    ("manageJobsWithoutQueueName", Both, Honoured),
    ("managedJobsNamespaceSelector", Both, Honoured),
    ("internalCertManagement.enable", Both, Only("true")),
    ("internalCertManagement.webhookServiceName", Both, OWN_CERTIFICATES),
    ("internalCertManagement.webhookSecretName", Both, OWN_CERTIFICATES),
    ("waitForPodsReady.enable", V1beta1, Honoured),
    ("waitForPodsReady.timeout", Both, Honoured),
    ("waitForPodsReady.blockAdmission", Both, Honoured),
    ("waitForPodsReady.requeuingStrategy", Both, Honoured),
    ("waitForPodsReady.recoveryTimeout", Both, Honoured),
    ("clientConnection.qps", Both, NO_LIMIT),
    ("clientConnection.burst", Both, NO_LIMIT),
    ("integrations.frameworks", Both, Honoured),
    ("integrations.externalFrameworks", Both, Honoured),
    ("integrations.labelKeysToCopy", Both, Honoured),
    ("integrations.kinds", Neither, Honoured),
    ("integrations.podOptions", V1beta1, Moot("Kueue itself no longer looks at it")),
    ("queueVisibility.clusterQueues", V1beta1, Moot("Kueue itself no longer looks at it")),
    ("queueVisibility.updateIntervalSeconds", V1beta1, Moot("Kueue itself no longer looks at it")),
    ("multiKueue.gcInterval", Both, NO_MULTIKUEUE),
    ("multiKueue.origin", Both, NO_MULTIKUEUE),
    ("multiKueue.workerLostTimeout", Both, NO_MULTIKUEUE),
    ("multiKueue.dispatcherName", Both, NO_MULTIKUEUE),
    ("multiKueue.externalFrameworks", Both, NO_MULTIKUEUE),
    ("multiKueue.clusterProfile", V1beta2, NO_MULTIKUEUE),
    ("multiKueue.incrementalDispatcherConfig", V1beta2, NO_MULTIKUEUE),
    ("fairSharing.enable", V1beta1, Honoured),
    ("fairSharing.preemptionStrategies", Both, Honoured),
    ("admissionFairSharing.usageHalfLifeTime", Both, Honoured),
    ("admissionFairSharing.usageSamplingInterval", Both, Honoured),
    ("admissionFairSharing.resourceWeights", Both, Honoured),
    ("resources.quotaCheckStrategy", V1beta2, Honoured),
    ("resources.excludeResourcePrefixes", Both, Honoured),
    ("resources.transformations", Both, Honoured),
    ("resources.deviceClassMappings", Both, Unsupported("workloads with resource claims are not admitted")),
    ("featureGates", Both, Honoured),
    ("objectRetentionPolicies.workloads", Both, Honoured),
    ("visibilityServer.bindAddress", V1beta2, Moot("visibility is served where the webhooks are")),
    ("visibilityServer.bindPort", V1beta2, Moot("visibility is served where the webhooks are")),
];

/// The paths of all fields that a file may have; what lies below one of them is its own business.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(path, ..)| *path)
}

/// A setting of the file that does not do what it does in Kueue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// Its path.
    pub field: String,
    /// What becomes of it.
    pub words: String,
    /// Whether something is asked for that is not done.
    pub unsupported: bool,
}

/// Takes out of a file what is not honoured, and tells what that was.
///
/// # Errors
/// Names the first field that the file's version does not have.
pub(super) fn sift(path: &Path, file: &mut Value) -> Result<Vec<Notice>, ConfigError> {
    if file.is_null() {
        *file = Value::Object(Map::new());
    }
    let version = match file["apiVersion"].as_str() {
        Some("config.kueue.x-k8s.io/v1beta1") => V1beta1,
        // As in Kueue's decoder, a file that does not say has the version that it is decoded to.
        None | Some("config.kueue.x-k8s.io/v1beta2") => V1beta2,
        Some(_) => {
            let reason = "it must be config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1";
            return Err(ConfigError::invalid(path, "apiVersion", reason));
        }
    };
    let mut notices = Vec::new();
    sift_level(path, version, "", file, &mut notices)?;
    if version == V1beta1 {
        refuse_newer(path, file)?;
    }
    Ok(notices)
}

/// Refuses what `metrics.customLabels` of the older version do not have.
fn refuse_newer(path: &Path, file: &Value) -> Result<(), ConfigError> {
    let labels = file.pointer("/metrics/customLabels").and_then(Value::as_array);
    for (index, label) in labels.into_iter().flatten().enumerate() {
        for key in ["sourceKind", "trackedValues"] {
            if label.get(key).is_some() {
                let field = format!("metrics.customLabels[{index}].{key}");
                return Err(unknown(path, &field, key, "name, sourceAnnotationKey, sourceLabelKey"));
            }
        }
    }
    Ok(())
}

fn sift_level(
    path: &Path,
    version: In,
    at: &str,
    level: &mut Value,
    notices: &mut Vec<Notice>,
) -> Result<(), ConfigError> {
    let Some(object) = level.as_object_mut() else {
        return Err(ConfigError::invalid(path, at.trim_end_matches('.'), "it must be an object"));
    };
    let mut moot = Vec::new();
    for (key, value) in object.iter_mut() {
        let field = format!("{at}{key}");
        let inside = format!("{field}.");
        let entry = FIELDS.iter().find(|(name, known, _)| *name == field && is_in(*known, version));
        let is_section =
            || FIELDS.iter().any(|(name, known, _)| name.starts_with(&inside) && is_in(*known, version));
        match entry {
            // What is null is as good as absent, as in Kueue: a section all of whose fields are commented out, say.
            _ if value.is_null() && (entry.is_some() || is_section()) => moot.push(key.clone()),
            Some((_, _, Honoured)) => settle_nulls(key, value),
            Some((_, _, support)) => {
                if let Some(notice) = noticed(field, *support, value) {
                    notices.push(notice);
                }
                moot.push(key.clone());
            }
            None if is_section() => {
                sift_level(path, version, &inside, value, notices)?;
                // What stays empty was all taken out; but an empty object may mean something of its own (`fairSharing: {}`).
                let honours = |(name, _, support): &(&str, In, Support)| {
                    name.starts_with(&inside) && matches!(support, Honoured)
                };
                if !FIELDS.iter().any(honours) {
                    moot.push(key.clone());
                }
            }
            None => {
                let mut known = known_at(version, at).into_iter().collect::<Vec<_>>().join(", ");
                if FIELDS.iter().any(|(name, ..)| *name == field || name.starts_with(&inside)) {
                    let other = if version == V1beta1 { "v1beta2" } else { "v1beta1" };
                    known = format!("{known}; it is one of {other}, which apiVersion does not name");
                }
                return Err(unknown(path, &field, key, &known));
            }
        }
    }
    for key in moot {
        object.remove(&key);
    }
    Ok(())
}

/// Takes nulls out of what lies below an entry, where they are as good as absent. In a map the key is there, with what Go
/// makes of a null; what a list has is left to whoever decodes it.
fn settle_nulls(name: &str, value: &mut Value) {
    let zero = match name {
        "featureGates" => Some(json!(false)),
        "matchLabels" => Some(json!("")),
        "outputs" | "resourceWeights" => Some(json!(0)),
        _ => None,
    };
    match value {
        Value::Object(object) => {
            if let Some(zero) = zero {
                object.values_mut().filter(|one| one.is_null()).for_each(|one| *one = zero.clone());
            }
            object.retain(|_, one| !one.is_null());
            object.iter_mut().for_each(|(key, one)| settle_nulls(key, one));
        }
        Value::Array(list) => list.iter_mut().for_each(|one| settle_nulls(name, one)),
        _ => {}
    }
}

/// What is no field, with those there are.
pub(super) fn unknown(path: &Path, field: &str, key: &str, known: &str) -> ConfigError {
    ConfigError::invalid(path, field, format!("unknown field {key}, expected one of {known}"))
}

fn is_in(known: In, version: In) -> bool {
    known == Both || known == Neither || known == version
}

fn known_at(version: In, at: &str) -> BTreeSet<&'static str> {
    let below = FIELDS
        .iter()
        .filter(|(_, known, _)| is_in(*known, version))
        .filter_map(|(name, ..)| name.strip_prefix(at));
    below.filter_map(|rest| rest.split('.').next()).collect()
}

fn noticed(field: String, support: Support, value: &Value) -> Option<Notice> {
    let (words, unsupported) = match support {
        Honoured => return None,
        Only(only) => {
            let said = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if said == only {
                return None;
            }
            (format!("only {only} is supported"), true)
        }
        Moot(why) => (format!("it has no effect here: {why}"), false),
        Unsupported(why) => (format!("it is not supported: {why}"), true),
    };
    Some(Notice { field, words, unsupported })
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    /// Every field of `apis/config/VERSION/configuration_types.go`, by its JSON name, down to where a kind of value begins.
    const V1BETA1: &str = "namespace webhook.port webhook.host webhook.certDir leaderElection.leaderElect leaderElection.leaseDuration \
        leaderElection.renewDeadline leaderElection.retryPeriod leaderElection.resourceLock leaderElection.resourceName \
        leaderElection.resourceNamespace metrics.bindAddress metrics.enableClusterQueueResources metrics.customLabels \
        metrics.localQueueMetrics.enable metrics.localQueueMetrics.localQueueSelector health.healthProbeBindAddress \
        health.readinessEndpointName health.livenessEndpointName pprofBindAddress controller.groupKindConcurrency \
        controller.cacheSyncTimeout tls.minVersion tls.cipherSuites tls.curvePreferences manageJobsWithoutQueueName \
        managedJobsNamespaceSelector internalCertManagement.enable internalCertManagement.webhookServiceName \
        internalCertManagement.webhookSecretName waitForPodsReady.enable waitForPodsReady.timeout waitForPodsReady.blockAdmission \
        waitForPodsReady.requeuingStrategy waitForPodsReady.recoveryTimeout clientConnection.qps clientConnection.burst \
        integrations.frameworks integrations.externalFrameworks integrations.podOptions integrations.labelKeysToCopy \
        queueVisibility.updateIntervalSeconds queueVisibility.clusterQueues multiKueue.gcInterval multiKueue.origin \
        multiKueue.workerLostTimeout multiKueue.dispatcherName multiKueue.externalFrameworks fairSharing.enable \
        fairSharing.preemptionStrategies admissionFairSharing.usageHalfLifeTime admissionFairSharing.usageSamplingInterval \
        admissionFairSharing.resourceWeights resources.excludeResourcePrefixes resources.transformations \
        resources.deviceClassMappings featureGates objectRetentionPolicies.workloads";
    const ONLY_V1BETA1: &[&str] = &[
        "waitForPodsReady.enable",
        "integrations.podOptions",
        "queueVisibility.updateIntervalSeconds",
        "queueVisibility.clusterQueues",
        "fairSharing.enable",
    ];
    const ONLY_V1BETA2: &[&str] = &[
        "multiKueue.clusterProfile",
        "multiKueue.incrementalDispatcherConfig",
        "resources.quotaCheckStrategy",
        "visibilityServer.bindAddress",
        "visibilityServer.bindPort",
    ];

    fn file(version: &str, field: &str) -> Value {
        let mut value = json!("x");
        for key in field.rsplit('.') {
            value = json!({ key: value });
        }
        value["apiVersion"] = json!(format!("config.kueue.x-k8s.io/{version}"));
        value
    }

    /// Each field of each version is honoured, or named; a field of the other version is refused by name.
    #[test]
    fn every_field_of_both_versions_is_honoured_or_named() {
        let v1beta1: Vec<&str> = V1BETA1.split_whitespace().collect();
        let both = v1beta1.iter().copied().filter(|field| !ONLY_V1BETA1.contains(field));
        let v1beta2: Vec<&str> = both.chain(ONLY_V1BETA2.iter().copied()).collect();
        for (version, fields) in [("v1beta1", &v1beta1), ("v1beta2", &v1beta2)] {
            for field in fields {
                let mut read = file(version, field);
                let notices = sift(Path::new("f"), &mut read).unwrap();
                let (_, _, support) = FIELDS.iter().find(|(name, ..)| name == field).unwrap();
                let pointer = format!("/{}", field.replace('.', "/"));
                match support {
                    Honoured => {
                        assert!(notices.is_empty() && read.pointer(&pointer).is_some(), "{version} {field}")
                    }
                    _ => {
                        let named: Vec<&str> = notices.iter().map(|one| one.field.as_str()).collect();
                        assert_eq!(named, [*field], "{version}");
                        assert!(read.pointer(&pointer).is_none(), "{version} {field}");
                    }
                }
            }
        }
        for (version, fields) in [("v1beta1", ONLY_V1BETA2), ("v1beta2", ONLY_V1BETA1)] {
            for field in fields {
                let error = sift(Path::new("f"), &mut file(version, field)).unwrap_err().to_string();
                assert!(error.contains("unknown field"), "{version} {field}: {error}");
            }
        }
        let known: BTreeSet<&str> = v1beta1.into_iter().chain(v1beta2).collect();
        let invented: Vec<&str> =
            FIELDS.iter().map(|(name, ..)| *name).filter(|name| !known.contains(name)).collect();
        assert_eq!(
            invented,
            ["apiVersion", "kind", "schedulerName", "takeOver", "integrations.kinds"],
            "every entry is a field of Kueue's, but these"
        );
    }

    #[test]
    fn what_is_no_field_is_refused_with_those_there_are() {
        for (text, words) in [
            (
                json!({ "unheard": 1 }),
                "unheard: unknown field unheard, expected one of admissionFairSharing, apiVersion",
            ),
            (
                json!({ "webhook": { "prot": 1 } }),
                "webhook.prot: unknown field prot, expected one of certDir, host, port",
            ),
            (json!({ "apiVersion": "config.kueue.x-k8s.io/v1alpha1" }), "apiVersion: it must be"),
            (
                json!({ "waitForPodsReady": { "enable": false } }),
                "waitForPodsReady.enable: unknown field enable, expected one of blockAdmission,",
            ),
            (json!({ "queueVisibility": {} }), "it is one of v1beta1, which apiVersion does not name"),
            (
                json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta1", "visibilityServer": { "bindPort": 1 } }),
                "it is one of v1beta2, which apiVersion does not name",
            ),
            (
                json!({
                    "apiVersion": "config.kueue.x-k8s.io/v1beta1",
                    "metrics": { "customLabels": [{ "name": "a" }, { "name": "b", "sourceKind": "Cohort" }] },
                }),
                "metrics.customLabels[1].sourceKind: unknown field sourceKind, expected one of name,",
            ),
            (json!({ "webhook": 3 }), "webhook: it must be an object"),
            (json!([]), "it must be an object"),
        ] {
            let error = sift(Path::new("f"), &mut text.clone()).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_that_is_what_happens_anyway_is_not_named() {
        let mut file = json!({
            "leaderElection": { "resourceLock": "leases" }, "internalCertManagement": { "enable": true },
            "tls": { "minVersion": "VersionTLS13" }, "fairSharing": {}, "health": null,
        });
        let notices = sift(Path::new("f"), &mut file).unwrap();
        assert_eq!(notices.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(), ["tls.minVersion"]);
        assert!(file["fairSharing"].is_object(), "an empty object may mean something");
        assert_eq!(sift(Path::new("f"), &mut Value::Null).unwrap(), []);
    }

    #[test]
    fn what_is_null_is_as_good_as_absent() {
        let read = |text: &str| Configuration::parse(Path::new("f"), text).unwrap();
        for name in [
            "internalCertManagement",
            "controller",
            "health",
            "clientConnection",
            "tls",
            "multiKueue",
            "visibilityServer",
            "metrics",
            "resources",
            "leaderElection",
            "featureGates",
            "fairSharing",
            "waitForPodsReady",
            "namespace",
            "pprofBindAddress",
        ] {
            let text = format!("{name}:\n  # nothing: said\n");
            assert_eq!(read(&text), read("{}"), "{name}");
        }
        assert_eq!(read("tls:\n  minVersion:\nmetrics:\n  localQueueMetrics:\n"), read("{}"));
        for (written, meant) in [
            (
                "waitForPodsReady: { requeuingStrategy: { timestamp: null } }",
                "waitForPodsReady: { requeuingStrategy: {} }",
            ),
            (
                "resources: { transformations: [{ input: a, strategy: null, outputs: null }] }",
                "resources: { transformations: [{ input: a }] }",
            ),
            (
                "resources: { transformations: [{ input: a, strategy: '', outputs: { b: null } }] }",
                "resources: { transformations: [{ input: a, outputs: { b: 0 } }] }",
            ),
            (
                "metrics: { customLabels: [{ name: team, sourceKind: null, trackedValues: null }] }",
                "metrics: { customLabels: [{ name: team }] }",
            ),
            ("featureGates: { PartialAdmission: null }", "featureGates: { PartialAdmission: false }"),
            (
                "managedJobsNamespaceSelector: { matchLabels: { team: null }, matchExpressions: null }",
                "managedJobsNamespaceSelector: { matchLabels: { team: '' } }",
            ),
        ] {
            assert_eq!(read(written), read(meant), "{written}");
        }
        let error = Configuration::parse(Path::new("f"), "unheard:\n").unwrap_err().to_string();
        assert!(error.contains("unknown field unheard"), "{error}");
    }
}
