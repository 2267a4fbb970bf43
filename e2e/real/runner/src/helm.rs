//! The charts on an API server of their own: Helm, and the programs started the way the charts start them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cluster::{Applier, get, objects, wait};
use crate::process::{Process, free_port};
use crate::registry::output;
use crate::service::{self, own_address};
use crate::tools::Tools;
use crate::world::World;
use control_plane::{ControlPlane, Right, page};

/// The namespace of the release.
pub(crate) const SYSTEM: &str = "trireme-system";
/// The node that the node-agent believes to be on.
pub(crate) const NODE: &str = "gpu-0";
/// The programs, each with the kind of object that runs it.
pub(crate) const PROGRAMS: [(&str, &str); 3] = [
    ("admission-controller", "deployments"),
    ("gang-scheduler", "deployments"),
    ("node-agent", "daemonsets"),
];

/// Helm, with folders of its own.
#[derive(Clone)]
pub(crate) struct Helm {
    binary: PathBuf,
    folder: PathBuf,
    charts: PathBuf,
}

impl Helm {
    /// Fails when there is no Helm.
    pub(crate) fn new(world: &World) -> Result<Self> {
        let folder = world.work.join("helm");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            binary: world.tools.get("helm")?.to_owned(),
            folder,
            charts: world.repository.join("charts"),
        })
    }

    /// Runs it in the folder of the charts and returns what it printed.
    pub(crate) async fn run(&self, kubeconfig: Option<&Path>, arguments: &[&str]) -> Result<String> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(arguments).current_dir(&self.charts);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, &self.folder);
        }
        command.env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/dev/null")));
        output(&mut command).await
    }

    /// What `helm template` makes of a chart, as objects.
    pub(crate) async fn template(&self, chart: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        let all = [&["template", "trireme", chart, "--namespace", SYSTEM], arguments].concat();
        let text = self.run(None, &all).await?;
        objects(&text)
    }
}

/// An API server that nothing but the charts has touched, and the programs on it.
pub(crate) struct Site {
    /// The control plane.
    pub(crate) plane: ControlPlane,
    /// Helm.
    pub(crate) helm: Helm,
    work: PathBuf,
    tools: Tools,
    port: u16,
    running: BTreeMap<&'static str, Running>,
    /// Why the programs did not come up, so that every test says it at once.
    broken: Option<String>,
}

struct Running {
    process: Process,
    admin: u16,
    log: PathBuf,
}

impl Site {
    /// Starts a control plane.
    pub(crate) async fn start(world: &World) -> Result<Self> {
        let work = world.work.join("charts");
        std::fs::create_dir_all(&work)?;
        // One folder of process ids, whoever ends the run.
        std::os::unix::fs::symlink(world.work.join("pids"), work.join("pids"))?;
        let plane = ControlPlane::start(&work, &world.tools).await?;
        let (helm, tools, port) = (Helm::new(world)?, world.tools.clone(), free_port()?);
        Ok(Self { plane, helm, work, tools, port, running: BTreeMap::new(), broken: None })
    }

