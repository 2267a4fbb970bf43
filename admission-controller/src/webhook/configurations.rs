//! The webhook configurations that lead the API server here.

use crds::names::{kueue, trireme};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use super::{CONFIGURATION, paths};
use crate::config::Configuration;
use crate::jobs::JobKind;

/// How long the API server waits: Kubernetes' default.
const TIMEOUT_SECONDS: i32 = 10;

/// The webhook configurations that send reviews to this program's Service, for the default configuration. The embedded
/// cluster creates them; a chart has the same.
pub fn webhook_configurations(
    ca_bundle: Option<&[u8]>,
) -> (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) {
    webhook_configurations_for(&Configuration::default(), ca_bundle)
}

/// The same for another configuration.
pub fn webhook_configurations_for(
    config: &Configuration,
    ca_bundle: Option<&[u8]>,
) -> (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) {
    let metadata = || ObjectMeta { name: Some(CONFIGURATION.to_owned()), ..ObjectMeta::default() };
    let client = |path: &str| client(config, ca_bundle, path);
    let changing = changing(config).into_iter().map(|hook| hook.mutating(client)).collect();
    let judging = judging(config).into_iter().map(|hook| hook.validating(client)).collect();
    (
        MutatingWebhookConfiguration { metadata: metadata(), webhooks: Some(changing) },
        ValidatingWebhookConfiguration { metadata: metadata(), webhooks: Some(judging) },
    )
}

/// A webhook of either kind.
struct Hook {
    name: String,
    path: String,
    rules: Vec<RuleWithOperations>,
    /// Whose objects it looks at, where not everybody's.
    namespaces: Option<LabelSelector>,
    /// Which of them, where not all.
    objects: Option<LabelSelector>,
    /// What becomes of a request that it does not answer.
    failure_policy: &'static str,
}

impl Hook {
    /// For all objects of its rules.
    fn new(name: &str, path: &str, rules: Vec<RuleWithOperations>) -> Self {
        let name = format!("{name}.trireme.dev");
        Self { name, path: path.to_owned(), rules, namespaces: None, objects: None, failure_policy: "Fail" }
    }

    /// For these of the namespaces that are managed.
    fn of_managed(self, config: &Configuration, objects: Option<LabelSelector>) -> Self {
        Self { namespaces: Some(namespaces(config)), objects, ..self }
    }

    fn mutating(self, client: impl Fn(&str) -> WebhookClientConfig) -> MutatingWebhook {
        MutatingWebhook {
            name: self.name,
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client(&self.path),
            failure_policy: Some(self.failure_policy.to_owned()),
            namespace_selector: self.namespaces,
            object_selector: self.objects,
            rules: Some(self.rules),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..MutatingWebhook::default()
        }
    }

    fn validating(self, client: impl Fn(&str) -> WebhookClientConfig) -> ValidatingWebhook {
        ValidatingWebhook {
            name: self.name,
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client(&self.path),
            failure_policy: Some(self.failure_policy.to_owned()),
            namespace_selector: self.namespaces,
            object_selector: self.objects,
            rules: Some(self.rules),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..ValidatingWebhook::default()
        }
    }
}

const CHANGES: &[&str] = &["CREATE", "UPDATE"];

/// The webhooks that change objects.
fn changing(config: &Configuration) -> Vec<Hook> {
    let jobs = job_rules(config, CHANGES);
    let mut hooks =
        vec![Hook::new("mutate-job", paths::MUTATE_JOB, jobs).of_managed(config, labelled(config))];
    if config.pod_owners().next().is_some() {
        let owners = owner_rules(config, CHANGES);
        let hook = Hook::new("mutate-pod-owner", paths::MUTATE_POD_OWNER, owners);
        hooks.push(hook.of_managed(config, labelled(config)));
    }
    hooks.extend(pod_webhooks(config).into_iter().map(|(name, objects)| {
        let hook = Hook::new(&format!("mutate-{name}"), paths::MUTATE_POD, vec![pods(&["CREATE"])]);
        hook.of_managed(config, Some(objects))
    }));
    hooks.extend(unlabelled(config).into_iter().map(|(name, path, rules)| {
        let hook = Hook::new(&format!("default-queue-of-{name}"), path, rules);
        let objects = has_label(kueue::QUEUE_NAME, "DoesNotExist");
        Hook { failure_policy: "Ignore", ..hook.of_managed(config, Some(objects)) }
    }));
    for kind in [paths::CLUSTER_QUEUE, paths::RESOURCE_FLAVOR, paths::WORKLOAD] {
        // Nobody waits for a review that changes nothing.
        if kind == paths::WORKLOAD && config.gates().partial_admission {
            continue;
        }
        let rules = vec![kueue_rule(&[&format!("{kind}s")], &["CREATE"])];
        hooks.push(Hook::new(&format!("mutate-{kind}"), &paths::default(kind), rules));
    }
    hooks
}

