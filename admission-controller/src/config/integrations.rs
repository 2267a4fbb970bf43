//! Which kinds of jobs are managed, by whom, and what is copied from them.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kit::config::ConfigError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::declared::{DeclaredKind, parse_name};
use super::{Configuration, Notice};
use crate::jobs::{JobKind, TABLE, controller_of, group_of, table};
use crate::pods::{self, OWNERS, PodOwner};

/// `integrations`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Integrations {
    /// Kinds by Kueue's names, such as `kubeflow.org/pytorchjob`.
    pub frameworks: Vec<String>,
    /// Kinds whose Workloads somebody else makes, as `Kind.version.group`: what their objects own is not queued by itself.
    pub external_frameworks: Vec<String>,
    /// Labels that a Workload gets from its job when it is made.
    pub label_keys_to_copy: BTreeSet<String>,
    /// `kinds`, of this program alone: further kinds, described as the built-in ones are.
    pub kinds: Vec<DeclaredKind>,
    /// The entries that are made of `kinds`.
    #[serde(skip)]
    pub(super) declared: Vec<&'static JobKind>,
    /// The entries that are made of `externalFrameworks`: their names only.
    #[serde(skip)]
    pub(super) external: Vec<&'static JobKind>,
    /// The kinds of the table that nobody manages; empty unless it was read from a file.
    #[serde(skip)]
    pub(super) seen: Vec<&'static JobKind>,
}

impl Default for Integrations {
    fn default() -> Self {
        Self::of(frameworks().into_iter().map(str::to_owned).collect())
    }
}

