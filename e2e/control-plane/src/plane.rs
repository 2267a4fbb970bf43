//! etcd, kube-apiserver and kube-controller-manager.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::pki::{self, Authority};
use crate::process::{Process, free_port};
use crate::tools::Tools;

const ADMIN_TOKEN: &str = "e2e-admin";
const KUBELET_TOKEN: &str = "e2e-kubelet";
/// Our programs have a name each, so that the audit log tells who wrote what.
pub const REPLICAS: [&str; 5] =
    ["admission-controller", "admission-controller-2", "gang-scheduler", "gang-scheduler-2", "node-agent"];
/// Writes of our programs, everything that the accounts of the charts ask for, and nothing else.
const AUDIT: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["trireme"], "verbs": ["create", "update", "patch", "delete"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:trireme-system"]}, {"level": "None"}]}"#;
/// Where pods find the API server: the first address of the service range.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";

/// A running control plane.
pub struct ControlPlane {
    /// An administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// A kubeconfig for the kubelet of node `e2e`.
    pub kubelet_kubeconfig: PathBuf,
    /// An administrator's client.
    pub client: Client,
    /// Signs whatever else serves TLS in this run.
    pub authority: Authority,
    /// What [`AUDIT`] asks for so far, one JSON object a line.
    audit: PathBuf,
    etcd: Process,
    apiserver: Process,
    _controllers: Option<Process>,
}

impl ControlPlane {
    /// Starts it and waits until it is ready.
    pub async fn start(work: &Path, tools: &Tools) -> Result<Self> {
        let folder = work.join("control-plane");
        std::fs::create_dir_all(&folder)?;
        let authority = Authority::new()?;
        let files = Files::write(&folder, &authority)?;

        let etcd_port = free_port()?;
        let etcd = start_etcd(work, tools, &folder, etcd_port)?;
        let port = free_port()?;
        let mut apiserver = start_apiserver(work, tools, &files, etcd_port, port)?;
        let kubeconfig = write_kubeconfig(&folder, "admin", &authority, port, ADMIN_TOKEN)?;
        let kubelet_kubeconfig = write_kubeconfig(&folder, "kubelet", &authority, port, KUBELET_TOKEN)?;
        let client = client(&kubeconfig).await?;
        wait_ready(&client, &mut apiserver).await?;
        for name in REPLICAS {
            write_kubeconfig(&folder, name, &authority, port, name)?;
        }
        let _controllers = match tools.get("kube-controller-manager") {
            Ok(binary) => Some(start_controllers(work, binary, &files, &kubeconfig)?),
            Err(_) => None,
        };
        let audit = files.audit;
        Ok(Self { kubeconfig, kubelet_kubeconfig, client, authority, audit, etcd, apiserver, _controllers })
    }

    /// The process ids of etcd and kube-apiserver.
    pub fn servers(&self) -> [u32; 2] {
        [self.etcd.id(), self.apiserver.id()]
    }

    /// Every request so far that [`AUDIT`] asks for, in the order in which they were answered.
    pub fn requests(&self) -> Result<Vec<Request>> {
        let text = std::fs::read_to_string(&self.audit)?;
        text.lines().map(|line| Ok(Request::read(&serde_json::from_str(line)?))).collect()
    }
}

/// The name in the certificate by which aggregated API servers know the API server.
const FRONT_PROXY: &str = "front-proxy-client";

/// A right: API group, resource with its subresource, verb.
pub type Right = (String, String, String);

/// A request of one of our programs, as the API server's audit log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The replica, or the service account's name.
    pub by: String,
    /// As Kubernetes names it: `create`, `patch`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// Plural, with the subresource.
    pub resource: String,
    /// Of the object.
    pub name: String,
    /// The HTTP status it got.
    pub code: u64,
}

impl Request {
    fn read(entry: &Value) -> Self {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &entry["objectRef"];
        let resource = word(&object["resource"]);
        // `trireme:gang-scheduler`, `system:serviceaccount:trireme-system:gang-scheduler`.
        let user = word(&entry["user"]["username"]);
        Self {
            by: user.rsplit(':').next().unwrap_or_default().to_owned(),
            verb: word(&entry["verb"]),
            group: word(&object["apiGroup"]),
            resource: match object["subresource"].as_str() {
                Some(part) => format!("{resource}/{part}"),
                None => resource,
            },
            name: word(&object["name"]),
            code: entry["responseStatus"]["code"].as_u64().unwrap_or_default(),
        }
    }

    /// What it needs.
    pub fn right(&self) -> Right {
        (self.group.clone(), self.resource.clone(), self.verb.clone())
    }
}

/// A client for a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // Tests want every answer as it was given.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    signing: PathBuf,
    verifying: PathBuf,
    tokens: PathBuf,
    certificates: PathBuf,
    audit_policy: PathBuf,
    audit: PathBuf,
    front_authority: PathBuf,
    front_certificate: PathBuf,
    front_key: PathBuf,
}

