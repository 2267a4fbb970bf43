//! The facts of a definition that a Rust type does not carry: short names, columns, which version is stored.

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition,
        CustomResourceDefinitionNames, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
        CustomResourceSubresourceStatus, CustomResourceValidation, JSONSchemaProps, SelectableField,
        ServiceReference, WebhookClientConfig, WebhookConversion,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use schemars::JsonSchema;

use crate::{names, schema};

/// Where objects of a kind live.
pub(super) trait Scope {
    /// As the definition spells it.
    const NAME: &'static str;
}

impl Scope for NamespaceResourceScope {
    const NAME: &'static str = "Namespaced";
}

impl Scope for ClusterResourceScope {
    const NAME: &'static str = "Cluster";
}

/// A definition in the making.
pub(super) struct Definition(CustomResourceDefinition);

impl Definition {
    /// Kind, group, plural and scope are `K`'s.
    pub(super) fn of<K>(singular: &str, short_names: &[&str]) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
        Self(CustomResourceDefinition {
            metadata: ObjectMeta { name: Some(format!("{plural}.{group}")), ..ObjectMeta::default() },
            spec: CustomResourceDefinitionSpec {
                group: group.to_string(),
                scope: <K::Scope as Scope>::NAME.to_owned(),
                names: CustomResourceDefinitionNames {
                    kind: kind.to_string(),
                    list_kind: Some(format!("{kind}List")),
                    plural: plural.to_string(),
                    singular: Some(singular.to_owned()),
                    short_names: (!short_names.is_empty())
                        .then(|| short_names.iter().map(|&name| name.to_owned()).collect()),
                    categories: None,
                },
                ..CustomResourceDefinitionSpec::default()
            },
            status: None,
        })
    }

    /// `kubectl get CATEGORY` lists the kind.
    pub(super) fn category(mut self, category: &str) -> Self {
        self.0.spec.names.categories.get_or_insert_default().push(category.to_owned());
        self
    }

    /// Adds a version.
    pub(super) fn version(mut self, version: Version) -> Self {
        self.0.spec.versions.push(version.0);
        self
    }

    /// Versions are converted by the webhook of admission-controller. The leader fills in the certificate authority.
    pub(super) fn converted(mut self) -> Self {
        self.0.spec.conversion = Some(CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(WebhookClientConfig {
                    service: Some(ServiceReference {
                        namespace: names::trireme::NAMESPACE.to_owned(),
                        name: names::trireme::ADMISSION_SERVICE.to_owned(),
                        path: Some(names::trireme::CONVERT_PATH.to_owned()),
                        port: None,
                    }),
                    ..WebhookClientConfig::default()
                }),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        });
        self
    }

    /// The definition.
    pub(super) fn finish(self) -> CustomResourceDefinition {
        self.0
    }
}

/// A version in the making.
pub(super) struct Version(CustomResourceDefinitionVersion);

impl Version {
    fn new<K: Resource<DynamicType = ()> + JsonSchema>(storage: bool) -> Self {
        let props: JSONSchemaProps = serde_json::from_value(schema::structural::<K>())
            .expect("`schema::structural` returns an OpenAPI v3 schema");
        Self(CustomResourceDefinitionVersion {
            name: K::version(&()).to_string(),
            served: true,
            storage,
            schema: Some(CustomResourceValidation { open_api_v3_schema: Some(props) }),
            ..CustomResourceDefinitionVersion::default()
        })
    }

    /// The version objects are stored in.
    pub(super) fn stored<K: Resource<DynamicType = ()> + JsonSchema>() -> Self {
        Self::new::<K>(true)
    }

    /// A version objects are not stored in.
    pub(super) fn served<K: Resource<DynamicType = ()> + JsonSchema>() -> Self {
        Self::new::<K>(false)
    }

    /// Clients are warned off it.
    pub(super) fn deprecated(mut self) -> Self {
        self.0.deprecated = Some(true);
        self.0.deprecation_warning = Some(format!("{} is deprecated: use v1beta2", self.0.name));
        self
    }

    /// There are none, said explicitly.
    pub(super) fn no_subresources(mut self) -> Self {
        self.0.subresources.get_or_insert_default();
        self
    }

    /// `--field-selector` knows the field.
    pub(super) fn selectable(mut self, json_path: &str) -> Self {
        let field = SelectableField { json_path: json_path.to_owned() };
        self.0.selectable_fields.get_or_insert_default().push(field);
        self
    }

    /// Status is a subresource.
    pub(super) fn status(mut self) -> Self {
        self.0.subresources.get_or_insert_default().status =
            Some(CustomResourceSubresourceStatus(serde_json::json!({})));
        self
    }

    /// Adds a column to `kubectl get`.
    pub(super) fn column(self, name: &str, type_: &str, json_path: &str) -> Self {
        self.add_column(name, type_, json_path, None)
    }

    /// Adds a column to `kubectl get -o wide`.
    pub(super) fn wide_column(self, name: &str, type_: &str, json_path: &str) -> Self {
        self.add_column(name, type_, json_path, Some(1))
    }

    fn add_column(mut self, name: &str, type_: &str, json_path: &str, priority: Option<i32>) -> Self {
        self.0.additional_printer_columns.get_or_insert_default().push(CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: json_path.to_owned(),
            priority,
            ..CustomResourceColumnDefinition::default()
        });
        self
    }
}
