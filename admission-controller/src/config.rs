//! The configuration: Kueue's `Configuration` file, by the same names.

mod declared;
mod dependencies;
mod fields;
mod gates;
mod integrations;
mod labels;
mod meanings;
mod off;
mod resources;
mod selectors;
mod sharing;
mod times;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use crds::names::trireme;
use crds::validation::Gates;
use kit::config::{self, ConfigError};
use kit::http::Listen;
use model::planted::Planted;
use model::selector::LabelSelector;
use quota_engine::{FairSharing, Settings, Undeclared};
use serde::Deserialize;
use serde_json::Value;

use crate::metrics;
pub(crate) use declared::for_ever;
pub use declared::{DeclaredActive, DeclaredFinished, DeclaredKind, DeclaredPodSet, DeclaredReady};
pub use dependencies::closed_with;
pub use fields::{Notice, paths};
pub use gates::FeatureGates;
pub use integrations::{Integrations, Owning};
pub use labels::{CustomLabel, SourceKind};
use meanings::Meaning;
pub use resources::{QuotaCheckStrategy, Resources, Strategy, Transformation};
pub use sharing::{AdmissionFairSharingConfig, FairSharingConfig, PreemptionStrategy};
pub use times::{
    ObjectRetentionPolicies, RequeuingStrategy, RequeuingTimestamp, WaitForPodsReady, WorkloadRetention,
};

/// The namespace of what Kubernetes itself consists of.
const KUBE_SYSTEM: &str = "kube-system";
/// `leaderElection.resourceName` of a Kueue whose file does not say otherwise.
const KUEUES_LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// What the program is started with.
#[derive(Clone)]
pub struct Config {
    /// The configuration file's content.
    pub file: Configuration,
    /// How webhooks and conversion are reached.
    pub webhooks: Webhooks,
    /// How health, metrics and state are reached; `None`: beside the webhooks.
    pub admin: Option<Listen>,
    /// A bug on purpose, for testing the tests.
    pub planted: Planted,
}

/// How webhooks and conversion are reached.
#[derive(Clone)]
pub enum Webhooks {
    /// So.
    Listen(Listen),
    /// Over TLS on this address, with certificates of our own: kept in a Secret that the replicas share, and made known to
    /// the API server by the leader.
    OwnCertificates(SocketAddr),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: Configuration::default(),
            webhooks: Webhooks::Listen(Listen::InProcess),
            admin: None,
            planted: Planted::NONE,
        }
    }
}

/// What an administrator chooses. In a file: YAML, as Kueue reads it. What has no effect here is in [`notices`](Self::notices);
/// what Kueue does not know either is refused by name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    /// `apiVersion`: one of Kueue's two, or absent.
    pub api_version: Option<String>,
    /// `kind`: `Configuration` or absent.
    pub kind: Option<String>,
    /// Namespace of the lease and of the Service.
    pub namespace: String,
    /// Whether jobs without the queue-name label are managed too (in `managedJobsNamespaceSelector`'s absence: all but
    /// `kube-system` and the own namespace).
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`: of which namespaces jobs are managed, with or without the label.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// Which kinds of jobs are managed.
    pub integrations: Integrations,
    /// Which resources are counted.
    pub resources: Resources,
    /// `featureGates`.
    pub feature_gates: FeatureGates,
    /// `fairSharing`: whether and how what is lent is shared out fairly.
    pub fair_sharing: Option<FairSharingConfig>,
    /// `admissionFairSharing`: whether LocalQueues take turns by what they have used.
    pub admission_fair_sharing: Option<AdmissionFairSharingConfig>,
    /// `waitForPodsReady`: how long pods may take to be ready.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// `objectRetentionPolicies`: how long what has ended is kept.
    pub object_retention_policies: ObjectRetentionPolicies,
    /// The scheduler that jobs without a wish of their own are given to. Empty leaves them as they are.
    pub scheduler_name: String,
    /// Where webhooks listen.
    pub webhook: Webhook,
    /// `metrics`.
    pub metrics: Metrics,
    /// `leaderElection`: whether other replicas may run, and the lease that they share.
    pub leader_election: LeaderElection,
    /// `takeOver`, of this program alone: the Kueue whose place it takes.
    pub take_over: Option<TakeOver>,
    /// Whether the file names plain pods among the frameworks.
    #[serde(skip)]
    pub names_pods: bool,
    /// What the file says that is not done as it says; told at start.
    #[serde(skip)]
    pub notices: Vec<Notice>,
}

/// `webhook`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// The port of webhooks and conversion.
    pub port: u16,
}

/// `metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// `enableClusterQueueResources`: quotas and their use by flavor and resource, and the shares of ClusterQueues.
    pub enable_cluster_queue_resources: bool,
    /// `customLabels`: labels that metrics get from the objects they are about.
    pub custom_labels: Vec<CustomLabel>,
    /// `localQueueMetrics`: whether LocalQueues are told of, and which. Without it, all are.
    pub local_queue_metrics: Option<LocalQueueMetrics>,
}

