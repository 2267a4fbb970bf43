//! What decides whether a node suits a pod: taints, tolerations, node selectors.

use serde::{Deserialize, Serialize};

use crate::selector::{Labels, Operator};

/// The label that holds a node's host name. As the lowest level of a topology it makes every domain one node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// New pods stay away.
    #[default]
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// New pods stay away and running ones leave.
    NoExecute,
    /// An effect this version does not know: treated as one that keeps pods away.
    #[serde(other)]
    Unknown,
}

impl TaintEffect {
    /// Whether a pod that does not tolerate the taint must not be placed.
    pub fn repels(self) -> bool {
        self != Self::PreferNoSchedule
    }
}

/// A node's, or a flavor's, mark that keeps pods away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "crate::null_as_default")]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// The values are equal.
    #[default]
    Equal,
    /// Any value is tolerated.
    Exists,
    /// The taint's integer value is below the toleration's (KEP-5471).
    Lt,
    /// The taint's integer value is above the toleration's (KEP-5471).
    Gt,
    /// An operator this version does not know: tolerates nothing.
    #[serde(other)]
    Unknown,
}

/// A pod's permission to ignore a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The key tolerated; empty (with `Exists`) tolerates every key.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "crate::null_as_default")]
    pub key: String,
    /// How values are compared.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub operator: TolerationOperator,
    /// The value it is compared with.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "crate::null_as_default")]
    pub value: String,
    /// The effect tolerated; none tolerates every effect.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub effect: Option<TaintEffect>,
    /// How long a `NoExecute` taint is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Kubernetes writes "every effect" as an absent, null or empty effect.
fn empty_as_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<TaintEffect>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    Ok(match text.as_str() {
        "" => None,
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => Some(TaintEffect::Unknown),
    })
}

impl Toleration {
    /// Whether both are of the same, for however long (Kubernetes' `MatchToleration`).
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.key, self.operator, &self.value, &self.effect)
            == (&other.key, other.operator, &other.value, &other.effect)
    }

    /// Whether this toleration covers the taint (`Toleration.ToleratesTaint` of the core API).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        // Neither leading zeros nor a plus sign.
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        let numbers = || Some((number(&taint.value)?, number(&self.value)?));
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, threshold)| taint < threshold),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, threshold)| taint > threshold),
            TolerationOperator::Unknown => false,
        }
    }
}

/// The first taint that keeps a pod with these tolerations from being placed.
pub fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: impl IntoIterator<Item = &'a Toleration> + Clone,
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect.repels())
        .find(|taint| !tolerations.clone().into_iter().any(|toleration| toleration.tolerates(taint)))
}

/// Required node affinity: one of the terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternatives. None of them: nothing matches.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One alternative: all its requirements must hold. Without any it matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::null_as_default")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on the node's fields; `metadata.name` is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::null_as_default")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// One requirement on one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelectorRequirement {
    /// The label's key, or the field's path.
    pub key: String,
    /// How the value relates to `values`.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::null_as_default")]
    pub values: Vec<String>,
}

impl NodeSelector {
    /// Whether a node with this name and these labels is selected.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeSelectorTerm {
    /// The label or field of a requirement that cannot be read: nobody knows which nodes its author meant. A field is compared
    /// with one value (`k8s.io/component-helpers`, `scheduling/corev1/nodeaffinity`).
    pub fn malformed(&self) -> Option<&str> {
        let is_field = |one: &NodeSelectorRequirement| {
            matches!(one.operator, Operator::In | Operator::NotIn) && one.values.len() == 1
        };
        let label = self.match_expressions.iter().find(|one| !one.operator.accepts(&one.values));
        let malformed = label.or_else(|| self.match_fields.iter().find(|one| !is_field(one)));
        malformed.map(|one| one.key.as_str())
    }

