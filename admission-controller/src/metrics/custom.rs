//! Labels that series get from the objects they are about.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Owner;
use super::series::Labels;

/// What is shown of a value that is not told apart. Kueue's.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

/// One such label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomLabel {
    /// Its name.
    pub name: String,
    /// Whose series get it.
    pub owner: Owner,
    /// Where its value is.
    pub source: Source,
    /// Values that are told apart; without any, all are.
    pub tracked: BTreeSet<String>,
}

/// Where the value of such a label is: of an object that lacks it, it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the label of this key.
    Label(String),
    /// In the annotation of this key.
    Annotation(String),
}

impl CustomLabel {
    fn value(&self, metadata: &ObjectMeta) -> String {
        let value = match &self.source {
            Source::Label(key) => metadata.labels.as_ref().and_then(|all| all.get(key)),
            Source::Annotation(key) => metadata.annotations.as_ref().and_then(|all| all.get(key)),
        };
        let value = value.map(String::as_str).unwrap_or_default();
        let shown = self.tracked.is_empty() || self.tracked.contains(value);
        if shown { value.to_owned() } else { UNTRACKED.to_owned() }
    }
}

/// All such labels.
#[derive(Debug, Default)]
pub(super) struct Custom(Vec<CustomLabel>);

impl Custom {
    pub(super) fn new(labels: &[CustomLabel]) -> Self {
        Self(labels.to_vec())
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = &CustomLabel> {
        self.0.iter().filter(move |label| label.owner == owner)
    }

    /// The values that an object has.
    pub(super) fn values(&self, owner: Owner, metadata: &ObjectMeta) -> Labels {
        self.of(owner).map(|label| label.value(metadata).into()).collect()
    }

    /// Names and values for the series of an object; of one that is not known, they are empty.
    pub(super) fn named<'a>(&'a self, owner: Owner, values: &'a [Box<str>]) -> Vec<(&'a str, &'a str)> {
        let values = values.iter().map(|value| &**value).chain(std::iter::repeat(""));
        self.of(owner).map(|label| label.name.as_str()).zip(values).collect()
    }
}