/// `metrics.localQueueMetrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LocalQueueMetrics {
    /// Whether any are told of.
    pub enable: bool,
    /// Of those that are, which: all without it.
    pub local_queue_selector: Option<LabelSelector>,
}

/// `leaderElection`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether other replicas may run: then the one that holds the lease writes.
    pub leader_elect: bool,
    /// The name of the lease, or empty. Whoever has the same one never acts at the same time: see [`Configuration::lease`].
    pub resource_name: String,
    /// The namespace of the lease, or empty.
    pub resource_namespace: String,
}

/// `takeOver`: which Kueue, by the defaults of its chart and of its manifests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TakeOver {
    /// The namespace that it runs in, with its Services.
    pub namespace: String,
    /// What the names of its Services and webhook configurations begin with.
    pub name: String,
}

impl Default for TakeOver {
    fn default() -> Self {
        Self { namespace: "kueue-system".to_owned(), name: "kueue".to_owned() }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self { leader_elect: true, resource_name: String::new(), resource_namespace: String::new() }
    }
}

impl Default for Webhook {
    fn default() -> Self {
        Self { port: 9443 }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            api_version: None,
            kind: None,
            namespace: trireme::NAMESPACE.to_owned(),
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: None,
            integrations: Integrations::default(),
            resources: Resources::default(),
            feature_gates: FeatureGates::default(),
            fair_sharing: None,
            admission_fair_sharing: None,
            wait_for_pods_ready: None,
            object_retention_policies: ObjectRetentionPolicies::default(),
            scheduler_name: trireme::SCHEDULER_NAME.to_owned(),
            webhook: Webhook::default(),
            metrics: Metrics::default(),
            leader_election: LeaderElection::default(),
            take_over: None,
            names_pods: false,
            notices: Vec::new(),
        }
    }
}