    /// Whether a node with this name and these labels satisfies the term.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        if self.match_expressions.is_empty() && self.match_fields.is_empty() {
            return false;
        }
        self.match_expressions
            .iter()
            .all(|one| one.operator.holds(labels.get(&one.key).map(String::as_str), &one.values))
            && self
                .match_fields
                .iter()
                .all(|one| one.key == "metadata.name" && one.operator.holds(Some(name), &one.values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations() {
        let gpu = |value: &str, effect| Taint { key: "gpu".into(), value: value.into(), effect };
        for (json, taint, expected) in [
            (r#"{"operator":"Exists"}"#, gpu("", TaintEffect::NoSchedule), true),
            (r#"{"operator":"Exists","effect":"NoExecute"}"#, gpu("", TaintEffect::NoSchedule), false),
            (r#"{"key":"gpu"}"#, gpu("", TaintEffect::NoSchedule), true),
            (r#"{"key":"gpu","value":"a100"}"#, gpu("a100", TaintEffect::NoSchedule), true),
            (r#"{"key":"gpu","value":"a100","effect":""}"#, gpu("a100", TaintEffect::NoExecute), true),
            (r#"{"key":"gpu","value":"h100"}"#, gpu("a100", TaintEffect::NoSchedule), false),
            (
                r#"{"key":"gpu","operator":"Exists","effect":"NoSchedule"}"#,
                gpu("x", TaintEffect::NoSchedule),
                true,
            ),
            (r#"{"key":"other","operator":"Exists"}"#, gpu("x", TaintEffect::NoSchedule), false),
            (r#"{"key":"gpu","operator":"Gt","value":"3"}"#, gpu("5", TaintEffect::NoSchedule), true),
            (r#"{"key":"gpu","operator":"Lt","value":"3"}"#, gpu("5", TaintEffect::NoSchedule), false),
            (r#"{"key":"gpu","operator":"Lt","value":"3"}"#, gpu("many", TaintEffect::NoSchedule), false),
            (r#"{"key":"gpu","operator":"Lt","value":"10"}"#, gpu("05", TaintEffect::NoSchedule), false),
            (r#"{"key":"gpu","operator":"Lt","value":"+10"}"#, gpu("5", TaintEffect::NoSchedule), false),
            ("{}", gpu("", TaintEffect::NoSchedule), true),
            (r#"{"key":"gpu","operator":"Invented"}"#, gpu("", TaintEffect::NoSchedule), false),
        ] {
            let toleration: Toleration = serde_json::from_str(json).unwrap();
            assert_eq!(toleration.tolerates(&taint), expected, "{json} {taint:?}");
        }
    }

    #[test]
    fn only_repelling_taints_keep_a_pod_away() {
        let taints = [TaintEffect::PreferNoSchedule, TaintEffect::NoExecute].map(|effect| Taint {
            key: "k".into(),
            value: String::new(),
            effect,
        });
        assert_eq!(first_untolerated(&taints, &[]), Some(&taints[1]));
        let everything = [Toleration { operator: TolerationOperator::Exists, ..Toleration::default() }];
        assert_eq!(first_untolerated(&taints, &everything), None);
    }

    #[test]
    fn node_selectors() {
        let labels: Labels =
            [("gpus", "8"), ("rack", "r1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (json, expected) in [
            (r#"{"nodeSelectorTerms":[]}"#, false),
            (r#"{"nodeSelectorTerms":[{}]}"#, false),
            (
                r#"{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"rack","operator":"In","values":["r1"]}]}]}"#,
                true,
            ),
            (
                r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpus","operator":"Gt","values":["4"]}]}]}"#,
                true,
            ),
            (
                r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpus","operator":"Lt","values":["4"]}]}]}"#,
                false,
            ),
            (
                r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}"#,
                true,
            ),
            (
                r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"spec.x","operator":"NotIn","values":["n1"]}]}]}"#,
                false,
            ),
            (
                r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"rack","operator":"Exists"}],
                    "matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n1"]}]}]}"#,
                false,
            ),
        ] {
            let selector: NodeSelector = serde_json::from_str(json).unwrap();
            assert_eq!(selector.matches("n1", &labels), expected, "{json}");
        }
    }

    #[test]
    fn terms_that_cannot_be_read() {
        for (json, expected) in [
            ("{}", None),
            (r#"{"matchExpressions":[{"key":"rack","operator":"NotIn","values":["r1","r2"]}]}"#, None),
            (r#"{"matchExpressions":[{"key":"rack","operator":"NotIn","values":[]}]}"#, Some("rack")),
            (r#"{"matchExpressions":[{"key":"rack","operator":"Exists","values":["r1"]}]}"#, Some("rack")),
            (r#"{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n1"]}]}"#, None),
            (
                r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1","n2"]}]}"#,
                Some("metadata.name"),
            ),
            (r#"{"matchFields":[{"key":"metadata.name","operator":"Exists"}]}"#, Some("metadata.name")),
        ] {
            let term: NodeSelectorTerm = serde_json::from_str(json).unwrap();
            assert_eq!(term.malformed(), expected, "{json}");
        }
    }
}