impl Integrations {
    /// These kinds of the table, and no others.
    pub fn of(frameworks: Vec<String>) -> Self {
        Self {
            frameworks,
            external_frameworks: Vec::new(),
            label_keys_to_copy: BTreeSet::new(),
            kinds: Vec::new(),
            declared: Vec::new(),
            external: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// A list that names none means what it means to Kueue, which is not what an absent one means here, unless Kueue's place is taken.
    pub(super) fn fill_in(file: &mut Value) -> Option<Notice> {
        let takes_over = file.get("takeOver").is_some_and(|one| !one.is_null());
        let words = match file.pointer("/integrations/frameworks") {
            Some(Value::Array(names)) if !names.is_empty() => return None,
            Some(Value::Array(_) | Value::Null) => {
                format!(
                    "it names none: only {KUEUES_DEFAULT} is managed, as by Kueue; without the list, all kinds are"
                )
            }
            None if takes_over => format!(
                "it is absent: only {KUEUES_DEFAULT} is managed, as by the Kueue whose place is taken; without takeOver, all kinds are"
            ),
            _ => return None,
        };
        match file.get_mut("integrations") {
            Some(Value::Object(integrations)) => {
                integrations.insert("frameworks".to_owned(), json!([KUEUES_DEFAULT]));
            }
            Some(other) if !other.is_null() => return None,
            _ => file["integrations"] = json!({ "frameworks": [KUEUES_DEFAULT] }),
        }
        Some(Notice { field: "integrations.frameworks".to_owned(), words, unsupported: false })
    }

    /// Makes entries of what is declared, and refuses what cannot be one.
    pub(super) fn check(&mut self, path: &Path) -> Result<Vec<Notice>, ConfigError> {
        let mut notices = self.check_frameworks(path)?;
        let through_pods = OWNERS.iter().map(|one| one.kind).chain([pods::POD]);
        let built_in = TABLE.iter().chain(through_pods).filter(|kind| self.has(kind.framework));
        let (mut taken, mut named) = (BTreeSet::new(), BTreeSet::new());
        for kind in built_in {
            // Where a kind has several versions here, Kueue's is the first.
            if taken.insert(kind.group_kind()) {
                named.insert((kind.group_kind(), kind.version));
            }
        }
        for (index, declared) in self.kinds.iter().enumerate() {
            let field = format!("integrations.kinds[{index}]");
            let entry = declared.entry(path, &field)?;
            if !taken.insert(entry.group_kind()) {
                let reason = format!("{} is managed already", declared.name);
                return Err(ConfigError::invalid(path, &format!("{field}.name"), reason));
            }
            named.insert((entry.group_kind(), entry.version));
            self.declared.push(entry);
        }
        for (index, name) in self.external_frameworks.iter().enumerate() {
            let field = format!("integrations.externalFrameworks[{index}]");
            let entry = parse_name(name).map(table::external);
            let Some(entry) = entry else {
                return Err(ConfigError::invalid(path, &field, "it must be Kind.version.group"));
            };
            if !named.insert((entry.group_kind(), entry.version)) {
                let reason = format!("{name} is managed already, or named twice");
                return Err(ConfigError::invalid(path, &field, reason));
            }
            if taken.insert(entry.group_kind()) {
                self.external.push(entry);
            } else {
                let words = format!("{name} has no effect: the kind is known by another version");
                notices.push(Notice { field, words, unsupported: false });
            }
        }
        let others = TABLE.iter().filter(|kind| !taken.contains(&kind.group_kind()));
        self.seen = others.map(table::seen).collect();
        Ok(notices)
    }

    /// Kueue's kinds that are not managed here are named and left out; others are refused.
    fn check_frameworks(&mut self, path: &Path) -> Result<Vec<Notice>, ConfigError> {
        let known = frameworks();
        let mut notices = Vec::new();
        for (index, name) in self.frameworks.iter().enumerate() {
            let field = format!("integrations.frameworks[{index}]");
            if self.frameworks[..index].contains(name) {
                return Err(ConfigError::invalid(path, &field, format!("{name} is named twice")));
            }
            if known.contains(&name.as_str()) {
                continue;
            }
            if !KUEUES_FRAMEWORKS.contains(&name.as_str()) {
                let reason = format!("{name:?} is no kind of Kueue's; managed are {}", known.join(", "));
                return Err(ConfigError::invalid(path, &field, reason));
            }
            notices.push(Notice { field, words: format!("{name} is not managed"), unsupported: true });
        }
        self.frameworks.retain(|name| known.contains(&name.as_str()));
        Ok(notices)
    }

    fn has(&self, framework: &str) -> bool {
        self.frameworks.iter().any(|one| one == framework)
    }
}

/// What a kind that owns something is to this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owning {
    /// It is managed, here or by somebody else: what its objects own may be part of them.
    Managed,
    /// It is left alone, and watched: whatever owns its objects may be managed, and they may say what its pods are.
    Seen,
    /// It says nothing about what its objects own.
    Unknown,
}

impl Configuration {
    /// The kinds of jobs that are managed.
    pub fn kinds(&self) -> impl Iterator<Item = &'static JobKind> {
        let wanted = TABLE.iter().filter(|kind| self.integrations.has(kind.framework));
        wanted.chain(self.integrations.declared.iter().copied())
    }

