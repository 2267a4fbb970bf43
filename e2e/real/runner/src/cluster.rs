//! Documents on the cluster: read from YAML, applied, waited for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

/// What came of applying one document.
#[derive(Debug)]
pub(crate) enum Applied {
    /// The server took it; this is what it stores.
    Accepted(Box<DynamicObject>),
    /// The server knows the kind and refused, with this message.
    Refused(String),
    /// No such kind is installed.
    Unknown,
}

/// The documents of a YAML file that are Kubernetes objects, lists taken apart.
pub(crate) fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    objects(&text).with_context(|| format!("{}", path.display()))
}

/// The same for a text.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let mut objects = Vec::new();
    for document in all {
        match document["items"].as_array() {
            Some(items) if document["kind"] == "List" => objects.extend(items.iter().cloned()),
            _ if document["kind"].is_string() && document["apiVersion"].is_string() => objects.push(document),
            _ => (),
        }
    }
    Ok(objects)
}

/// Every YAML file below a folder, in name order.
pub(crate) fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Applies documents, knowing the kinds that were installed when it was made.
#[derive(Clone)]
pub(crate) struct Applier {
    client: Client,
    kinds: std::sync::Arc<Discovery>,
}

impl Applier {
    /// Asks the server for its kinds, again where it fails: a definition that another test adds or removes at that moment is
    /// listed and not served.
    pub(crate) async fn new(client: Client) -> Result<Self> {
        let mut kinds = None;
        wait("the server to tell its kinds", Duration::from_secs(10), async || {
            // While the program that serves this one is not there, asking for it fails, and with it the whole.
            let asked = Discovery::new(client.clone()).exclude(&["visibility.kueue.x-k8s.io"]);
            kinds = Some(asked.run().await?);
            Ok(true)
        })
        .await?;
        Ok(Self { client, kinds: std::sync::Arc::new(kinds.context("it has none")?) })
    }

    /// Whether a kind was installed.
    pub(crate) fn knows(&self, group: &str, version: &str, kind: &str) -> bool {
        self.kinds.resolve_gvk(&GroupVersionKind::gvk(group, version, kind)).is_some()
    }