/// The webhooks that refuse objects.
fn judging(config: &Configuration) -> Vec<Hook> {
    let jobs = job_rules(config, CHANGES);
    let mut hooks =
        vec![Hook::new("validate-job", paths::VALIDATE_JOB, jobs).of_managed(config, labelled(config))];
    if config.pod_owners().next().is_some() {
        let owners = owner_rules(config, CHANGES);
        let hook = Hook::new("validate-pod-owner", paths::VALIDATE_POD_OWNER, owners);
        hooks.push(hook.of_managed(config, labelled(config)));
    }
    if config.watches_pods() {
        let hook = Hook::new("validate-pod", paths::VALIDATE_POD, vec![pods(CHANGES)]);
        hooks.push(hook.of_managed(config, Some(has_label(kueue::MANAGED, "Exists"))));
    }
    for kind in [paths::CLUSTER_QUEUE, paths::COHORT, paths::RESOURCE_FLAVOR, paths::WORKLOAD] {
        let (objects, status) = (format!("{kind}s"), format!("{kind}s/status"));
        let resources: &[&str] = if kind == paths::WORKLOAD { &[&objects, &status] } else { &[&objects] };
        let rules = vec![kueue_rule(resources, CHANGES)];
        hooks.push(Hook::new(&format!("validate-{kind}"), &paths::validate(kind), rules));
    }
    hooks
}

fn client(config: &Configuration, ca_bundle: Option<&[u8]>, path: &str) -> WebhookClientConfig {
    WebhookClientConfig {
        ca_bundle: ca_bundle.map(|bytes| ByteString(bytes.to_vec())),
        service: Some(ServiceReference {
            namespace: config.namespace.clone(),
            name: trireme::ADMISSION_SERVICE.to_owned(),
            path: Some(path.to_owned()),
            port: None,
        }),
        url: None,
    }
}

/// Jobs of the control plane must never wait for this program.
fn namespaces(config: &Configuration) -> LabelSelector {
    let chosen = config.managed_jobs_namespace_selector.clone().unwrap_or_default();
    let chosen: LabelSelector =
        serde_json::to_value(chosen).and_then(serde_json::from_value).unwrap_or_default();
    let never = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(config.system_namespaces().map(str::to_owned).collect()),
    };
    let expressions = chosen.match_expressions.unwrap_or_default();
    LabelSelector {
        match_expressions: Some(std::iter::once(never).chain(expressions).collect()),
        match_labels: chosen.match_labels,
    }
}

/// Where only labelled jobs are managed, only they depend on this program.
fn labelled(config: &Configuration) -> Option<LabelSelector> {
    (!config.manage_jobs_without_queue_name).then(|| has_label(kueue::QUEUE_NAME, "Exists"))
}

fn has_label(key: &str, operator: &str) -> LabelSelector {
    selecting([(key, operator)])
}

fn selecting<const N: usize>(keys: [(&str, &str); N]) -> LabelSelector {
    let requirement = |(key, operator): (&str, &str)| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: None,
    };
    LabelSelector { match_expressions: Some(keys.into_iter().map(requirement).collect()), match_labels: None }
}

/// Which pods are looked at when they are created. A selector cannot say "or"; no pod is looked at twice.
fn pod_webhooks(config: &Configuration) -> Vec<(&'static str, LabelSelector)> {
    const QUEUE: &str = kueue::QUEUE_NAME;
    const SCHEDULED: &str = trireme::SCHEDULED_BY;
    let mut webhooks = Vec::new();
    let every_pod = config.manages_pods() && config.manage_jobs_without_queue_name;
    if every_pod {
        return vec![("pod", LabelSelector::default())];
    }
    if config.watches_pods() {
        webhooks.push(("pod", has_label(QUEUE, "Exists")));
        webhooks.push(("pod-of-owner", selecting([(kueue::MANAGED, "Exists"), (QUEUE, "DoesNotExist")])));
    }
    let unmarked = [(SCHEDULED, "Exists"), (kueue::MANAGED, "DoesNotExist"), (QUEUE, "DoesNotExist")];
    webhooks.push(("pod-scheduler", selecting(unmarked)));
    webhooks
}

/// New objects without the label may get it from their namespace, and a priority class. They are nobody's until then, so they do not
/// depend on this program: if it is away they are created as they are. Plain pods are looked at where the configuration names them;
/// otherwise every pod of the cluster would be.
fn unlabelled(config: &Configuration) -> Vec<(&'static str, &'static str, Vec<RuleWithOperations>)> {
    if config.manage_jobs_without_queue_name {
        return Vec::new();
    }
    let create = ["CREATE"];
    let mut webhooks = vec![("job", paths::MUTATE_JOB, job_rules(config, &create))];
    if config.pod_owners().next().is_some() {
        webhooks.push(("pod-owner", paths::MUTATE_POD_OWNER, owner_rules(config, &create)));
    }
    if config.names_pods {
        webhooks.push(("pod", paths::MUTATE_POD, vec![pods(&create)]));
    }
    webhooks
}

fn pods(operations: &[&str]) -> RuleWithOperations {
    rule("", "v1", &["pods"], operations)
}

fn owner_rules(config: &Configuration, operations: &[&str]) -> Vec<RuleWithOperations> {
    let owners = config.pod_owners().map(|owner| owner.kind);
    owners.map(|kind| rule(kind.group, kind.version, &[kind.plural], operations)).collect()
}

fn job_rules(config: &Configuration, operations: &[&str]) -> Vec<RuleWithOperations> {
    config.kinds().map(|kind: &JobKind| rule(kind.group, kind.version, &[kind.plural], operations)).collect()
}

fn kueue_rule(resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    rule(kueue::GROUP, "v1beta2", resources, operations)
}

fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    let list = |items: &[&str]| Some(items.iter().map(|one| (*one).to_owned()).collect());
    RuleWithOperations {
        api_groups: list(&[group]),
        api_versions: list(&[version]),
        resources: list(resources),
        operations: list(operations),
        scope: Some("*".to_owned()),
    }
}
