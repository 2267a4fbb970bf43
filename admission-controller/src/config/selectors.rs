//! Label selectors of the file: `metav1.LabelSelector`, by the rules of apimachinery's `ValidateLabelSelector`.

use std::path::Path;

use crds::validation::label_selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kit::config::ConfigError;
use serde_json::Value;

use super::fields::unknown;

/// Where there is one.
const SELECTORS: [&str; 2] = ["managedJobsNamespaceSelector", "metrics.localQueueMetrics.localQueueSelector"];
const FIELDS: [&str; 2] = ["matchExpressions", "matchLabels"];
const REQUIREMENT: [&str; 3] = ["key", "operator", "values"];

/// Refuses selectors that select nothing anybody could have meant.
pub(super) fn check(path: &Path, file: &Value) -> Result<(), ConfigError> {
    for field in SELECTORS {
        if let Some(selector) = file.pointer(&format!("/{}", field.replace('.', "/"))) {
            check_one(path, field, selector)?;
        }
    }
    Ok(())
}

fn check_one(path: &Path, field: &str, selector: &Value) -> Result<(), ConfigError> {
    only(path, field, selector, &FIELDS)?;
    for (index, one) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        only(path, &format!("{field}.matchExpressions[{index}]"), one, &REQUIREMENT)?;
    }
    let written: LabelSelector =
        serde_json::from_value(selector.clone()).map_err(|error| ConfigError::invalid(path, field, error))?;
    match label_selector(&written, field).first() {
        Some(wrong) => Err(ConfigError::invalid(path, &wrong.field, wrong.body())),
        None => Ok(()),
    }
}

/// Refuses what is no field of an object; what is no object is refused elsewhere.
fn only(path: &Path, at: &str, object: &Value, known: &[&str]) -> Result<(), ConfigError> {
    let mut keys = object.as_object().into_iter().flat_map(|object| object.keys());
    match keys.find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(unknown(path, &format!("{at}.{key}"), key, &known.join(", "))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    #[test]
    fn a_selector_that_makes_no_sense_is_refused_by_its_field() {
        let expression = |inside: &str| format!("{{ matchExpressions: [{{ {inside} }}] }}");
        for (selector, wanted) in [
            ("{ matchLabel: { team: a } }".to_owned(), ".matchLabel: unknown field"),
            ("{ matchLabels: { 'a b': c } }".to_owned(), ".matchLabels: "),
            ("{ matchLabels: { a: 'b c' } }".to_owned(), ".matchLabels: "),
            (expression("key: a, operator: in, values: [b]"), ".matchExpressions[0].operator: "),
            (expression("key: a, operator: Gt, values: ['1']"), ".matchExpressions[0].operator: "),
            (expression("key: a, operator: In"), ".matchExpressions[0].values: "),
            (expression("key: a, operator: Exists, values: [b]"), ".matchExpressions[0].values: "),
            (expression("key: 'a b', operator: Exists"), ".matchExpressions[0].key: "),
            (expression("key: a, operator: In, value: [b]"), ".matchExpressions[0].value: unknown field"),
        ] {
            for (file, field) in [
                (format!("managedJobsNamespaceSelector: {selector}"), SELECTORS[0]),
                (
                    format!("metrics: {{ localQueueMetrics: {{ localQueueSelector: {selector} }} }}"),
                    SELECTORS[1],
                ),
            ] {
                let error = Configuration::parse(Path::new("f"), &file).unwrap_err().to_string();
                assert!(error.contains(&format!("{field}{wanted}")), "{file}: {error}");
            }
        }
    }

    #[test]
    fn a_selector_that_makes_sense_is_read() {
        let file = "managedJobsNamespaceSelector:\n  matchLabels: { team: a }\n  matchExpressions: \
                    [{ key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system] }]\n";
        let config = Configuration::parse(Path::new("f"), file).unwrap();
        let selector = config.managed_jobs_namespace_selector.unwrap();
        assert_eq!((selector.match_labels.len(), selector.match_expressions.len()), (1, 1));
    }
}