impl Configuration {
    /// Reads a file.
    ///
    /// # Errors
    /// Each names the file, the field and the reason.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of(path, config::read(path)?)
    }

    /// Reads a file's text; `path` is for the messages.
    ///
    /// # Errors
    /// See [`Configuration::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::of(path, config::parse(path, text)?)
    }

    fn of(path: &Path, mut file: Value) -> Result<Self, ConfigError> {
        let default = Integrations::fill_in(&mut file);
        let mut notices = fields::sift(path, &mut file)?;
        selectors::check(path, &file)?;
        dependencies::check(path, &file)?;
        off::forget(&mut file);
        notices.extend(default);
        // JSON is YAML: what is left is decoded with the same messages.
        let mut configuration: Self = config::parse(path, &file.to_string())?;
        configuration.notices = notices;
        configuration.names_pods =
            file["integrations"]["frameworks"].is_array() && configuration.manages_pods();
        configuration.check(path)
    }

    /// With what the flag says, too, of whether other replicas may run.
    ///
    /// # Errors
    /// See [`Configuration::read`].
    pub fn with_leader_election(mut self, path: &Path, elect: bool) -> Result<Self, ConfigError> {
        self.leader_election.leader_elect &= elect;
        self.check_lease(path)?;
        Ok(self)
    }

    fn check_lease(&self, path: &Path) -> Result<(), ConfigError> {
        if self.take_over.is_none() || self.leader_election.leader_elect {
            return Ok(());
        }
        let reason = "it (and --leader-elect) must not be false with takeOver: Kueue's Lease tells who decides. A Kueue without leader \
                      election has to be given it before";
        Err(ConfigError::invalid(path, "leaderElection.leaderElect", reason))
    }

    fn check(mut self, path: &Path) -> Result<Self, ConfigError> {
        if self.kind.as_deref().is_some_and(|kind| kind != "Configuration") {
            return Err(ConfigError::invalid(path, "kind", "it must be Configuration"));
        }
        if self.namespace.is_empty() {
            return Err(ConfigError::invalid(path, "namespace", "it must not be empty"));
        }
        self.check_lease(path)?;
        if let Some(field) = self.negative_time() {
            return Err(ConfigError::invalid(path, field, "it must not be negative"));
        }
        if self.has_no_timeout() {
            return Err(ConfigError::invalid(path, "waitForPodsReady.timeout", "it must be above 0"));
        }
        if self.fair_sharing.as_ref().is_some_and(|fair| fair.strategies().is_none()) {
            let reason = "it must be one of LessThanOrEqualToFinalShare and LessThanInitialShare, or both in this order";
            return Err(ConfigError::invalid(path, "fairSharing.preemptionStrategies", reason));
        }
        if let Some(resource) = self.admission_fair_sharing.as_ref().and_then(|fair| fair.wrong_weight()) {
            let field = format!("admissionFairSharing.resourceWeights[{resource}]");
            return Err(ConfigError::invalid(path, &field, "it must not be below 0"));
        }
        let notices = self.integrations.check(path)?;
        self.notices.extend(notices);
        self.notices.extend(labels::check(&self.metrics.custom_labels, path)?);
        if !self.metrics.custom_labels.is_empty() && !self.is_open(meanings::CUSTOM_LABELS, false) {
            let words = "it has no effect: the feature gate CustomMetricLabels is closed".to_owned();
            let field = "metrics.customLabels".to_owned();
            self.notices.push(Notice { field, words, unsupported: false });
        }
        self.notice_gates();
        self.check_namespaces(path)?;
        if self.resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared
            && !self.resources.exclude_resource_prefixes.is_empty()
            && self.is_open(meanings::QUOTA_CHECK_STRATEGY, true)
        {
            let reason = "IgnoreUndeclared cannot be had with excludeResourcePrefixes; remove one of them";
            return Err(ConfigError::invalid(path, "resources.quotaCheckStrategy", reason));
        }
        let mut inputs = BTreeSet::new();
        for (index, one) in self.resources.transformations.iter().enumerate() {
            if !inputs.insert(&one.input) {
                let field = format!("resources.transformations[{index}].input");
                let reason = format!("{} has a transformation already", one.input);
                return Err(ConfigError::invalid(path, &field, reason));
            }
        }
        Ok(self)
    }

    /// Kubernetes' own jobs are nobody's to suspend.
    fn check_namespaces(&self, path: &Path) -> Result<(), ConfigError> {
        let name = ("kubernetes.io/metadata.name".to_owned(), KUBE_SYSTEM.to_owned());
        let selector = &self.managed_jobs_namespace_selector;
        if selector.as_ref().is_some_and(|selector| selector.matches(&[name].into())) {
            let reason = format!(
                "it must not match the namespace {KUBE_SYSTEM}; leave that out by kubernetes.io/metadata.name"
            );
            return Err(ConfigError::invalid(path, "managedJobsNamespaceSelector", reason));
        }
        Ok(())
    }

    /// Gates that are not gone by.
    fn notice_gates(&mut self) {
        let notice = |(name, wanted): (&String, &bool)| {
            let (words, unsupported) = match meanings::meaning(name) {
                Meaning::Heeded => return None,
                Meaning::Always(open) if open == *wanted => return None,
                Meaning::Always(open) => (format!("it is {open} here and cannot be changed"), true),
                Meaning::Unsupported(_) if !wanted => return None,
                Meaning::Unsupported(why) => (format!("it is not supported: {why}"), true),
                Meaning::Many => ("it is not supported: name each gate".to_owned(), true),
                Meaning::Nothing => ("it has no effect here: nothing depends on it".to_owned(), false),
                Meaning::Unknown => ("Kueue has no such gate".to_owned(), true),
            };
            Some(Notice { field: format!("featureGates.{name}"), words, unsupported })
        };
        self.notices.extend(self.feature_gates.others.iter().filter_map(notice));
    }

    /// Whether a gate is open that has no field of its own.
    fn is_open(&self, gate: &str, default: bool) -> bool {
        self.feature_gates.others.get(gate).copied().unwrap_or(default)
    }

    /// Namespace and name of the lease. Where Kueue's place is taken it is Kueue's, which the same fields of its file name, or
    /// which is called as Kueue calls it without them.
    pub fn lease(&self) -> (&str, &str) {
        let usual = match &self.take_over {
            Some(kueue) => (kueue.namespace.as_str(), KUEUES_LEASE),
            None => (self.namespace.as_str(), crate::LEASE),
        };
        let LeaderElection { resource_name, resource_namespace, .. } = &self.leader_election;
        let namespace = if resource_namespace.is_empty() { usual.0 } else { resource_namespace };
        (namespace, if resource_name.is_empty() { usual.1 } else { resource_name })
    }

    /// What of it the engine goes by.
    pub fn settings(&self) -> Settings {
        let gates = &self.feature_gates;
        Settings {
            undeclared: match self.resources.quota_check_strategy {
                QuotaCheckStrategy::IgnoreUndeclared
                    if self.is_open(meanings::QUOTA_CHECK_STRATEGY, true) =>
                {
                    Undeclared::Ignore
                }
                QuotaCheckStrategy::BlockUndeclared | QuotaCheckStrategy::IgnoreUndeclared => {
                    Undeclared::Block
                }
            },
            partial_admission: gates.partial_admission,
            preemption_gates: self.heeds_preemption_gates(),
            priority_sorting: gates.priority_sorting_within_cohort,
            recompute_overlapping_targets: gates.recompute_assignment_upon_preemption_targets_overlap,
            preserve_scan_progress: gates.flavor_fungibility_preserve_scan_progress,
            equivalence_hashing: gates.scheduling_equivalence_hashing,
            block_admission: self.pods_ready().is_some_and(|one| one.block_admission),
            fair_sharing: self.fair_sharing(),
            non_borrowing_first: self.is_open(meanings::NON_BORROWING_FIRST, true),
            preempt_within_nominal: self.is_open(meanings::PREEMPT_WITHIN_NOMINAL, true),
            admission_fair_sharing: self
                .admission_fair_sharing
                .as_ref()
                .filter(|_| gates.admission_fair_sharing)
                .map(AdmissionFairSharingConfig::rules),
            topology: gates.topology(),
        }
    }

    /// Which metrics are shown.
    pub fn shown_metrics(&self) -> metrics::Shown {
        let (gates, wanted) = (&self.feature_gates, &self.metrics.local_queue_metrics);
        let selector = match wanted {
            Some(wanted) if !wanted.enable => None,
            Some(wanted) => Some(wanted.local_queue_selector.clone().unwrap_or_default()),
            None => Some(LabelSelector::default()),
        };
        metrics::Shown {
            resources: self.metrics.enable_cluster_queue_resources,
            local_queues: selector.filter(|_| gates.local_queue_metrics),
            cohorts: gates.metrics_for_cohorts,
            creation: gates.metric_for_workload_creation_latency,
            shapes: gates.scheduling_equivalence_hashing,
            custom: self.custom_labels().collect(),
        }
    }

    /// Labels that metrics get from the objects they are about.
    fn custom_labels(&self) -> impl Iterator<Item = metrics::CustomLabel> {
        let labels = self.metrics.custom_labels.iter().filter_map(CustomLabel::shown);
        labels.filter(|_| self.is_open(meanings::CUSTOM_LABELS, false))
    }

    /// Whether metrics show what objects say in labels and annotations.
    pub fn shows_labels(&self) -> bool {
        self.custom_labels().next().is_some()
    }

    /// Whether labels of a LocalQueue decide whether metrics show it, or are shown in them.
    pub fn minds_labels_of_local_queues(&self) -> bool {
        let selects = |one: &LocalQueueMetrics| one.local_queue_selector.is_some();
        self.shows_labels() || self.metrics.local_queue_metrics.as_ref().is_some_and(selects)
    }

    /// How what is lent is shared out; `None` where it is not shared out fairly.
    fn fair_sharing(&self) -> Option<FairSharing> {
        let fair = self.fair_sharing.as_ref()?;
        let old = self.is_v1beta1();
        if fair.enable.unwrap_or(!old) { fair.strategies() } else { None }
    }

    /// Whether the file is of the older version, which has other defaults.
    fn is_v1beta1(&self) -> bool {
        self.api_version.as_deref().is_some_and(|version| version.ends_with("/v1beta1"))
    }

    /// Whether preemption gates are looked at.
    pub fn heeds_preemption_gates(&self) -> bool {
        self.feature_gates.multi_kueue_orchestrated_preemption || self.is_open("ConcurrentAdmission", false)
    }

    /// The gates that change a rule of validation.
    pub fn gates(&self) -> Gates {
        let mut gates = Gates {
            partial_admission: self.feature_gates.partial_admission,
            topology: self.feature_gates.topology_aware_scheduling,
            layers: self.feature_gates.tas_multi_layer,
            ..Gates::default()
        };
        for (name, open) in &self.feature_gates.others {
            gates.set(name, *open);
        }
        gates
    }

    /// Whether a job with this queue name in this namespace is managed.
    pub fn manages(&self, namespace: &str, queue: Option<&str>) -> bool {
        queue.is_some() || (self.manage_jobs_without_queue_name && !self.is_the_systems(namespace))
    }

    /// The namespaces of the control plane, of this program, and of the Kueue whose place it takes.
    pub fn system_namespaces(&self) -> impl Iterator<Item = &str> {
        let kueues = self.take_over.iter().map(|take_over| take_over.namespace.as_str());
        [KUBE_SYSTEM, &self.namespace].into_iter().chain(kueues)
    }

    /// Whether a namespace is one of [`system_namespaces`](Self::system_namespaces).
    pub fn is_the_systems(&self, namespace: &str) -> bool {
        self.system_namespaces().any(|one| one == namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_kueues_where_its_place_is_taken() {
        let path = Path::new("config.yaml");
        for (file, lease) in [
            ("{}", ("trireme-system", "admission-controller")),
            ("takeOver: {}", ("kueue-system", "c1f6bfd2.kueue.x-k8s.io")),
            ("takeOver: { namespace: batch }", ("batch", "c1f6bfd2.kueue.x-k8s.io")),
            ("leaderElection: { resourceName: own }", ("trireme-system", "own")),
            ("{ takeOver: {}, leaderElection: { resourceName: own } }", ("kueue-system", "own")),
            (
                "{ takeOver: {}, leaderElection: { resourceName: own, resourceNamespace: apart } }",
                ("apart", "own"),
            ),
        ] {
            assert_eq!(Configuration::parse(path, file).unwrap().lease(), lease, "{file}");
        }
    }

    #[test]
    fn who_takes_kueues_place_has_its_lease_whatever_says_otherwise() {
        let path = Path::new("config.yaml");
        let elects = |file: &str, flag: bool| {
            let file = Configuration::parse(path, file)?.with_leader_election(path, flag)?;
            Ok::<_, ConfigError>(file.leader_election.leader_elect)
        };
        for (file, flag, expected) in [
            ("{}", true, Some(true)),
            ("{}", false, Some(false)),
            ("leaderElection: { leaderElect: false }", true, Some(false)),
            ("takeOver: {}", true, Some(true)),
            ("takeOver: {}", false, None),
            ("{ takeOver: {}, leaderElection: { leaderElect: false } }", true, None),
        ] {
            match (elects(file, flag), expected) {
                (Ok(found), Some(expected)) => assert_eq!(found, expected, "{file} {flag}"),
                (Err(error), None) => {
                    assert!(
                        error.to_string().contains("leaderElection.leaderElect"),
                        "{file} {flag}: {error}"
                    );
                }
                (found, _) => panic!("{file} {flag}: {found:?}"),
            }
        }
    }

    #[test]
    fn kueues_names_are_understood_and_unknown_ones_refused_by_name() {
        let path = Path::new("config.yaml");
        let config = Configuration::parse(
            path,
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n\
             integrations:\n  frameworks: [\"batch/job\"]\nresources:\n  quotaCheckStrategy: IgnoreUndeclared\n",
        )
        .unwrap();
        assert!(config.manages("team-a", None) && !config.manages("kube-system", None));
        assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"]);
        let kueues = "health:\n  healthProbeBindAddress: :8081\nmetrics:\n  bindAddress: :8443\nleaderElection:\n  \
             leaderElect: false\n  resourceName: c1f6bfd2.kueue.x-k8s.io\nclientConnection:\n  qps: 50\nwebhook:\n  \
             port: 9443\n  certDir: /tmp\nintegrations:\n  frameworks: [batch/job, sparkoperator.k8s.io/sparkapplication]\n\
             featureGates:\n  PartialAdmission: false\n  ReclaimablePods: false\n  SanitizePodSets: true\n";
        let config = Configuration::parse(path, kueues).unwrap();
        assert!(!config.settings().partial_admission && !config.feature_gates.reclaimable_pods);
        assert!(!config.leader_election.leader_elect);
        assert_eq!(config.lease(), ("trireme-system", "c1f6bfd2.kueue.x-k8s.io"));
        assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"]);
        let mut named: Vec<&str> = config.notices.iter().map(|one| one.field.as_str()).collect();
        named.sort_unstable();
        assert_eq!(
            named,
            [
                "clientConnection.qps",
                "featureGates.SanitizePodSets",
                "health.healthProbeBindAddress",
                "integrations.frameworks[1]",
                "metrics.bindAddress",
                "webhook.certDir",
            ]
        );
        let gates = "featureGates:\n  PartialAdmission: false\n  ElasticJobsViaWorkloadSlices: false\n";
        let config = Configuration::parse(path, gates).unwrap();
        assert!(!config.gates().partial_admission && !config.gates().elastic_jobs && config.gates().topology);
        assert!(config.notices.is_empty());
        for gate in ["MultiKueueOrchestratedPreemption", "ConcurrentAdmission"] {
            let config = Configuration::parse(path, &format!("featureGates: {{ {gate}: true }}")).unwrap();
            assert!(config.settings().preemption_gates, "{gate}");
        }
        let gates = "featureGates:\n  MultiKueue: true\n  FlavorFungibility: true\n  NoSuchGate: false\n  \
             TLSOptions: true\n  FairSharingPreemptWithinNominal: false\n";
        let config = Configuration::parse(path, gates).unwrap();
        assert!(!config.settings().preempt_within_nominal && config.settings().non_borrowing_first);
        let named: Vec<_> = config.notices.iter().map(|one| (one.field.as_str(), one.unsupported)).collect();
        assert_eq!(
            named,
            [
                ("featureGates.MultiKueue", true),
                ("featureGates.NoSuchGate", true),
                ("featureGates.TLSOptions", false),
            ]
        );
        for (text, words) in [
            ("waitForPodReady: {}", "waitForPodReady"),
            ("integrations:\n  frameworks: [batch/cronjob]", "integrations.frameworks[0]"),
            ("kind: Deployment", "kind"),
            (
                "fairSharing:\n  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]",
                "fairSharing.preemptionStrategies",
            ),
            ("namespace: \"\"", "namespace"),
            ("resources:\n  quotaCheckStrategy: Sometimes", "Sometimes"),
            (
                "resources:\n  transformations: [{ input: a }, { input: a }]",
                "resources.transformations[1].input",
            ),
            ("resources:\n  transformations: [{ input: a, strategy: Double }]", "Double"),
            (
                "resources:\n  quotaCheckStrategy: IgnoreUndeclared\n  excludeResourcePrefixes: [a]",
                "resources.quotaCheckStrategy",
            ),
            ("managedJobsNamespaceSelector: {}", "managedJobsNamespaceSelector"),
            (
                "managedJobsNamespaceSelector: { matchExpressions: [{ key: team, operator: DoesNotExist }] }",
                "kube-system",
            ),
            ("resources:\n  transformations: [{ input: a, outputs: { b: much } }]", "much"),
        ] {
            let error = Configuration::parse(path, text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?} gives {error:?}");
        }
    }
}
