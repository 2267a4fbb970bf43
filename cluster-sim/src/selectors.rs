use serde_json::Value;

use crate::error::ApiError;
use crate::object::text;
use crate::validation::is_label_value;

/// One requirement of a label selector in its query form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    NotEquals(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

impl Requirement {
    /// Whether its values can be values of labels.
    fn is_well_formed(&self) -> bool {
        match self {
            Self::Equals(_, value) | Self::NotEquals(_, value) => is_label_value(value),
            Self::In(_, values) | Self::NotIn(_, values) => values.iter().all(|v| is_label_value(v)),
            _ => true,
        }
    }
}

/// `labelSelector` of a request; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelFilter(Vec<Requirement>);

impl LabelFilter {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        for part in split_outside_parentheses(text).into_iter().map(str::trim) {
            requirements.push(requirement(part).filter(Requirement::is_well_formed).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "unable to parse requirement: found '{part}' in the label selector"
                ))
            })?);
        }
        Ok(Self(requirements))
    }

    /// From a `LabelSelector` object (`matchLabels`, `matchExpressions`).
    pub(crate) fn from_object(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements
                    .push(Requirement::Equals(key.clone(), value.as_str().unwrap_or_default().into()));
            }
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = text(expression, &["key"]).to_owned();
            let values = expression
                .get("values")
                .and_then(Value::as_array)
                .map(|v| v.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                .unwrap_or_default();
            requirements.push(match text(expression, &["operator"]) {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                _ => Requirement::Absent(key),
            });
        }
        Self(requirements)
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        self.matches_labels(labels.unwrap_or(&Value::Null))
    }

    pub(crate) fn matches_labels(&self, labels: &Value) -> bool {
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equals(key, value) => label(key) == Some(value),
            Requirement::NotEquals(key, value) => label(key) != Some(value),
            Requirement::In(key, values) => label(key).is_some_and(|l| values.iter().any(|v| v == l)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|l| values.iter().all(|v| v != l)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::Greater(key, bound) => {
                label(key).and_then(|l| l.parse::<i64>().ok()).is_some_and(|n| n > *bound)
            }
            Requirement::Less(key, bound) => {
                label(key).and_then(|l| l.parse::<i64>().ok()).is_some_and(|n| n < *bound)
            }
        })
    }
}

impl std::fmt::Display for LabelFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Equals(key, value) => write!(f, "{key}={value}")?,
                Requirement::NotEquals(key, value) => write!(f, "{key}!={value}")?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
                Requirement::Greater(key, bound) => write!(f, "{key}>{bound}")?,
                Requirement::Less(key, bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    let list = |rest: &str| -> Option<Vec<String>> {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|v| v.trim().to_owned()).collect())
    };
    let key_ok = |key: &str| !key.is_empty() && !key.contains([' ', '(', ')', '!', '=']);
    if let Some(key) = part.strip_prefix('!') {
        let key = key.trim();
        return key_ok(key).then(|| Requirement::Absent(key.into()));
    }
    for (operator, make) in
        [(" notin", Requirement::NotIn as fn(String, Vec<String>) -> Requirement), (" in", Requirement::In)]
    {
        if let Some((key, rest)) = part.split_once(operator) {
            return key_ok(key.trim())
                .then(|| list(rest))
                .flatten()
                .map(|values| make(key.trim().into(), values));
        }
    }
    for (operator, make) in [
        ("!=", Requirement::NotEquals as fn(String, String) -> Requirement),
        ("==", Requirement::Equals),
        ("=", Requirement::Equals),
    ] {
        if let Some((key, value)) = part.split_once(operator) {
            let key = key.trim();
            return key_ok(key).then(|| make(key.into(), value.trim().into()));
        }
    }
    for (operator, make) in
        [(">", Requirement::Greater as fn(String, i64) -> Requirement), ("<", Requirement::Less)]
    {
        if let Some((key, value)) = part.split_once(operator) {
            return Some(make(key.trim().into(), value.trim().parse().ok()?));
        }
    }
    key_ok(part).then(|| Requirement::Exists(part.into()))
}

/// `fieldSelector` of a request; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldFilter(Vec<(Vec<String>, bool, String)>);

impl FieldFilter {
    /// `allowed` says which fields may be asked for beside `metadata.name` and `metadata.namespace`.
    pub(crate) fn parse(text: &str, kind: &str, allowed: impl Fn(&str) -> bool) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            let (field, equal, value) = if let Some((f, v)) = part.split_once("!=") {
                (f, false, v)
            } else if let Some((f, v)) = part.split_once("==") {
                (f, true, v)
            } else if let Some((f, v)) = part.split_once('=') {
                (f, true, v)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let field = field.trim();
            if !matches!(field, "metadata.name" | "metadata.namespace") && !allowed(field) {
                return Err(ApiError::bad_request(format!(
                    "field label not supported: {field}: no field selector of that name for kind {kind}"
                )));
            }
            terms.push((field.split('.').map(str::to_owned).collect(), equal, unescape(value)));
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| {
            let found = path.iter().try_fold(object, |v, key| v.get(key));
            let same = match found {
                Some(Value::String(s)) => s == wanted,
                Some(Value::Bool(b)) => wanted == if *b { "true" } else { "false" },
                Some(Value::Number(n)) => n.to_string() == *wanted,
                // An unset boolean reads as false, anything else unset as the empty string.
                _ => {
                    wanted.is_empty()
                        || (wanted == "false" && path.last().is_some_and(|l| l == "unschedulable"))
                }
            };
            same == *equal
        })
    }
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_follow_the_query_grammar() {
        let object = json!({ "metadata": { "labels": { "app": "a", "tier": "2", "x.y/z": "" } } });
        for (selector, expected) in [
            ("", true),
            ("app=a", true),
            ("app==a,tier=2", true),
            ("app!=a", false),
            ("other!=a", true),
            ("app in (b, a)", true),
            ("app notin (b,a)", false),
            ("other notin (a)", true),
            ("x.y/z", true),
            ("!app", false),
            ("!other,app in (a),tier", true),
            ("tier>1", true),
            ("tier<2", false),
        ] {
            assert_eq!(LabelFilter::parse(selector).unwrap().matches(&object), expected, "{selector}");
        }
        assert!(LabelFilter::parse("a b c").is_err());
    }

    #[test]
    fn field_selectors_compare_strings_and_treat_unset_as_empty() {
        let object = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n1" } });
        let all = |_: &str| true;
        for (selector, expected) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("status.phase!=Failed", true),
            ("status.phase=", true),
            ("metadata.name=p,spec.nodeName=n1", true),
            ("spec.unschedulable=false", true),
        ] {
            assert_eq!(
                FieldFilter::parse(selector, "Pod", all).unwrap().matches(&object),
                expected,
                "{selector}"
            );
        }
        assert_eq!(FieldFilter::parse("spec.foo=1", "Pod", |_| false).unwrap_err().code, 400);
    }
}
