//! Kubeflow's training-operator outside of a cluster.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use serde_json::json;

use crate::cluster::{Applier, get, wait};
use crate::node::IMAGE;
use crate::process::{Process, free_port};
use crate::tools::Tools;

const NAMESPACE: &str = "kubeflow";
const SECRET: &str = "training-operator-webhook-cert";

/// Starts it. Its certificate rotator holds the controllers back until its Secret, a webhook configuration and the Secret's
/// files are there: the first start makes the certificates, the second finds them.
pub(crate) async fn start(
    work: &Path,
    tools: &Tools,
    kubeconfig: &Path,
    applier: &Applier,
    client: &kube::Client,
) -> Result<Process> {
    let temporary = work.join("kubeflow");
    let certificates = temporary.join("k8s-webhook-server/serving-certs");
    std::fs::create_dir_all(&certificates)?;
    // A folder below /tmp is written into the program. In a mount namespace of its own /tmp is a folder of this run, with
    // the files that it reads; its binary is opened before, wherever that lies.
    let script = format!(
        "exec 3<\"$1\" && shift && mount --bind '{}' /tmp && exec /proc/self/fd/3 \"$@\"",
        temporary.display()
    );
    std::fs::copy(kubeconfig, temporary.join("kubeconfig"))?;
    applier.must(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}})).await?;
    applier
        .must(
            &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": []}),
        )
        .await?;
    let container =
        json!([{"name": "init-pytorch", "image": IMAGE, "imagePullPolicy": "Never", "args": ["succeed"]}]);
    std::fs::write(temporary.join("init.yaml"), container.to_string())?;
    let run = || -> Result<Process> {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "slave", "sh", "-c", &script, "sh"])
            .arg(tools.get("training-operator")?)
            .env("KUBECONFIG", "/tmp/kubeconfig")
            .args(
                ["pytorchjob", "tfjob", "xgboostjob", "paddlejob"]
                    .map(|kind| format!("--enable-scheme={kind}")),
            )
            .arg("--pytorch-init-container-template-file=/tmp/init.yaml")
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", free_port()?))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", free_port()?))
            .arg(format!("--webhook-server-port={}", free_port()?));
        Process::start(work, "training-operator", &mut command)
    };
    let mut first = run()?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
    wait("training-operator's certificates", Duration::from_secs(30), async || {
        first.alive()?;
        Ok(get(client, &path).await?["data"]["tls.crt"].is_string())
    })
    .await?;
    first.kill();
    let secret = get(client, &path).await?;
    for (name, text) in secret["data"].as_object().context("a secret with data")? {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap_or_default())?;
        std::fs::write(certificates.join(name), bytes)?;
    }
    run()
}
