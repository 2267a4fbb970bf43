//! Kinds of jobs that are declared in the configuration: each becomes an entry like those of the table.

use std::collections::BTreeSet;
use std::path::Path;

use kit::config::ConfigError;
use serde::Deserialize;

use crate::jobs::table::{self, Active, DeclaredSet, Finished, PodSets, Ready, SetName};
use crate::jobs::{JobKind, MAX_POD_SETS};

/// `integrations.kinds[]`. Fields of the object are named by their paths, such as `spec.runPolicy.suspend`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredKind {
    /// `Kind.version.group`, such as `TrainingRun.v1.example.com`.
    pub name: String,
    /// The resource's name in URLs; the kind in lower case with an `s`, where there is none.
    pub plural: Option<String>,
    /// The boolean that keeps the job from having pods.
    pub suspend: String,
    /// Its pods.
    pub pod_sets: Vec<DeclaredPodSet>,
    /// What says that pods run.
    pub active: DeclaredActive,
    /// What says that all of them are ready. Where nothing does, they are when pods run.
    pub ready: Option<DeclaredReady>,
    /// What says that it has ended.
    pub finished: DeclaredFinished,
    /// Where the job, before its templates, names a PriorityClass.
    #[serde(default)]
    pub priority_class: Vec<String>,
}

/// `podSets[]`: one pod set, or, with `each`, one for every entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredPodSet {
    /// The list; then the other paths begin in its entries.
    pub each: Option<String>,
    /// The pod set's name; with `each`, the path of the name in the entry.
    pub name: String,
    /// The pod template. A single one that is not there is a pod set that the job does not have.
    pub template: String,
    /// Numbers that are multiplied; one that is not there is 1.
    #[serde(default)]
    pub count: Vec<String>,
}

/// `active`: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum DeclaredActive {
    /// A number above 0.
    Count(String),
    /// A number above 0 in any value of a map or list.
    Each {
        /// The map or list.
        path: String,
        /// The number, in the value.
        count: String,
    },
    /// This text.
    Text {
        /// Where.
        path: String,
        /// What.
        value: String,
    },
    /// A condition that is True.
    Condition(String),
}

/// `ready`: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum DeclaredReady {
    /// This text.
    Text {
        /// Where.
        path: String,
        /// What.
        value: String,
    },
    /// A condition that is True.
    Condition(String),
}

/// `finished`: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum DeclaredFinished {
    /// Conditions that are True.
    Conditions {
        /// It went well.
        succeeded: Vec<String>,
        /// It did not.
        #[serde(default)]
        failed: Vec<String>,
    },
    /// A text.
    Text {
        /// Where.
        path: String,
        /// The one that means that it went well.
        succeeded: String,
        /// Those that mean that it did not.
        #[serde(default)]
        failed: Vec<String>,
        /// Where it says more.
        message: Option<String>,
    },
}

/// Kind, version and group.
pub(super) fn parse_name(name: &str) -> Option<[&str; 3]> {
    let (kind, rest) = name.split_once('.')?;
    let (version, group) = rest.split_once('.')?;
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase());
    let whole = is_kind && !version.is_empty() && crds::validation::is_dns_subdomain(group);
    whole.then_some([kind, version, group])
}

/// Text of the table of kinds, which lives as long as the program: it is made once, when the configuration is read.
pub(crate) fn for_ever(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn all_for_ever<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

fn names(items: &[String]) -> Vec<&'static str> {
    items.iter().map(|one| for_ever(one)).collect()
}

/// Where a declaration is, for what is wrong with it.
struct Place<'a> {
    file: &'a Path,
    field: &'a str,
}

impl Place<'_> {
    fn refuse(&self, field: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError::invalid(self.file, &format!("{}.{field}", self.field), reason.into())
    }

    /// A path within an entry, as a JSON pointer.
    fn inner(&self, field: &str, text: &str) -> Result<&'static str, ConfigError> {
        let parts: Vec<&str> = text.trim_start_matches('.').split('.').collect();
        let is_name = |part: &&str| {
            !part.is_empty() && part.chars().all(|one| one.is_ascii_alphanumeric() || "-_".contains(one))
        };
        if !parts.iter().all(is_name) {
            return Err(self.refuse(field, format!("{text:?} is no path of a field, such as spec.suspend")));
        }
        Ok(for_ever(&format!("/{}", parts.join("/"))))
    }

    /// A path from the object's root.
    fn path(&self, field: &str, text: &str, under: &[&str]) -> Result<&'static str, ConfigError> {
        let pointer = self.inner(field, text)?;
        let is_under = |root: &&str| pointer.strip_prefix(*root).is_some_and(|rest| rest.starts_with('/'));
        if under.iter().any(is_under) {
            return Ok(pointer);
        }
        let roots: Vec<&str> = under.iter().map(|root| root.trim_start_matches('/')).collect();
        Err(self.refuse(field, format!("{text:?} must begin with {}", roots.join(" or "))))
    }
}

const SPEC: &[&str] = &["/spec"];
const STATUS: &[&str] = &["/status"];

