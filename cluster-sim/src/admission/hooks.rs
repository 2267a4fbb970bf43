use std::sync::Arc;

use serde_json::Value;

use super::Operation;
use crate::object::{at, items, text};
use crate::resources::{GroupResource, Resource};
use crate::selectors::LabelFilter;
use crate::store::State;

/// One rule of a webhook.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// One webhook, ready to be matched and called.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) mutating: bool,
    pub(super) ignore_failure: bool,
    pub(super) reinvoke: bool,
    pub(super) timeout: u64,
    pub(super) client: Arc<Value>,
    pub(super) namespaces: LabelFilter,
    pub(super) objects: LabelFilter,
    exact: bool,
    rules: Vec<Rule>,
}

/// The webhooks of all configurations, in the order in which they are called.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    mutating: Vec<Hook>,
    validating: Vec<Hook>,
}

impl Hooks {
    pub(crate) fn compile(state: &State) -> Self {
        let of = |plural: &str, mutating: bool| -> Vec<Hook> {
            // Objects are listed by name, which is the order among configurations.
            state
                .list(&GroupResource::new("admissionregistration.k8s.io", plural), None)
                .iter()
                .flat_map(|c| {
                    items(c.value(), &["webhooks"])
                        .iter()
                        .map(|w| Hook::compile(w, mutating))
                        .collect::<Vec<_>>()
                })
                .collect()
        };
        Self {
            mutating: of("mutatingwebhookconfigurations", true),
            validating: of("validatingwebhookconfigurations", false),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    pub(super) fn mutating(&self) -> &[Hook] {
        &self.mutating
    }

    pub(super) fn validating(&self) -> &[Hook] {
        &self.validating
    }
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    items(value, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn holds(list: &[String], value: &str) -> bool {
    list.iter().any(|l| l == "*" || l == value)
}

impl Hook {
    fn compile(hook: &Value, mutating: bool) -> Self {
        let rule = |r: &Value| Rule {
            operations: strings(r, "operations"),
            groups: strings(r, "apiGroups"),
            versions: strings(r, "apiVersions"),
            resources: strings(r, "resources"),
            scope: text(r, &["scope"]).to_owned(),
        };
        Self {
            name: text(hook, &["name"]).to_owned(),
            mutating,
            ignore_failure: text(hook, &["failurePolicy"]) == "Ignore",
            reinvoke: text(hook, &["reinvocationPolicy"]) == "IfNeeded",
            timeout: at(hook, &["timeoutSeconds"]).as_u64().unwrap_or(10),
            client: Arc::new(at(hook, &["clientConfig"]).clone()),
            namespaces: LabelFilter::from_object(at(hook, &["namespaceSelector"])),
            objects: LabelFilter::from_object(at(hook, &["objectSelector"])),
            exact: text(hook, &["matchPolicy"]) == "Exact",
            rules: items(hook, &["rules"]).iter().map(rule).collect(),
        }
    }

    /// The version of the resource that a rule names. With the policy `Equivalent` a rule for any served version
    /// matches, and the object is converted to it; the storage version is preferred.
    pub(super) fn version(
        &self,
        resource: &Resource,
        operation: Operation,
        subresource: &str,
    ) -> Option<usize> {
        let storage = resource.storage_version();
        let others = (0..resource.versions.len())
            .filter(|v| *v != storage && resource.versions[*v].served && !self.exact);
        std::iter::once(storage).chain(others).find(|version| {
            self.rules.iter().any(|rule| rule.matches(resource, *version, operation, subresource))
        })
    }
}

impl Rule {
    fn matches(&self, resource: &Resource, version: usize, operation: Operation, subresource: &str) -> bool {
        let scope = match self.scope.as_str() {
            "Namespaced" => resource.namespaced,
            "Cluster" => !resource.namespaced,
            _ => true,
        };
        scope
            && holds(&self.operations, operation.as_str())
            && holds(&self.groups, &resource.id.group)
            && holds(&self.versions, &resource.versions[version].name)
            && self.resources.iter().any(|pattern| named(pattern, &resource.id.resource, subresource))
    }
}

fn named(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (main, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    let main_ok = main == "*" || main == plural;
    // `*/*` and `pods/*` cover the main resource's subresources; `*/*` the resource itself, too.
    let sub_ok = sub == subresource || (sub == "*" && (!subresource.is_empty() || main == "*"));
    main_ok && sub_ok
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn resource_patterns() {
        for (pattern, subresource, expected) in [
            ("pods", "", true),
            ("pods", "status", false),
            ("pods/status", "status", true),
            ("pods/*", "", false),
            ("pods/*", "binding", true),
            ("*", "", true),
            ("*", "status", false),
            ("*/*", "", true),
            ("*/*", "status", true),
            ("jobs", "", false),
        ] {
            assert_eq!(named(pattern, "pods", subresource), expected, "{pattern} pods/{subresource}");
        }
    }
}