    /// Runs Helm against this server.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.helm.run(Some(&self.plane.kubeconfig), arguments).await
    }

    /// GET as JSON.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        get(&self.plane.client, path).await
    }

    /// Applies with the kinds that are there now.
    pub(crate) async fn applier(&self) -> Result<Applier> {
        Applier::new(self.plane.client.clone()).await
    }

    /// Merge patch of an object.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(body.to_string().into_bytes())?;
        Ok(self.plane.client.request(request).await?)
    }

    /// Installs or upgrades the definitions.
    pub(crate) async fn definitions(&self) -> Result<String> {
        self.helm(&["upgrade", "--install", "trireme-crds", "trireme-crds"]).await
    }

    /// Installs or upgrades the programs, with nothing that would need an image: they run as processes here.
    pub(crate) async fn release(&self, more: &[&str]) -> Result<String> {
        let values = json!({
            "admissionController": {"replicas": 0, "logFilter": "info,kit=debug", "config": {"webhook": {"port": self.port}}},
            "gangScheduler": {"replicas": 0, "logFilter": "info,kit=debug"},
            "nodeAgent": {"driver": "fake:8xA100", "logFilter": "info,kit=debug", "nodeSelector": {"e2e": "nowhere"}},
        });
        let file = self.work.join("values.json");
        std::fs::write(&file, values.to_string())?;
        let file = file.display().to_string();
        let arguments =
            ["upgrade", "--install", "trireme", "trireme", "-n", SYSTEM, "--create-namespace", "-f", &file];
        self.helm(&[&arguments, more].concat()).await
    }

    /// Both charts, a node, and the three programs: as the charts' pods would run them, by the arguments, environment and
    /// configuration files in the cluster, each with a token of its own service account.
    pub(crate) async fn programs(&mut self) -> Result<()> {
        if let Some(why) = &self.broken {
            bail!("the programs did not come up: {why}");
        }
        let outcome = self.bring_up().await;
        self.broken = outcome.as_ref().err().map(|error| format!("{error:#}"));
        outcome
    }

    async fn bring_up(&mut self) -> Result<()> {
        if self.running.is_empty() {
            self.definitions().await?;
            self.release(&[]).await?;
            self.endpoints().await?;
        }
        self.node().await?;
        for (program, kind) in PROGRAMS {
            if !self.running.contains_key(program) {
                let started =
                    self.launch(program, kind).await.with_context(|| format!("starting {program}"))?;
                self.running.insert(program, started);
            }
        }
        for (program, running) in &mut self.running {
            wait(&format!("{program} to be ready"), Duration::from_secs(30), async || {
                running.process.alive()?;
                let (status, text) = page(running.admin, "/readyz").await?;
                // There is no kubelet here; the agent is to miss nothing else.
                let only_the_kubelet = status == 503
                    && text.starts_with("kubelet:")
                    && text.lines().all(|line| line.starts_with("kubelet:"));
                ensure!(status == 200 || (*program == "node-agent" && only_the_kubelet), "{status} {text}");
                Ok(true)
            })
            .await?;
        }
        self.trusted().await
    }

    /// Every right that the charts give a program's account.
    pub(crate) async fn rights(&self, program: &str) -> Result<BTreeSet<Right>> {
        let base = "/apis/rbac.authorization.k8s.io/v1";
        let mut roles = vec![self.get(&format!("{base}/clusterroles/trireme-{program}")).await?];
        let own = format!("{base}/namespaces/{SYSTEM}/roles?fieldSelector=metadata.name={program}");
        roles.extend(self.get(&own).await?["items"].as_array().cloned().unwrap_or_default());
        let words = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut rights = BTreeSet::new();
        for rule in roles.iter().filter_map(|role| role["rules"].as_array()).flatten() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    let of = words(&rule["verbs"]).into_iter();
                    rights.extend(of.map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
        Ok(rights)
    }

    /// Whether a program's account may do this: a verb on a resource of a group, in a namespace.
    pub(crate) async fn may(
        &self,
        program: &str,
        verb: &str,
        kind: (&str, &str),
        namespace: &str,
    ) -> Result<bool> {
        self.user_may(&format!("system:serviceaccount:{SYSTEM}:{program}"), verb, kind, namespace).await
    }

    /// As [`Self::may`], of anybody.
    pub(crate) async fn user_may(
        &self,
        user: &str,
        verb: &str,
        (group, resource): (&str, &str),
        namespace: &str,
    ) -> Result<bool> {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({"group": group, "resource": resource, "subresource": part, "verb": verb, "namespace": namespace});
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes}});
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
        Ok(self.plane.client.request::<Value>(request).await?["status"]["allowed"] == true)
    }

    /// What the programs have logged.
    pub(crate) fn logs(&self) -> Result<Vec<(&'static str, String)>> {
        let read =
            |(name, running): (&&'static str, &Running)| Ok((*name, std::fs::read_to_string(&running.log)?));
        self.running.iter().map(read).collect()
    }

    /// Ends the programs.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for (_, mut running) in std::mem::take(&mut self.running) {
            running.process.stop().await?;
        }
        Ok(())
    }

    async fn launch(&self, program: &'static str, kind: &str) -> Result<Running> {
        let workload = self.get(&format!("/apis/apps/v1/namespaces/{SYSTEM}/{kind}/{program}")).await?;
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        let config = self.get(&format!("/api/v1/namespaces/{SYSTEM}/configmaps/{program}")).await?;
        let file = self.work.join(format!("{program}.yaml"));
        std::fs::write(&file, config["data"]["config.yaml"].as_str().context("a configuration")?)?;
        let admin = free_port()?;
        let name = format!("{program}-chart");
        let mut command = Command::new(self.tools.get(program)?);
        for argument in container["args"].as_array().context("arguments")? {
            let argument = argument.as_str().context("a string")?;
            let here = argument.replace("/etc/trireme/config.yaml", &file.display().to_string());
            command.arg(here.replace("[::]:8080", &format!("127.0.0.1:{admin}")));
        }
        for variable in container["env"].as_array().context("an environment")? {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("spec.nodeName") => NODE,
                Some("metadata.name") => name.as_str(),
                Some(other) => bail!("{program}: the runner does not know {other}"),
                None => variable["value"].as_str().context("a value")?,
            };
            command.env(variable["name"].as_str().context("a name")?, value);
        }
        // No kubelet is here: the agent does everything else meanwhile.
        command.env("KUBELET_SOCKET", self.work.join("kubelet.sock"));
        command.env("KUBECONFIG", self.account(program).await?);
        let process = Process::start(&self.work, &name, &mut command)?;
        Ok(Running { process, admin, log: self.work.join("log").join(format!("{name}.log")) })
    }

    /// A kubeconfig with a token of this service account.
    async fn account(&self, name: &str) -> Result<PathBuf> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let request =
            http::Request::post(format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{name}/token"))
                .header("content-type", "application/json")
                .body(body.to_string().into_bytes())?;
        let answer: Value = self.plane.client.request(request).await?;
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&self.plane.kubeconfig)?)?;
        config["users"][0]["user"] = json!({"token": answer["status"]["token"].as_str().context("a token")?});
        let path = self.work.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Lets the API server find the webhooks behind the chart's Service.
    async fn endpoints(&self) -> Result<()> {
        let applier = self.applier().await?;
        for object in service::endpoints(SYSTEM, "admission-controller", "e2e", own_address()?, self.port) {
            applier.must(&object).await?;
        }
        Ok(())
    }

    /// Asks admission-controller itself, as anybody in the cluster could who makes up a user's name.
    pub(crate) async fn without_the_api_server(&self, path: &str) -> Result<(u16, String)> {
        let mut config = kube::Config::new(format!("https://{}:{}", own_address()?, self.port).parse()?);
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config)?;
        let request = http::Request::get(path)
            .header("x-remote-user", "admin")
            .header("x-remote-group", "system:masters")
            .body(kube::client::Body::empty())?;
        let response = client.send(request).await?;
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// A node with eight GPUs, Ready; there is no kubelet that would say so.
    pub(crate) async fn node(&self) -> Result<()> {
        self.applier()
            .await?
            .must(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))
            .await?;
        let now = kit::Clock::System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"});
        let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True",
            "reason": "E2E", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
        let path = format!("/api/v1/nodes/{NODE}");
        self.patch(&format!("{path}/status"), &status).await?;
        wait("the node to be without taints", Duration::from_secs(30), async || {
            Ok(self.get(&path).await?["spec"]["taints"].is_null())
        })
        .await
    }

    /// Waits until the leader has told the API server whom to trust.
    async fn trusted(&self) -> Result<()> {
        wait("the certificate authority in webhooks and definitions", Duration::from_secs(30), async || {
            Ok(self.bundles().await?.values().all(Option::is_some))
        })
        .await
    }

    /// The certificate authority in each webhook and in each definition with a conversion, by name.
    pub(crate) async fn bundles(&self) -> Result<BTreeMap<String, Option<String>>> {
        let mut all = BTreeMap::new();
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/trireme-admission-controller");
            for webhook in self.get(&path).await?["webhooks"].as_array().context("webhooks")? {
                let bundle = webhook["clientConfig"]["caBundle"].as_str().map(str::to_owned);
                all.insert(webhook["name"].as_str().unwrap_or_default().to_owned(), bundle);
            }
        }
        let definitions = self.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?;
        for definition in definitions["items"].as_array().context("definitions")? {
            let conversion = &definition["spec"]["conversion"];
            if conversion["strategy"] == "Webhook" {
                let bundle = conversion["webhook"]["clientConfig"]["caBundle"].as_str().map(str::to_owned);
                all.insert(definition["metadata"]["name"].as_str().unwrap_or_default().to_owned(), bundle);
            }
        }
        for service in
            admission_controller::visibility::VERSIONS.map(admission_controller::visibility::api_service_name)
        {
            let object = self.get(&format!("/apis/apiregistration.k8s.io/v1/apiservices/{service}")).await?;
            all.insert(service, object["spec"]["caBundle"].as_str().map(str::to_owned));
        }
        let (mutating, validating) = admission_controller::webhook_configurations(None);
        let webhooks =
            mutating.webhooks.map_or(0, |all| all.len()) + validating.webhooks.map_or(0, |all| all.len());
        ensure!(
            all.len() == webhooks + 5 + 2,
            "{webhooks} webhooks, five converted kinds and two APIServices, not {:?}",
            all.keys()
        );
        Ok(all)
    }
}
