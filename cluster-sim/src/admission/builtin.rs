use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::object::{ObjectKey, at, entry, name, text};
use crate::resources::{GroupResource, Resource};

/// What the server's own admission plugins do to new objects.
pub(crate) fn on_create(cluster: &Cluster, resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    if resource.id.is("", "pods") {
        super::limits::default(cluster, value);
        priority(cluster, resource, value)?;
        tolerations(entry(value, "spec"));
        let spec = entry(value, "spec");
        let account = spec.get("serviceAccountName").and_then(Value::as_str).filter(|a| !a.is_empty());
        let account = account.unwrap_or("default").to_owned();
        spec.insert("serviceAccountName".into(), account.as_str().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    Ok(())
}

/// What the ResourceQuota plugin refuses; asked last, when the object is what will be stored.
pub(crate) fn on_quota(cluster: &Cluster, resource: &Resource, value: &Value) -> Result<(), ApiError> {
    if resource.id.is("", "pods") { super::limits::check_quota(cluster, resource, value) } else { Ok(()) }
}

/// The DefaultTolerationSeconds plugin: a pod stays for five minutes on a node that is lost, unless it says otherwise.
fn tolerations(spec: &mut Map<String, Value>) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |t: &Value| {
            (text(t, &["key"]) == key || text(t, &["key"]).is_empty())
                && matches!(text(t, &["effect"]), "" | "NoExecute")
        };
        if !list.iter().any(tolerated) {
            list.push(
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }),
            );
        }
    }
}

/// The Priority plugin: resolves the class, and refuses a priority that contradicts it.
fn priority(cluster: &Cluster, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    let id = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    let asked = text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if asked.is_empty() {
        let is_default = |c: &Value| at(c, &["globalDefault"]) == &Value::Bool(true);
        let all = cluster.state().list(&id, None);
        all.into_iter().filter(|c| is_default(c.value())).min_by_key(|c| at(c.value(), &["value"]).as_i64())
    } else {
        let found = cluster.state().get(&id, &ObjectKey::new("", &asked));
        let found = found.ok_or_else(|| {
            ApiError::forbidden(
                &resource.id,
                name(pod),
                format!("no PriorityClass with name {asked} was found"),
            )
        })?;
        Some(found)
    };
    let value = class.as_ref().and_then(|c| at(c.value(), &["value"]).as_i64()).unwrap_or(0);
    let policy =
        class.as_ref().map(|c| text(c.value(), &["preemptionPolicy"]).to_owned()).unwrap_or_default();
    let policy = if policy.is_empty() { "PreemptLowerPriority".to_owned() } else { policy };
    if let Some(given) = at(pod, &["spec", "priority"]).as_i64().filter(|g| *g != value) {
        return Err(ApiError::forbidden(
            &resource.id,
            name(pod),
            format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            ),
        ));
    }
    let spec = entry(pod, "spec");
    if let (true, Some(class)) = (asked.is_empty(), &class) {
        spec.insert("priorityClassName".into(), (*class.key().name).into());
    }
    spec.insert("priority".into(), value.into());
    spec.entry("preemptionPolicy").or_insert_with(|| policy.into());
    Ok(())
}