    /// The kinds of jobs whose Workloads somebody else makes.
    pub fn external_kinds(&self) -> impl Iterator<Item = &'static JobKind> {
        self.integrations.external.iter().copied()
    }

    /// All kinds of jobs that are of concern.
    pub fn watched_kinds(&self) -> impl Iterator<Item = &'static JobKind> {
        self.kinds().chain(self.external_kinds()).chain(self.integrations.seen.iter().copied())
    }

    /// Whether this kind of jobs is watched, and managed by nobody.
    pub fn only_sees(&self, kind: &JobKind) -> bool {
        self.integrations.seen.iter().any(|one| one.id() == kind.id())
    }

    /// The kinds without whose objects nothing can be decided: those that are managed, and those that say what pods of these are.
    pub fn needed_kinds(&self) -> impl Iterator<Item = &'static JobKind> {
        let tells = |kind: &JobKind| {
            let mut children = self.kinds().filter_map(|parent| parent.child.as_ref());
            children.any(|child| kind.is(child.group, child.kind))
        };
        self.watched_kinds().filter(move |kind| !self.only_sees(kind) || tells(kind))
    }

    /// Whether objects of this kind of jobs, which is watched, are managed, here or by somebody else, if they name this queue.
    pub fn counts(&self, kind: &JobKind, queue: Option<&str>) -> bool {
        !self.only_sees(kind) && (queue.is_some() || self.manage_jobs_without_queue_name)
    }

    /// The entry of a managed or built-in kind of jobs, of whatever version; one of this version comes first.
    pub fn kind_of(&self, api_version: &str, kind: &str) -> Option<&'static JobKind> {
        let group = group_of(api_version);
        let mut declared = self.integrations.declared.iter().copied();
        declared.find(|one| one.is(group, kind)).or_else(|| table::of_owner(api_version, kind))
    }

    /// Whether jobs of this kind are managed, in whatever version.
    pub fn manages_jobs_of(&self, api_version: &str, kind: &str) -> bool {
        let group = group_of(api_version);
        self.kinds().any(|one| one.is(group, kind))
    }

    /// What this owner's kind is to this program.
    pub fn owning(&self, owner: &OwnerReference) -> Owning {
        let group = group_of(&owner.api_version);
        let is_this = |one: &JobKind| one.is(group, &owner.kind);
        let mut through_pods = OWNERS.iter().map(|one| one.kind).chain([pods::POD]);
        if self.kinds().chain(self.external_kinds()).any(is_this)
            || through_pods.any(|kind| is_this(kind) && self.integrations.has(kind.framework))
        {
            return Owning::Managed;
        }
        match self.integrations.seen.iter().any(|kind| is_this(kind)) {
            true => Owning::Seen,
            false => Owning::Unknown,
        }
    }

    /// Whether this owner's kind is managed by this program.
    pub fn is_managed_here(&self, owner: &OwnerReference) -> bool {
        let group = group_of(&owner.api_version);
        let is_this = |one: &JobKind| one.is(group, &owner.kind);
        self.owning(owner) == Owning::Managed && !self.external_kinds().any(is_this)
    }

    /// Whether objects of this owner's kind mark the pods that are managed with them.
    pub fn marks_pods(owner: &OwnerReference) -> bool {
        OWNERS.iter().any(|one| one.kind.is(group_of(&owner.api_version), &owner.kind))
    }

    /// Whether an object is part of what is managed instead of it, as far as it tells itself.
    pub fn is_part(&self, metadata: &ObjectMeta) -> bool {
        controller_of(metadata).is_some_and(|owner| {
            self.owning(owner) == Owning::Managed || self.is_of_deployment(owner, metadata)
        })
    }

    /// Whether a managed Deployment made the ReplicaSet that a pod is of, where Deployments need no queue to be managed. Its
    /// pods have the label of its controller, unlike those of a ReplicaSet that nobody owns.
    fn is_of_deployment(&self, owner: &OwnerReference, pod: &ObjectMeta) -> bool {
        const HASH: &str = "pod-template-hash";
        self.manage_jobs_without_queue_name
            && self.integrations.has(table::DEPLOYMENT.framework)
            && is_replica_set(owner)
            && pod.labels.as_ref().is_some_and(|labels| labels.contains_key(HASH))
    }

    /// The kinds that are managed through their pods.
    pub fn pod_owners(&self) -> impl Iterator<Item = &'static PodOwner> {
        OWNERS.iter().filter(|owner| self.integrations.has(owner.kind.framework))
    }

    /// Whether plain pods are managed.
    pub fn manages_pods(&self) -> bool {
        self.integrations.has(pods::FRAMEWORK)
    }

    /// Whether any pods are managed: those of Deployments are, even where plain ones are not.
    pub fn watches_pods(&self) -> bool {
        self.manages_pods() || self.pod_owners().next().is_some()
    }
}

fn is_replica_set(owner: &OwnerReference) -> bool {
    (group_of(&owner.api_version), owner.kind.as_str()) == ("apps", "ReplicaSet")
}

/// What Kueue manages where its file names nothing.
const KUEUES_DEFAULT: &str = "batch/job";

