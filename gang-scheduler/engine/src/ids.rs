use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A pod's `metadata.uid`: what a decision is about. Names are for people.
#[derive(Clone, Default, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(Arc<str>);

/// What the program calls a gang: any text that is unique among gangs and stays the same for its life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId(Arc<str>);

impl PodUid {
    /// The pod with this uid.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self(uid.into())
    }

    /// The uid.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GangId {
    /// The gang with this id.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for PodUid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for GangId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A row of the node columns. Rows are reused, so nothing outlives the node it was looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeIndex(pub(crate) usize);

/// A column of the node columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceIndex(pub(crate) usize);

/// An interned pod shape. Reused when no pod has the shape any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeId(pub(crate) usize);
