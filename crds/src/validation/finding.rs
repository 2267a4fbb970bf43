//! What is found to be wrong.

use std::fmt;

use serde_json::Value;

use super::path::Path;

/// Findings that are told at most: enough to work on, and an object of the largest size that is wrong everywhere still gets an
/// answer of ordinary size.
const MAX_FINDINGS: usize = 256;
/// Characters of a bad value that are shown.
const MAX_VALUE: usize = 256;
/// Possible values that are listed.
const MAX_CHOICES: usize = 16;

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where, as a path from the root of the object.
    pub field: String,
    /// What kind of wrong.
    pub kind: ErrorKind,
    /// The value that is wrong, where it is one that can be shown.
    pub value: Option<Value>,
    /// What would be right.
    pub detail: String,
}

/// Kinds of wrong, as `apimachinery`'s `field.ErrorType` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The value cannot be.
    Invalid,
    /// There must be a value.
    Required,
    /// The value is none of the possible ones.
    NotSupported,
    /// The value is there twice.
    Duplicate,
    /// There must be no such value, or not now.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// The list has too many entries.
    TooMany,
    /// What the value names does not exist.
    NotFound,
}

impl ErrorKind {
    /// The words `apimachinery` prints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }

    /// The token of a `Status`' cause (`metav1.CauseType`).
    pub fn token(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

impl FieldError {
    /// What is wrong, without where.
    pub fn body(&self) -> String {
        let mut text = self.kind.as_str().to_owned();
        let value = self.value.as_ref().map(shown);
        for part in value.iter().chain((!self.detail.is_empty()).then_some(&self.detail)) {
            text.push_str(": ");
            text.push_str(part);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => match text.char_indices().nth(MAX_VALUE) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        },
        other => other.to_string(),
    }
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Findings(Vec<FieldError>);

impl Findings {
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }

    fn add(&mut self, at: &Path<'_>, kind: ErrorKind, value: Option<Value>, detail: impl Into<String>) {
        if self.0.len() < MAX_FINDINGS {
            self.0.push(FieldError { field: at.to_string(), kind, value, detail: detail.into() });
        }
    }

    pub(super) fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(at, ErrorKind::Invalid, Some(value.into()), detail);
    }

    /// Of a value too large to be shown.
    pub(super) fn invalid_whole(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.add(at, ErrorKind::Invalid, None, detail);
    }

    pub(super) fn required(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.add(at, ErrorKind::Required, None, detail);
    }

    pub(super) fn forbidden(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.add(at, ErrorKind::Forbidden, None, detail);
    }

    pub(super) fn duplicate(&mut self, at: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(at, ErrorKind::Duplicate, Some(value.into()), detail);
    }

    pub(super) fn too_long(&mut self, at: &Path<'_>, limit: usize) {
        self.add(at, ErrorKind::TooLong, None, format!("at most {limit} bytes are possible"));
    }

    pub(super) fn not_found(&mut self, at: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(at, ErrorKind::NotFound, Some(value.into()), detail);
    }

    pub(super) fn not_supported<'a>(
        &mut self,
        at: &Path<'_>,
        value: impl Into<Value>,
        possible: impl IntoIterator<Item = &'a str>,
    ) {
        let mut possible = possible.into_iter();
        let mut list: Vec<&str> = possible.by_ref().take(MAX_CHOICES).collect();
        list.extend(possible.next().map(|_| "…"));
        let detail = match list.as_slice() {
            [] => "there is nothing to choose from".to_owned(),
            list => format!("possible: {}", list.join(", ")),
        };
        self.add(at, ErrorKind::NotSupported, Some(value.into()), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_would_be_right() {
        let mut findings = Findings::default();
        let at = Path::root("spec.x");
        findings.invalid(&at, "é".repeat(300), "be shorter");
        findings.required(&at, "");
        findings.not_supported(&at, 7, []);
        let names: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
        findings.not_supported(&at, "ghost", names.iter().map(String::as_str));
        let texts: Vec<String> = findings.into_errors().iter().map(ToString::to_string).collect();
        assert_eq!(texts[0], format!("spec.x: Invalid value: \"{}\"…: be shorter", "é".repeat(256)));
        assert_eq!(texts[1], "spec.x: Required value");
        assert_eq!(texts[2], "spec.x: Unsupported value: 7: there is nothing to choose from");
        assert!(texts[3].ends_with("f14, f15, …"), "{}", texts[3]);
    }
}