/// The kinds that Kueue has an integration for, by its names.
const KUEUES_FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// The names of all kinds in the table, each once.
fn frameworks() -> Vec<&'static str> {
    let mut names: Vec<_> = TABLE.iter().map(|kind| kind.framework).collect();
    names.dedup();
    names.push(pods::FRAMEWORK);
    names.extend(OWNERS.iter().map(|owner| owner.kind.framework));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Configuration, String> {
        Configuration::parse(Path::new("f"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_that_names_none_is_kueues_default() {
        for list in ["[]", "null", ""] {
            let config = read(&format!("integrations:\n  frameworks: {list}\n")).unwrap();
            assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"], "{list:?}");
            assert!(!config.watches_pods(), "{list:?}");
            let told: Vec<&str> = config.notices.iter().map(|one| one.field.as_str()).collect();
            assert_eq!(told, ["integrations.frameworks"], "{list:?}");
        }
        for all in ["", "integrations:\n", "integrations:\n  labelKeysToCopy: [a]\n"] {
            for none in ["", "takeOver:\n"] {
                let config = read(&format!("{all}{none}")).unwrap();
                assert!(config.kinds().count() > 1 && config.notices.is_empty(), "{all:?}");
            }
            let config = read(&format!("{all}takeOver: {{}}\n")).unwrap();
            assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"], "{all:?}");
            assert_eq!(config.notices[0].field, "integrations.frameworks", "{all:?}");
            assert_eq!(config.integrations.label_keys_to_copy.len(), usize::from(all.contains("label")));
        }
        let named = read("integrations:\n  frameworks: [pod]\ntakeOver: {}\n").unwrap();
        assert!(named.watches_pods() && named.notices.is_empty());
    }

    #[test]
    fn a_kind_is_named_once() {
        let error = read("integrations:\n  frameworks: [batch/job, pod, batch/job]\n").unwrap_err();
        assert!(error.contains("integrations.frameworks[2]: batch/job is named twice"), "{error}");
        let external = |names: &str| {
            read(&format!(
                "integrations: {{ frameworks: [kubeflow.org/mpijob], externalFrameworks: [{names}] }}"
            ))
        };
        for (names, wrong) in
            [("MPIJob.v2beta1.kubeflow.org", 0), ("Run.v1.example.com, Run.v1.example.com", 1)]
        {
            let error = external(names).unwrap_err();
            assert!(error.contains(&format!("integrations.externalFrameworks[{wrong}]")), "{names}: {error}");
        }
    }

    #[test]
    fn another_version_of_an_external_kind_has_no_effect() {
        for (names, skipped, external) in [
            ("MPIJob.v1.kubeflow.org", "integrations.externalFrameworks[0]", 0),
            ("Run.v1.example.com, Run.v2.example.com", "integrations.externalFrameworks[1]", 1),
        ] {
            let config = read(&format!(
                "integrations: {{ frameworks: [kubeflow.org/mpijob], externalFrameworks: [{names}] }}"
            ))
            .unwrap();
            let told: Vec<&str> = config.notices.iter().map(|one| one.field.as_str()).collect();
            assert_eq!((told, config.external_kinds().count()), (vec![skipped], external), "{names}");
        }
    }

    #[test]
    fn kinds_that_nobody_manages_are_seen_where_any_is_managed() {
        let watched = |text: &str| {
            let config = read(text).unwrap();
            let mut kinds: Vec<_> =
                config.watched_kinds().map(|kind| (kind.group_kind(), kind.version)).collect();
            kinds.sort_unstable();
            (kinds, config.integrations.seen.len())
        };
        let (all, none) = watched("");
        assert_eq!((all.len(), none), (TABLE.len(), 0));
        for (integrations, managed) in [
            ("frameworks: [pod]", 0),
            ("frameworks: [batch/job]", 1),
            ("frameworks: [batch/job], externalFrameworks: [JobSet.v1alpha2.jobset.x-k8s.io]", 2),
            // Both versions of one kind.
            ("frameworks: [kubeflow.org/mpijob]", 2),
        ] {
            let (kinds, seen) = watched(&format!("integrations: {{ {integrations} }}"));
            assert_eq!((kinds, seen), (all.clone(), TABLE.len() - managed), "{integrations}");
        }
        assert_eq!(Integrations::of(Vec::new()).seen.len(), 0);
    }
}