impl DeclaredKind {
    /// The entry of the table that this is.
    pub(super) fn entry(&self, file: &Path, field: &str) -> Result<&'static JobKind, ConfigError> {
        let place = Place { file, field };
        let Some(name) = parse_name(&self.name) else {
            return Err(place.refuse("name", "it must be Kind.version.group"));
        };
        if self.pod_sets.is_empty() {
            return Err(place.refuse("podSets", "a job without pods has nothing to wait for"));
        }
        let fixed = self.pod_sets.iter().filter(|set| set.each.is_none());
        let names: Vec<&str> = fixed.map(|set| set.name.as_str()).collect();
        if BTreeSet::from_iter(&names).len() < names.len() {
            return Err(place.refuse("podSets", "two of them have one name"));
        }
        if names.len() > MAX_POD_SETS {
            let reason = format!("there are more than the {MAX_POD_SETS} that a Workload can have");
            return Err(place.refuse("podSets", &reason));
        }
        let sets = self.pod_sets.iter().enumerate().map(|(index, set)| set.entry(&place, index));
        let priority_class: Vec<&'static str> = self
            .priority_class
            .iter()
            .map(|path| place.path("priorityClass", path, SPEC))
            .collect::<Result<_, _>>()?;
        let base = table::external(name);
        Ok(Box::leak(Box::new(JobKind {
            framework: for_ever(&self.name),
            group: base.group,
            version: base.version,
            kind: base.kind,
            plural: self.plural.as_deref().map_or(base.plural, for_ever),
            suspend: place.path("suspend", &self.suspend, SPEC)?,
            pod_sets: PodSets::Declared(all_for_ever(sets.collect::<Result<_, _>>()?)),
            active: self.active.entry(&place)?,
            ready: match &self.ready {
                None => Ready::WhileActive,
                Some(DeclaredReady::Condition(name)) => Ready::Condition(for_ever(name)),
                Some(DeclaredReady::Text { path, value }) => {
                    Ready::Says { at: place.path("ready.text.path", path, STATUS)?, value: for_ever(value) }
                }
            },
            finished: self.finished.entry(&place)?,
            priority_class: all_for_ever(priority_class),
            prebuilt: true,
            ..table::BASE
        })))
    }
}

impl DeclaredPodSet {
    fn entry(&self, place: &Place<'_>, index: usize) -> Result<DeclaredSet, ConfigError> {
        let field = |name: &str| format!("podSets[{index}].{name}");
        let inner = |name: &str, text: &str| match &self.each {
            Some(_) => place.inner(&field(name), text),
            None => place.path(&field(name), text, SPEC),
        };
        let count = self.count.iter().map(|path| inner("count", path)).collect::<Result<Vec<_>, _>>()?;
        let is_label = crds::validation::is_dns_subdomain(&self.name)
            && !self.name.contains('.')
            && self.name.len() <= 63;
        if self.each.is_none() && !is_label {
            return Err(place.refuse(&field("name"), "it must be a DNS label of at most 63 characters"));
        }
        Ok(DeclaredSet {
            each: match &self.each {
                Some(list) => Some(place.path(&field("each"), list, SPEC)?),
                None => None,
            },
            name: match &self.each {
                Some(_) => SetName::At(inner("name", &self.name)?),
                None => SetName::Is(for_ever(&self.name)),
            },
            template: inner("template", &self.template)?,
            count: all_for_ever(count),
        })
    }
}

impl DeclaredActive {
    fn entry(&self, place: &Place<'_>) -> Result<Active, ConfigError> {
        Ok(match self {
            Self::Count(path) => Active::Count(place.path("active.count", path, STATUS)?),
            Self::Each { path, count } => Active::Each {
                at: place.path("active.each.path", path, STATUS)?,
                field: place.inner("active.each.count", count)?,
            },
            Self::Text { path, value } => {
                Active::Says { at: place.path("active.text.path", path, STATUS)?, value: for_ever(value) }
            }
            Self::Condition(name) => Active::Condition(for_ever(name)),
        })
    }
}

