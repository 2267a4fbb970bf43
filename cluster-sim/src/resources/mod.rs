//! What is served: the closed table of built-in resources, and the resources that CRDs add.

mod shape;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use table::{BUILTINS, Builtin, Feature};

use crate::crd::Schema;

/// A resource by its API group (empty for core) and plural name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupResource {
    /// Plural, lower case: `pods`.
    pub resource: Arc<str>,
    /// API group, empty for core.
    pub group: Arc<str>,
}

impl GroupResource {
    /// A resource of a group; the group is empty for core.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { resource: resource.into(), group: group.into() }
    }

    /// A resource of the core group.
    pub fn core(resource: &str) -> Self {
        Self::new("", resource)
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        &*self.group == group && &*self.resource == resource
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}
/// A column of the table that `kubectl get` prints.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) json_path: String,
}

/// One version in which a resource is served.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: Arc<str>,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    /// Whether `status` is a subresource.
    pub(crate) status: bool,
    /// Paths of the scale subresource: spec replicas, status replicas, label selector.
    pub(crate) scale: Option<ScalePaths>,
    /// Absent for built-ins.
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) columns: Vec<Column>,
    pub(crate) selectable: Vec<String>,
}

/// Where a kind keeps what its scale subresource shows.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// How the versions of a custom resource are converted into one another.
#[derive(Clone, Debug)]
pub(crate) enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// `spec.conversion.webhook.clientConfig` of the CRD.
    Webhook(Arc<Value>),
}

/// Where the rules of a resource come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Builtin(&'static Builtin),
    Custom(Conversion),
}

/// A served resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) id: GroupResource,
    /// The collection that holds the objects: its own, except that the two event APIs share one.
    pub(crate) storage: GroupResource,
    pub(crate) kind: Arc<str>,
    pub(crate) list_kind: Arc<str>,
    pub(crate) singular: Arc<str>,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<Version>,
    pub(crate) origin: Origin,
}

impl Resource {
    pub(crate) fn version(&self, name: &str) -> Option<usize> {
        self.versions.iter().position(|v| v.served && &*v.name == name)
    }

    pub(crate) fn storage_version(&self) -> usize {
        self.versions.iter().position(|v| v.storage).unwrap_or(0)
    }

    pub(crate) fn api_version(&self, version: usize) -> String {
        let name = &self.versions[version].name;
        if self.id.group.is_empty() { name.to_string() } else { format!("{}/{name}", self.id.group) }
    }

    pub(crate) fn builtin(&self) -> Option<&'static Builtin> {
        match self.origin {
            Origin::Builtin(builtin) => Some(builtin),
            Origin::Custom(_) => None,
        }
    }

    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.builtin().is_some_and(|b| b.features.contains(&feature))
    }

    /// Whether objects are stored in another shape than this version shows.
    pub(crate) fn converts(&self, version: usize) -> bool {
        self.id != self.storage || version != self.storage_version()
    }

    fn from_builtin(builtin: &'static Builtin) -> Self {
        let id = GroupResource::new(builtin.group, builtin.plural);
        let storage =
            if id.is("events.k8s.io", "events") { GroupResource::core("events") } else { id.clone() };
        let scale = builtin.features.contains(&Feature::Scale).then(|| ScalePaths {
            spec_replicas: vec!["spec".into(), "replicas".into()],
            status_replicas: vec!["status".into(), "replicas".into()],
            selector: None,
        });
        Self {
            id,
            storage,
            kind: builtin.kind.into(),
            list_kind: format!("{}List", builtin.kind).into(),
            singular: builtin.kind.to_lowercase().into(),
            short_names: builtin.short_names.iter().map(|s| (*s).to_owned()).collect(),
            categories: builtin.categories.iter().map(|s| (*s).to_owned()).collect(),
            namespaced: builtin.namespaced,
            versions: vec![Version {
                name: builtin.version.into(),
                served: true,
                storage: true,
                status: builtin.features.contains(&Feature::Status),
                scale,
                schema: None,
                columns: Vec::new(),
                selectable: Vec::new(),
            }],
            origin: Origin::Builtin(builtin),
        }
    }
}

/// Everything served, by group and plural.
#[derive(Clone, Debug)]
pub(crate) struct Registry(BTreeMap<GroupResource, Arc<Resource>>);

impl Registry {
    /// The built-in resources.
    pub(crate) fn builtins() -> Self {
        let all = BUILTINS
            .iter()
            .map(|b| (GroupResource::new(b.group, b.plural), Arc::new(Resource::from_builtin(b))));
        Self(all.collect())
    }

    pub(crate) fn get(&self, id: &GroupResource) -> Option<&Arc<Resource>> {
        self.0.get(id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.0.values()
    }

    pub(crate) fn insert(&mut self, resource: Resource) {
        self.0.insert(resource.id.clone(), Arc::new(resource));
    }

    pub(crate) fn remove(&mut self, id: &GroupResource) {
        self.0.remove(id);
    }
}
