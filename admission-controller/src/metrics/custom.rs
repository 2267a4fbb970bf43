//! Labels that series get from the objects they are about.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Owner;

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

/// The labels, and their values by owner and its names.
#[derive(Debug, Default)]
pub(super) struct Custom {
    labels: Vec<CustomLabel>,
    values: BTreeMap<(Owner, Vec<String>), Vec<String>>,
}

impl Custom {
    pub(super) fn new(labels: &[CustomLabel]) -> Self {
        Self { labels: labels.to_vec(), values: BTreeMap::new() }
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = &CustomLabel> {
        self.labels.iter().filter(move |label| label.owner == owner)
    }

    pub(super) fn describe(&mut self, owner: Owner, names: &[&str], metadata: &ObjectMeta) {
        let values: Vec<String> = self.of(owner).map(|label| label.value(metadata)).collect();
        if !values.is_empty() {
            self.values.insert(key(owner, names), values);
        }
    }

    pub(super) fn forget(&mut self, owner: Owner, names: &[&str]) {
        self.values.remove(&key(owner, names));
    }

    /// Names and values for a series with these labels, of which the owner's names are the first.
    pub(super) fn of_series<'a>(&'a self, owner: Owner, labels: &[String]) -> Vec<(&'a str, &'a str)> {
        let names = labels.iter().take(owner.names()).cloned().collect();
        let values = if self.labels.is_empty() { None } else { self.values.get(&(owner, names)) };
        let value = |index: usize| values.and_then(|values| values.get(index)).map_or("", String::as_str);
        self.of(owner).enumerate().map(|(index, label)| (label.name.as_str(), value(index))).collect()
    }
}

fn key(owner: Owner, names: &[&str]) -> (Owner, Vec<String>) {
    (owner, names.iter().map(|&name| name.to_owned()).collect())
}