impl DeclaredFinished {
    fn entry(&self, place: &Place<'_>) -> Result<Finished, ConfigError> {
        Ok(match self {
            Self::Conditions { succeeded, failed } => {
                let well = names(succeeded).into_iter().map(|name| (name, true));
                let badly = names(failed).into_iter().map(|name| (name, false));
                Finished::Conditions(all_for_ever(well.chain(badly).collect()))
            }
            Self::Text { path, succeeded, failed, message } => {
                let at = place.path("finished.text.path", path, STATUS)?;
                let succeeded = for_ever(succeeded);
                let mut ends = names(failed);
                ends.push(succeeded);
                Finished::Says {
                    at,
                    ends: all_for_ever(ends),
                    well: (at, succeeded),
                    message: match message {
                        Some(path) => place.path("finished.text.message", path, STATUS)?,
                        None => "/status/message",
                    },
                    not_while: None,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;
    use crate::jobs::{JobObject, are_ready, read};
    use serde_json::json;

    const RUN: &str = "
integrations:
  frameworks: [pod]
  externalFrameworks: [Workflow.v1alpha1.argoproj.io]
  kinds:
    - name: TrainingRun.v1.example.com
      suspend: .spec.suspend
      podSets:
        - { name: leader, template: spec.leader.template }
        - { each: spec.groups, name: name, template: template, count: [replicas, podsEach] }
      active: { each: { path: status.groups, count: active } }
      finished: { text: { path: status.phase, succeeded: Done, failed: [Broken] } }
      priorityClass: [spec.priorityClassName]
";

    fn parse(text: &str) -> Result<Configuration, String> {
        Configuration::parse(Path::new("config.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_declared_kind_is_read_as_a_built_in_one() {
        let config = parse(RUN).unwrap();
        assert!(config.notices.is_empty());
        let kind = config.kinds().next().unwrap();
        assert_eq!(
            (kind.api_version().as_str(), kind.plural, kind.suspend),
            ("example.com/v1", "trainingruns", "/spec/suspend")
        );
        let template = json!({ "spec": { "containers": [] } });
        let group = |name: &str, replicas: i64| json!({ "name": name, "replicas": replicas, "podsEach": 2, "template": template });
        let object = |status| -> JobObject {
            serde_json::from_value(json!({
                "spec": {
                    "suspend": true, "priorityClassName": "high", "leader": { "template": template },
                    "groups": [group("A", 3), group("b", 1)],
                },
                "status": status,
            }))
            .unwrap()
        };
        let view = read(kind, &object(json!({})));
        assert!(view.suspended && !view.active && view.finished.is_none());
        assert_eq!(view.pod_priority_class.as_deref(), Some("high"));
        let sets = view.pod_sets.unwrap();
        let sets: Vec<_> =
            sets.iter().map(|set| (set.name.as_str(), set.count, set.template.as_str())).collect();
        assert_eq!(
            sets,
            [
                ("leader", 1, "/spec/leader/template"),
                ("a", 6, "/spec/groups/0/template"),
                ("b", 2, "/spec/groups/1/template"),
            ]
        );
        let running = object(json!({ "groups": { "a": { "active": 1 } } }));
        assert!(read(kind, &running).active && are_ready(kind, &running));
        for (phase, succeeded) in [("Done", true), ("Broken", false)] {
            let ended = read(kind, &object(json!({ "phase": phase, "message": "m" }))).finished.unwrap();
            assert_eq!((ended.succeeded, ended.message.as_str()), (succeeded, "m"));
        }
    }

    #[test]
    fn what_cannot_be_an_entry_is_refused_by_field() {
        for (before, after, words) in [
            (
                "TrainingRun.v1.example.com",
                "TrainingRun",
                "integrations.kinds[0].name: it must be Kind.version.group",
            ),
            (
                "TrainingRun.v1.example.com",
                "Workflow.v1alpha1.argoproj.io",
                "integrations.externalFrameworks[0]",
            ),
            (".spec.suspend", "status.suspend", "integrations.kinds[0].suspend"),
            (".spec.suspend", "spec..suspend", "integrations.kinds[0].suspend"),
            ("count: [replicas", "count: [\"a b\"", "integrations.kinds[0].podSets[1].count"),
            ("name: leader,", "name: The Leader,", "integrations.kinds[0].podSets[0].name"),
            (
                "- { name: leader,",
                "- { name: leader, template: spec.other }\n        - { name: leader,",
                "integrations.kinds[0].podSets: two of them have one name",
            ),
            ("status.phase", "spec.phase", "integrations.kinds[0].finished.text.path"),
            ("Workflow.v1alpha1.argoproj.io", "Workflow", "integrations.externalFrameworks[0]"),
            ("frameworks: [pod]", "frameworks: [batch/job]\n  unheard: 1", "integrations.unheard"),
        ] {
            let error = parse(&RUN.replacen(before, after, 1)).unwrap_err();
            assert!(error.contains(words), "{after}: {error}");
        }
        let left_alone = RUN.replace("Workflow.v1alpha1.argoproj.io", "Job.v1.batch");
        assert!(parse(&left_alone).is_ok(), "it is not among the frameworks");
        let many: String =
            (0..19).map(|set| format!("{{ name: s{set}, template: spec.s{set} }}, ")).collect();
        let many = RUN.replace(
            "podSets:\n        - { name: leader, template: spec.leader.template }",
            &format!("podSets: [{many}]"),
        );
        let many = many.replace(
            "        - { each: spec.groups, name: name, template: template, count: [replicas, podsEach] }\n",
            "",
        );
        assert!(parse(&many).unwrap_err().contains("more than the 18"));
        let too_long = RUN.replace("name: leader", &format!("name: {}", "l".repeat(64)));
        assert!(parse(&too_long).unwrap_err().contains("at most 63 characters"));
        let built_in = RUN.replace("frameworks: [pod]", "frameworks: [jobset.x-k8s.io/jobset]");
        let built_in = built_in.replace("Workflow.v1alpha1.argoproj.io", "JobSet.v1alpha2.jobset.x-k8s.io");
        assert!(parse(&built_in).unwrap_err().contains("managed already"));
    }
}
