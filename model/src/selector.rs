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
    /// Whether a requirement on a node may list these values (`labels.NewRequirement` of `apimachinery`). What may not be listed
    /// is written by nobody who knows what it means: it neither matches nor fails to.
    pub fn accepts(self, listed: &[String]) -> bool {
        let makes_sense = match self {
            Self::In | Self::NotIn => !listed.is_empty(),
            Self::Exists | Self::DoesNotExist => listed.is_empty(),
            Self::Gt | Self::Lt => matches!(listed, [one] if one.parse::<i64>().is_ok()),
            Self::Unknown => false,
        };
        makes_sense && listed.iter().all(|value| is_label_value(value))
    }

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

/// Longest value of a label.
const VALUE_LENGTH: usize = 63;

/// Whether a label may have this value; it may be empty.
pub fn is_label_value(text: &str) -> bool {
    let may_be_inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= VALUE_LENGTH
        && text.bytes().all(may_be_inside)
        && ends.into_iter().flatten().all(|b| b.is_ascii_alphanumeric())
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
    fn an_operator_accepts_what_it_can_compare_with() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn, Unknown};
        for (operator, listed, accepted) in [
            (In, vec!["a", ""], true),
            (NotIn, vec!["a"], true),
            (Exists, vec![], true),
            (DoesNotExist, vec![], true),
            (Gt, vec!["8"], true),
            (In, vec![], false),
            (NotIn, vec![], false),
            (Exists, vec!["a"], false),
            (DoesNotExist, vec!["a"], false),
            (Gt, vec!["many"], false),
            (Gt, vec!["1", "2"], false),
            (Lt, vec![], false),
            (Lt, vec!["-1"], false),
            (In, vec!["a b"], false),
            (Unknown, vec![], false),
        ] {
            let values: Vec<String> = listed.into_iter().map(str::to_owned).collect();
            assert_eq!(operator.accepts(&values), accepted, "{operator:?} {values:?}");
        }
    }

    #[test]
    fn label_values() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        for (text, good) in [
            ("", true),
            ("A_b-c.9", true),
            (long.as_str(), true),
            (longer.as_str(), false),
            ("-a", false),
            ("a.", false),
            ("@abc", false),
        ] {
            assert_eq!(is_label_value(text), good, "{text}");
        }
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
