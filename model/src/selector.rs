//! Label selectors, as `metav1.LabelSelector` defines them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Selects objects by label: every requirement must hold, and no requirement selects everything.
///
/// Where Kubernetes distinguishes "no selector" (nothing matches) from the empty one, use an `Option` of this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be present with exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::null_as_default")]
    pub match_labels: Labels,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::null_as_default")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::null_as_default")]
    pub values: Vec<String>,
}

/// The operators of label and node selectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of the listed ones.
    In,
    /// The label is absent, or its value is none of the listed ones.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is an integer above the one listed. Node selectors only.
    Gt,
    /// The value is an integer below the one listed. Node selectors only.
    Lt,
    /// An operator this version does not know: it matches nothing, so that a new one fails closed.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Operator {
    /// Whether a label with this value (`None`: absent) satisfies the operator.
    pub fn holds(self, value: Option<&str>, listed: &[String]) -> bool {
        let compared = || {
            let [threshold] = listed else { return None };
            Some((value?.parse::<i64>().ok()?, threshold.parse::<i64>().ok()?))
        };
        match self {
            Self::In => value.is_some_and(|value| listed.iter().any(|one| one == value)),
            Self::NotIn => value.is_none_or(|value| listed.iter().all(|one| one != value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt => compared().is_some_and(|(value, threshold)| value > threshold),
            Self::Lt => compared().is_some_and(|(value, threshold)| value < threshold),
            Self::Unknown => false,
        }
    }
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let known = !matches!(requirement.operator, Operator::Gt | Operator::Lt);
                known
                    && requirement
                        .operator
                        .holds(labels.get(&requirement.key).map(String::as_str), &requirement.values)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> LabelSelector {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn requirements_are_all_needed() {
        let labels: Labels = [("team", "a"), ("tier", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (json, expected) in [
            ("{}", true),
            (r#"{"matchLabels":null,"matchExpressions":null}"#, true),
            (r#"{"matchLabels":{"team":"a"}}"#, true),
            (r#"{"matchLabels":{"team":"b"}}"#, false),
            (r#"{"matchExpressions":[{"key":"team","operator":"In","values":["a","b"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"none","operator":"In","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"none","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"team","operator":"NotIn","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"team","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Gt","values":["1"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"team","operator":"Invented"}]}"#, false),
            (
                r#"{"matchLabels":{"team":"a"},"matchExpressions":[{"key":"tier","operator":"In","values":["4"]}]}"#,
                false,
            ),
        ] {
            assert_eq!(selector(json).matches(&labels), expected, "{json}");
        }
    }
}