    /// Server-side apply (or a plain create, when there is only a `generateName`), in namespace `default` if none is said.
    pub(crate) async fn apply(&self, document: &Value, dry_run: bool) -> Result<Applied> {
        let object: DynamicObject = match serde_json::from_value(document.clone()) {
            Ok(object) => object,
            Err(error) => return Ok(Applied::Refused(error.to_string())),
        };
        let Some((api, namespace)) = self.api(&object)? else { return Ok(Applied::Unknown) };
        if let Some(namespace) = namespace
            && let Err(error) = self.namespace(&namespace).await
        {
            return Ok(Applied::Refused(error.to_string()));
        }
        let answer = match &object.metadata.name {
            Some(name) => {
                let mut params = PatchParams::apply("e2e").force();
                params.dry_run = dry_run;
                api.patch(name, &params, &Patch::Apply(document)).await
            }
            None => api.create(&PostParams { dry_run, ..PostParams::default() }, &object).await,
        };
        match answer {
            Ok(object) => Ok(Applied::Accepted(Box::new(object))),
            Err(kube::Error::Api(status)) => Ok(Applied::Refused(status.message.clone())),
            // A name that no path can carry.
            Err(kube::Error::BuildRequest(error)) => Ok(Applied::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Applies a document that must be accepted.
    pub(crate) async fn must(&self, document: &Value) -> Result<DynamicObject> {
        let what = format!("{} {}", document["kind"], document["metadata"]["name"]);
        match self.apply(document, false).await? {
            Applied::Accepted(object) => Ok(*object),
            Applied::Refused(message) => bail!("{what} was refused: {message}"),
            Applied::Unknown => bail!("{what}: no such kind is installed"),
        }
    }

    /// An object as it is now.
    pub(crate) async fn read(&self, object: &DynamicObject) -> Result<DynamicObject> {
        let (api, _) = self.api(object)?.context("no such kind is installed")?;
        Ok(api.get(&object.name_any()).await?)
    }

    /// Deletes an object and, later, what it owns. One that is not there is gone already.
    pub(crate) async fn delete(&self, object: &DynamicObject) -> Result<()> {
        let (api, _) = self.api(object)?.context("no such kind is installed")?;
        match api.delete(&object.name_any(), &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until an object that was deleted is not there any more.
    pub(crate) async fn gone(&self, object: &DynamicObject) -> Result<()> {
        let (api, _) = self.api(object)?.context("no such kind is installed")?;
        let name = object.name_any();
        wait(&format!("{name} to be gone"), Duration::from_secs(20), async || {
            Ok(api.get_opt(&name).await?.is_none())
        })
        .await
    }

    /// Where objects of its kind are, and its namespace, `default` if none is said; nothing if the kind is not installed.
    fn api(&self, object: &DynamicObject) -> Result<Option<(Api<DynamicObject>, Option<String>)>> {
        let types = object.types.as_ref().context("a document without kind")?;
        let Some((resource, capabilities)) = self.kinds.resolve_gvk(&GroupVersionKind::try_from(types)?)
        else {
            return Ok(None);
        };
        Ok(Some(match capabilities.scope {
            Scope::Cluster => (Api::all_with(self.client.clone(), &resource), None),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
                (Api::namespaced_with(self.client.clone(), &namespace, &resource), Some(namespace))
            }
        }))
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let request = http::Request::post("/api/v1/namespaces")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Applies the definitions in these files and waits until each is served. A second definition of a name is left out.
/// Returns what came of each name: an error text for those that were refused.
pub(crate) async fn install_definitions(
    client: &Client,
    files: &[PathBuf],
) -> Result<BTreeMap<String, Result<(), String>>> {
    let applier = Applier::new(client.clone()).await?;
    let mut installed = BTreeMap::new();
    for file in files {
        for document in documents(file)? {
            let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if document["kind"] != "CustomResourceDefinition" || installed.contains_key(&name) {
                continue;
            }
            let outcome = match applier.apply(&document, false).await? {
                Applied::Accepted(_) => Ok(()),
                Applied::Refused(why) => Err(why),
                Applied::Unknown => Err("the server has no CustomResourceDefinitions".to_owned()),
            };
            installed.insert(name, outcome);
        }
    }
    for (name, _) in installed.iter().filter(|(_, outcome)| outcome.is_ok()) {
        wait(&format!("{name} to be served"), Duration::from_secs(30), async || served(client, name).await)
            .await?;
    }
    Ok(installed)
}

/// Whether each served version of a definition can be listed. A definition that says it is established is not there yet: the
/// handlers of the server learn of it later, and answer 404 until then.
async fn served(client: &Client, name: &str) -> Result<bool> {
    let asking = |path: &str| http::Request::get(path).body(Vec::new());
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let definition: Value = client.request(asking(&path)?).await?;
    if !condition(&definition, "Established").is_some_and(|found| found["status"] == "True") {
        return Ok(false);
    }
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let path = format!("/apis/{group}/{}/{plural}?limit=1", text(&version["name"]));
        match client.request::<Value>(asking(&path)?).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// A condition of an object, by type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// GET of a path as JSON.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Value> {
    patiently(client, || Ok(http::Request::get(path).body(Vec::new())?)).await
}

/// A request with a body, as JSON; a PATCH is a merge patch.
pub(crate) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = || {
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        Ok(request.body(body.to_string().into_bytes())?)
    };
    patiently(client, request).await.with_context(|| format!("{method} {path}"))
}

/// Asks again for ten seconds where the server wants that: it did nothing, since a definition that changed is being set up anew.
async fn patiently(client: &Client, request: impl Fn() -> Result<http::Request<Vec<u8>>>) -> Result<Value> {
    for _ in 0..20 {
        match client.request(request()?).await {
            Err(kube::Error::Api(status)) if status.code == 429 => {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            answer => return Ok(answer?),
        }
    }
    bail!("still 429 after 10 s")
}

/// Asks four times a second until the answer is yes; the last error, if any, is in the message.
pub(crate) async fn wait(
    what: &str,
    limit: Duration,
    mut ready: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let asks = (limit.as_millis() / 250).max(1);
    let mut last = None;
    for _ in 0..asks {
        match ready().await {
            Ok(true) => return Ok(()),
            Ok(false) => last = None,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    match last {
        Some(error) => Err(error.context(format!("waited {} s for {what}", limit.as_secs()))),
        None => bail!("waited {} s in vain for {what}", limit.as_secs()),
    }
}
