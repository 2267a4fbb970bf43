//! Namespaces and what ends with them.

use anyhow::Result;
use serde_json::json;

use super::shapes::{CONFIGMAPS, at, configmap};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["namespaces", OnlyTheApi:
    a_namespace_is_active_and_labelled_with_its_name,
    a_namespace_holds_the_kubernetes_finalizer_in_its_spec,
    a_namespace_name_must_be_a_dns_label,
    the_four_namespaces_of_a_cluster_exist,
    cluster_scoped_kinds_refuse_a_namespaced_path,
    lists_across_namespaces_tell_the_namespaces,
];

pub(super) const LIFECYCLE: &[Case] = topic!["namespaces", Controllers:
    deleting_a_namespace_deletes_what_is_in_it,
    nothing_is_created_in_a_terminating_namespace,
];

async fn a_namespace_is_active_and_labelled_with_its_name(api: Harness) -> Result<()> {
    let found = api.get("/api/v1/namespaces/{ns}").await?.is(200)?.has("/status/phase", "Active")?;
    found.has("/metadata/labels/kubernetes.io~1metadata.name", api.namespace())?;
    Ok(())
}

async fn a_namespace_holds_the_kubernetes_finalizer_in_its_spec(api: Harness) -> Result<()> {
    api.get("/api/v1/namespaces/{ns}").await?.is(200)?.has("/spec/finalizers", json!(["kubernetes"]))?;
    Ok(())
}

async fn a_namespace_name_must_be_a_dns_label(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "with.dot"}});
    let refused = api.post("/api/v1/namespaces", body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.name")?;
    Ok(())
}

async fn the_four_namespaces_of_a_cluster_exist(api: Harness) -> Result<()> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        api.get(&at("/api/v1/namespaces", name)).await?.is(200)?;
    }
    Ok(())
}

async fn cluster_scoped_kinds_refuse_a_namespaced_path(api: Harness) -> Result<()> {
    api.get("/api/v1/namespaces/{ns}/nodes").await?.is(404)?;
    Ok(())
}

async fn lists_across_namespaces_tell_the_namespaces(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("everywhere-{u}")).await?.is(201)?;
    let path = "/api/v1/configmaps?fieldSelector=metadata.name%3Deverywhere-{u}";
    let list = api.get(path).await?.is(200)?;
    list.has("/items/0/metadata/namespace", api.namespace())?;
    api.post("/api/v1/configmaps", configmap("x")).await?.is(405)?;
    Ok(())
}

async fn deleting_a_namespace_deletes_what_is_in_it(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let marked = api.delete("/api/v1/namespaces/{ns}").await?.is(200)?;
    marked.has("/kind", "Namespace")?.has("/status/phase", "Terminating")?;
    api.until("/api/v1/namespaces/{ns}", |answer| answer.status == 404).await?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

async fn nothing_is_created_in_a_terminating_namespace(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    api.delete("/api/v1/namespaces/{ns}").await?.is(200)?;
    let refused = api.post(CONFIGMAPS, configmap("b")).await?.refused(403, "Forbidden")?;
    refused.cause("NamespaceTerminating", "metadata.namespace")?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"finalizers": null}})).await?.ok()?;
    api.until("/api/v1/namespaces/{ns}", |answer| answer.status == 404).await?;
    Ok(())
}