impl Files {
    fn write(folder: &Path, authority: &Authority) -> Result<Self> {
        let serving =
            authority.serving(&["localhost", "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"])?;
        let (signing, verifying) = pki::signing_key()?;
        let front_authority = Authority::new()?;
        let front = front_authority.client(FRONT_PROXY)?;
        let put = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let mut tokens = format!(
            "{ADMIN_TOKEN},admin,admin,system:masters\n{KUBELET_TOKEN},system:node:e2e,node,\"system:nodes,system:masters\"\n"
        );
        for name in REPLICAS {
            tokens.push_str(&format!("{name},trireme:{name},{name},\"trireme,system:masters\"\n"));
        }
        Ok(Self {
            ca: put("ca.crt", &authority.certificate)?,
            certificate: put("apiserver.crt", &serving.certificate)?,
            key: put("apiserver.key", &serving.key)?,
            signing: put("sa.key", &signing)?,
            verifying: put("sa.pub", &verifying)?,
            tokens: put("tokens.csv", &tokens)?,
            certificates: folder.join("generated"),
            audit_policy: put("audit-policy.json", AUDIT)?,
            audit: folder.join("audit.log"),
            front_authority: put("front-proxy-ca.crt", &front_authority.certificate)?,
            front_certificate: put("front-proxy.crt", &front.certificate)?,
            front_key: put("front-proxy.key", &front.key)?,
        })
    }
}

fn start_etcd(work: &Path, tools: &Tools, folder: &Path, port: u16) -> Result<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()?));
    let mut command = Command::new(tools.get("etcd")?);
    command
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .arg("--unsafe-no-fsync")
        .arg("--log-level=warn");
    Process::start(work, "etcd", &mut command)
}

fn start_apiserver(work: &Path, tools: &Tools, files: &Files, etcd: u16, port: u16) -> Result<Process> {
    let mut command = Command::new(tools.get("kube-apiserver")?);
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd}"))
        .arg(format!("--secure-port={port}"))
        .arg(format!("--tls-cert-file={}", files.certificate.display()))
        .arg(format!("--tls-private-key-file={}", files.key.display()))
        .arg(format!("--cert-dir={}", files.certificates.display()))
        .arg(format!("--token-auth-file={}", files.tokens.display()))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", files.verifying.display()))
        .arg(format!("--service-account-signing-key-file={}", files.signing.display()))
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
        .arg(format!("--audit-policy-file={}", files.audit_policy.display()))
        .arg(format!("--audit-log-path={}", files.audit.display()))
        // One file, however long: by default a new one begins after 100 MB, and what is counted would be the last of them.
        .arg("--audit-log-maxsize=100000")
        .arg("--authorization-mode=Node,RBAC")
        .arg("--allow-privileged=true")
        // Lets it call webhooks of in-cluster Services by their endpoints: there is no kube-proxy.
        .arg("--enable-aggregator-routing=true")
        // With these it passes requests on to aggregated API servers, as kubeadm sets it up.
        .arg(format!("--requestheader-client-ca-file={}", files.front_authority.display()))
        .arg(format!("--requestheader-allowed-names={FRONT_PROXY}"))
        .arg("--requestheader-username-headers=X-Remote-User")
        .arg("--requestheader-group-headers=X-Remote-Group")
        .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
        .arg(format!("--proxy-client-cert-file={}", files.front_certificate.display()))
        .arg(format!("--proxy-client-key-file={}", files.front_key.display()))
        .arg("--kubelet-preferred-address-types=InternalIP")
        // Pods are accepted without waiting for the default service account of a namespace made a moment ago.
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg("--max-requests-inflight=2000")
        .arg("--max-mutating-requests-inflight=1000");
    Process::start(work, "kube-apiserver", &mut command)
}

fn start_controllers(work: &Path, binary: &Path, files: &Files, kubeconfig: &Path) -> Result<Process> {
    let mut command = Command::new(binary);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--authentication-kubeconfig={}", kubeconfig.display()))
        .arg(format!("--authorization-kubeconfig={}", kubeconfig.display()))
        .arg(format!("--service-account-private-key-file={}", files.signing.display()))
        .arg(format!("--root-ca-file={}", files.ca.display()))
        .arg(format!("--cert-dir={}", files.certificates.display()))
        .arg(format!("--secure-port={}", free_port()?))
        .arg("--use-service-account-credentials=true")
        .arg("--leader-elect=false")
        .arg("--kube-api-qps=500")
        .arg("--kube-api-burst=1000");
    Process::start(work, "kube-controller-manager", &mut command)
}

fn write_kubeconfig(
    folder: &Path,
    user: &str,
    authority: &Authority,
    port: u16,
    token: &str,
) -> Result<PathBuf> {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(&authority.certificate);
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
        "clusters": [{"name": "e2e", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
    });
    let path = folder.join(format!("{user}.kubeconfig"));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

async fn wait_ready(client: &Client, apiserver: &mut Process) -> Result<()> {
    for _ in 0..300 {
        apiserver.alive()?;
        let request = http::Request::get("/readyz").body(Vec::new()).context("a request")?;
        if client.request_text(request).await.is_ok_and(|answer| answer == "ok") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("kube-apiserver was not ready after 60 s; the end of its log:\n{}", apiserver.log_end(15))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_somebody_s_and_needs_a_right() {
        let read = |user: &str, object: Value| {
            let entry = json!({"user": {"username": user}, "verb": "patch", "objectRef": object, "responseStatus": {"code": 200}});
            let request = Request::read(&entry);
            (request.by.clone(), request.right(), request.name, request.code)
        };
        let of = |group: &str, resource: &str| (group.to_owned(), resource.to_owned(), "patch".to_owned());
        let status =
            json!({"apiGroup": "trireme.dev", "resource": "gpunodes", "subresource": "status", "name": "a"});
        let wanted = ("node-agent".to_owned(), of("trireme.dev", "gpunodes/status"), "a".to_owned(), 200);
        assert_eq!(read("system:serviceaccount:trireme-system:node-agent", status), wanted);
        let wanted = ("gang-scheduler-2".to_owned(), of("", "pods"), "p".to_owned(), 200);
        assert_eq!(read("trireme:gang-scheduler-2", json!({"resource": "pods", "name": "p"})), wanted);
    }
}
