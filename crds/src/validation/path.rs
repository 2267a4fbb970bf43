//! Where something is in an object.

use std::fmt;

/// A path, as a chain of borrowed parts: written out only for what is wrong, so that looking at what is right allocates nothing.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: Part<'a>,
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself. May be several, with dots between them.
    pub(super) const fn root(name: &'a str) -> Self {
        Self { parent: None, part: Part::Field(name) }
    }

    /// A field of what is here.
    pub(super) const fn field(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), part: Part::Field(name) }
    }

    /// An element of the list that is here.
    pub(super) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), part: Part::Index(index) }
    }

    /// An entry of the map, or of the list known by names, that is here.
    pub(super) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), part: Part::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Part::Field(name) => f.write_str(name),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_kubernetes_writes_it() {
        let spec = Path::root("spec");
        let sets = spec.field("podSets");
        let set = sets.index(3);
        let requests = set.field("template.spec.resources.requests");
        assert_eq!(
            requests.key("nvidia.com/gpu").to_string(),
            "spec.podSets[3].template.spec.resources.requests[nvidia.com/gpu]"
        );
    }
}
