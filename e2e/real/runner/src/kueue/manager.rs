//! Kueue's own manager outside of a cluster, with what its chart installs around it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use control_plane::{ControlPlane, page};
use kube::Client;
use serde_json::{Value, json};

use super::{NAMESPACE, SERVICE};
use crate::cluster::{Applier, get, send, wait};
use crate::process::{Process, free_port};
use crate::service::{endpoints, own_address};

const SECRET: &str = "kueue-webhook-server-cert";
/// The kinds that it converts.
const CONVERTED: [&str; 5] = ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"];
/// Group, version and kind of what its webhooks look at, as far as the kinds are installed here.
const REVIEWED: [(&str, &str, &str); 8] = [
    ("batch", "v1", "job"),
    ("apps", "v1", "deployment"),
    ("apps", "v1", "statefulset"),
    ("", "v1", "pod"),
    ("kueue.x-k8s.io", "v1beta2", "clusterqueue"),
    ("kueue.x-k8s.io", "v1beta2", "cohort"),
    ("kueue.x-k8s.io", "v1beta2", "resourceflavor"),
    ("kueue.x-k8s.io", "v1beta2", "workload"),
];
/// Of those, the kinds that it only judges.
const JUDGED_ONLY: [&str; 1] = ["cohort"];
/// It waits for its certificate with pauses that double.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// The manager and where it runs.
pub(crate) struct Manager {
    binary: PathBuf,
    work: PathBuf,
    kubeconfig: PathBuf,
    client: Client,
    running: Option<Process>,
    prepared: bool,
}

impl Manager {
    /// It does not run yet.
    pub(super) fn new(binary: &Path, work: &Path, plane: &ControlPlane) -> Self {
        let (kubeconfig, client) = (plane.kubeconfig.clone(), plane.client.clone());
        Self {
            binary: binary.to_owned(),
            work: work.to_owned(),
            kubeconfig,
            client,
            running: None,
            prepared: false,
        }
    }

    /// Starts it and waits until its webhooks answer.
    pub(super) async fn start(&mut self) -> Result<()> {
        let (health, webhook) = (free_port()?, free_port()?);
        if !self.prepared {
            self.prepare().await?;
            self.prepared = true;
        }
        self.endpoints(webhook).await?;
        let config = self.work.join("kueue.yaml");
        std::fs::write(&config, self.configuration(health, webhook).to_string())?;
        let mut command = Command::new(&self.binary);
        command.arg("--config").arg(&config).arg("--zap-log-level=2");
        command.env("KUBECONFIG", &self.kubeconfig);
        let mut process = Process::start(&self.work, "kueue", &mut command)?;
        let ready = wait("Kueue to be ready", READY_WITHIN, async || {
            process.alive()?;
            self.mount().await?;
            Ok(page(health, "/readyz").await?.0 == 200)
        });
        ready.await.with_context(|| process.log_end(20))?;
        self.running = Some(process);
        Ok(())
    }

    /// As its Deployment is scaled to nothing.
    pub(super) async fn stop(&mut self) -> Result<()> {
        self.running.take().context("it runs")?.terminate().await
    }

    pub(super) fn log_end(&self) -> String {
        self.running.as_ref().map_or_else(String::new, |process| process.log_end(30))
    }

    fn certificates(&self) -> PathBuf {
        self.work.join("kueue-certificates")
    }

    fn configuration(&self, health: u16, webhook: u16) -> Value {
        json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")}, "metrics": {"bindAddress": "0"},
            "webhook": {"port": webhook, "certDir": self.certificates()},
            "leaderElection": {"leaderElect": true, "resourceNamespace": NAMESPACE},
            "integrations": {"frameworks": ["batch/job"]}, "featureGates": {"VisibilityOnDemand": false},
        })
    }

    /// What its chart installs beside the definitions: the Secret that it fills, the two webhook configurations, and its
    /// Service as the one that converts.
    async fn prepare(&self) -> Result<()> {
        let applier = Applier::new(self.client.clone()).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}});
        applier.must(&secret).await?;
        for (kind, does) in
            [("MutatingWebhookConfiguration", "mutate"), ("ValidatingWebhookConfiguration", "validate")]
        {
            let name = if does == "mutate" { "mutating" } else { "validating" };
            let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": format!("kueue-{name}-webhook-configuration")}, "webhooks": webhooks(does)});
            applier.must(&configuration).await?;
        }
        let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": SERVICE, "path": "/convert"}}}});
        for kind in CONVERTED {
            let path =
                format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.kueue.x-k8s.io");
            send(&self.client, "PATCH", &path, &json!({"spec": {"conversion": conversion}})).await?;
        }
        Ok(())
    }

    /// Its Service leads to this port of this machine.
    async fn endpoints(&self, port: u16) -> Result<()> {
        let applier = Applier::new(self.client.clone()).await?;
        for object in endpoints(NAMESPACE, SERVICE, "kueue", own_address()?, port) {
            applier.must(&object).await?;
        }
        Ok(())
    }

    /// Puts the Secret's files where it looks for them, as the kubelet does with a volume.
    async fn mount(&self) -> Result<()> {
        let secret = get(&self.client, &format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")).await?;
        let folder = self.certificates();
        std::fs::create_dir_all(&folder)?;
        for (name, text) in secret["data"].as_object().into_iter().flatten() {
            let bytes =
                base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap_or_default())?;
            let file = folder.join(name);
            if std::fs::read(&file).ok().as_ref() != Some(&bytes) {
                std::fs::write(&file, bytes)?;
            }
        }
        Ok(())
    }
}

/// The webhooks of one of its two configurations.
fn webhooks(does: &str) -> Vec<Value> {
    let mutates = does == "mutate";
    let reviewed = REVIEWED.iter().filter(|(_, _, kind)| !(mutates && JUDGED_ONLY.contains(kind)));
    let one = |(group, version, kind): &(&str, &str, &str)| {
        let operations = if mutates { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
        let mut resources = vec![format!("{kind}s")];
        if *kind == "workload" && !mutates {
            resources.push("workloads/status".to_owned());
        }
        let path = format!("/{does}-{}-{version}-{kind}", group.replace('.', "-"));
        json!({"name": format!("{}{kind}.kb.io", &does[..1]), "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": SERVICE, "path": path}},
            "rules": [{"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources}]})
    };
    reviewed.map(one).collect()
}
