use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method};

use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::resources::{GroupResource, Resource};
use crate::store::Verb;

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: usize,
    /// Absent for cluster-scoped resources and for lists of all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Arc<str>,
    /// The path is of the old form `…/watch/pods`.
    watching: bool,
}

impl Target {
    pub(crate) fn namespace_or_empty(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(self.version)
    }

    /// Finds the resource of a path below `/api` or `/apis`.
    pub(crate) fn parse(cluster: &Cluster, path: &str) -> Result<Self, ApiError> {
        let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(ApiError::no_such_path()),
        };
        let (watching, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (namespace, plural, name, subresource) = match rest {
            // A binding may be posted without naming the pod in the path.
            ["namespaces", namespace, "bindings"] if group.is_empty() => {
                (Some(*namespace), "pods", None, "binding")
            }
            ["namespaces", name] if group.is_empty() => (None, "namespaces", Some(*name), ""),
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
                (None, "namespaces", Some(*name), *sub)
            }
            ["namespaces", namespace, plural] => (Some(*namespace), *plural, None, ""),
            ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name), ""),
            ["namespaces", namespace, plural, name, sub] => (Some(*namespace), *plural, Some(*name), *sub),
            [plural] => (None, *plural, None, ""),
            [plural, name] => (None, *plural, Some(*name), ""),
            [plural, name, sub] => (None, *plural, Some(*name), *sub),
            _ => return Err(ApiError::no_such_path()),
        };
        let resource = cluster.resource(&GroupResource::new(group, plural))?;
        let version = resource.version(version).ok_or_else(ApiError::no_such_path)?;
        if namespace.is_some() != resource.namespaced && (name.is_some() || namespace.is_some()) {
            return Err(ApiError::no_such_path());
        }
        Ok(Self {
            resource,
            version,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.into(),
            watching,
        })
    }

    pub(crate) fn verb(&self, method: &Method, query: &Query) -> Result<Verb, ApiError> {
        let named = self.name.is_some();
        Ok(match (method.as_str(), named) {
            ("GET" | "HEAD", _) if self.watching || query.flag("watch") => Verb::Watch,
            ("GET" | "HEAD", true) => Verb::Get,
            ("GET" | "HEAD", false) => Verb::List,
            ("POST", _) => Verb::Create,
            ("PUT", true) => Verb::Update,
            ("PATCH", true) => Verb::Patch,
            ("DELETE", true) => Verb::Delete,
            ("DELETE", false) => Verb::DeleteCollection,
            (other, _) => return Err(ApiError::method_not_allowed(&self.resource.id.resource, other)),
        })
    }
}

/// The query string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|p| !p.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|v| matches!(v.as_str(), "true" | "1" | "True" | ""))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| ApiError::bad_request(format!("{key}: Invalid value: \"{text}\": not a number")))
        };
        self.get(key).map(parse).transpose()
    }

    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let error = FieldError::not_supported("dryRun", &other.into(), &["All".to_owned()]);
                Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]))
            }
        }
    }
}

/// Percent-decodes; what is no valid escape stays as it is.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let escape = (bytes[i] == b'%')
            .then(|| text.get(i + 1..i + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The form in which the caller wants objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// The objects themselves.
    Object,
    /// Rows for `kubectl get`.
    Table,
    /// Metadata alone.
    Metadata,
}

impl View {
    /// Negotiates; refuses a caller who takes nothing that is served.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Self, ApiError> {
        let accept = headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let served = |option: &str| {
            let media = option.split(';').next().unwrap_or_default().trim();
            matches!(
                media,
                "" | "*/*" | "application/*" | "application/json" | "application/yaml" | "text/plain"
            ) || media.starts_with("application/vnd.kubernetes.protobuf")
        };
        if !accept.split(',').any(served) {
            let message = "only the following media types are accepted: application/json";
            return Err(ApiError::new(406, "NotAcceptable", message));
        }
        Ok(Self::parse(headers))
    }

    fn parse(headers: &HeaderMap) -> Self {
        let accept = headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        for option in accept.split(',') {
            let mut parameters = option.split(';').map(str::trim);
            if !matches!(parameters.next(), Some("application/json" | "*/*" | "application/*" | "")) {
                continue;
            }
            for parameter in parameters {
                match parameter {
                    "as=Table" => return Self::Table,
                    "as=PartialObjectMetadata" | "as=PartialObjectMetadataList" => return Self::Metadata,
                    _ => {}
                }
            }
            return Self::Object;
        }
        Self::Object
    }
}

/// Whether a request's body names the uid or the resourceVersion of the object it is about, in its metadata (a patch, a
/// whole object, a Binding) or as a precondition (a deletion, an Eviction).
pub(crate) fn is_precise(body: &[u8]) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Identity {
        uid: String,
        resource_version: String,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Options {
        preconditions: Identity,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Body {
        metadata: Identity,
        preconditions: Identity,
        delete_options: Options,
    }
    let Ok(body) = serde_json::from_slice::<Body>(body) else { return false };
    [body.metadata, body.preconditions, body.delete_options.preconditions]
        .into_iter()
        .any(|one| !one.uid.is_empty() || !one.resource_version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precise_request_names_what_it_means() {
        for (body, precise) in [
            (r#"{"metadata":{"uid":"a"},"spec":{}}"#, true),
            (r#"{"metadata":{"resourceVersion":"7"}}"#, true),
            (r#"{"preconditions":{"uid":"a"}}"#, true),
            (r#"{"deleteOptions":{"preconditions":{"resourceVersion":"7"}}}"#, true),
            (r#"{"metadata":{"uid":""}}"#, false),
            (r#"{"metadata":{"labels":{"uid":"a"}},"spec":{"uid":"a"}}"#, false),
            ("", false),
        ] {
            assert_eq!(is_precise(body.as_bytes()), precise, "{body}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc&watch=1&limit=5&fieldSelector=x+y"));
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert!(query.flag("watch"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.get("fieldSelector"), Some("x y"));
        assert!(Query::parse(Some("dryRun=Some")).dry_run().is_err());
    }

    #[test]
    fn the_view_is_negotiated() {
        for (accept, view) in [
            ("application/json", View::Object),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", View::Table),
            ("application/vnd.kubernetes.protobuf;as=Table,application/json", View::Object),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", View::Metadata),
        ] {
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(View::parse(&headers), view, "{accept}");
        }
    }
}
