//! A real node: containerd and a kubelet as host processes, with everything they write in the folder of the run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::cluster::{condition, get, wait};
use crate::control_plane::ControlPlane;
use crate::process::{Process, free_port};
use crate::tools::Tools;

/// The name of the node.
pub(crate) const NAME: &str = "e2e";
/// The one image there is: the program of tools/workload.
pub(crate) const IMAGE: &str = "trireme.dev/e2e/workload:1";
/// The address of the node and the gateway of its pods.
pub(crate) const ADDRESS: &str = "10.244.0.1";
const BRIDGE: &str = "trireme-e2e";

/// A running node.
pub(crate) struct Node {
    /// The kubelet's folder: `device-plugins/kubelet.sock` and `pod-resources/kubelet.sock` are in it.
    pub(crate) kubelet_folder: PathBuf,
    kubelet_config: PathBuf,
    kubeconfig: PathBuf,
    work: PathBuf,
    binary: PathBuf,
    _containerd: Process,
    kubelet: Process,
}

/// Why this machine cannot run a node, if it cannot.
pub(crate) fn possible(tools: &Tools) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "containers need Linux");
    let id = Command::new("id").arg("-u").output()?;
    ensure!(id.stdout.starts_with(b"0\n"), "containers need root");
    for name in [
        "containerd",
        "ctr",
        "runc",
        "kubelet",
        "workload",
        "kube-controller-manager",
        "tar",
        "ip",
        "unshare",
    ] {
        tools.get(name)?;
    }
    cni_folder()?;
    Ok(())
}

/// Debian, and everybody else.
fn cni_folder() -> Result<&'static Path> {
    let places = ["/usr/lib/cni", "/opt/cni/bin"].map(Path::new);
    places
        .into_iter()
        .find(|place| place.join("bridge").exists())
        .context("no CNI plugins (containernetworking-plugins)")
}

impl Node {
    /// Starts it and waits until the API server sees it Ready.
    pub(crate) async fn start(work: &Path, tools: &Tools, plane: &ControlPlane) -> Result<Self> {
        let folder = work.join("node");
        std::fs::create_dir_all(folder.join("cni"))?;
        make_bridge()?;
        let socket = folder.join("containerd.sock");
        let mut _containerd = start_containerd(work, &folder, &socket, tools)?;
        let ctr = tools.get("ctr")?.to_owned();
        wait("containerd to answer", Duration::from_secs(30), async || {
            _containerd.alive()?;
            Ok(Command::new(&ctr).arg("--address").arg(&socket).arg("version").output()?.status.success())
        })
        .await?;
        import_image(&folder, tools, &socket)?;

        let kubelet_folder = folder.join("kubelet");
        let kubelet_config = folder.join("kubelet.json");
        std::fs::write(&kubelet_config, kubelet_settings(&socket)?.to_string())?;
        let binary = tools.get("kubelet")?.to_owned();
        let kubeconfig = plane.kubelet_kubeconfig.clone();
        let kubelet = start_kubelet(work, &binary, &kubelet_config, &kubeconfig, &kubelet_folder)?;
        let work = work.to_owned();
        let mut node =
            Self { kubelet_folder, kubelet_config, kubeconfig, work, binary, _containerd, kubelet };
        node.wait_ready(&plane.client).await?;
        Ok(node)
    }

    /// Waits until the API server sees the node Ready.
    pub(crate) async fn wait_ready(&mut self, client: &kube::Client) -> Result<()> {
        let path = format!("/api/v1/nodes/{NAME}");
        let kubelet = &mut self.kubelet;
        let ready = wait("the node to be Ready", Duration::from_secs(90), async || {
            kubelet.alive()?;
            let node = get(client, &path).await?;
            Ok(condition(&node, "Ready").is_some_and(|ready| ready["status"] == "True"))
        });
        ready.await.with_context(|| format!("the end of the kubelet's log:\n{}", self.kubelet.log_end(20)))
    }

    /// Kills the kubelet and starts it again, as an upgrade does.
    pub(crate) async fn restart_kubelet(&mut self, client: &kube::Client) -> Result<()> {
        self.kubelet.kill();
        self.kubelet = start_kubelet(
            &self.work,
            &self.binary,
            &self.kubelet_config,
            &self.kubeconfig,
            &self.kubelet_folder,
        )?;
        self.wait_ready(client).await
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {} {text}", output.status);
    Ok(())
}

/// The bridge is made before the kubelet starts, which wants its address on an interface.
pub(crate) fn make_bridge() -> Result<()> {
    if !Path::new("/sys/class/net").join(BRIDGE).exists() {
        run(Command::new("ip").args(["link", "add", BRIDGE, "type", "bridge"]))?;
        run(Command::new("ip").args(["addr", "add", &format!("{ADDRESS}/24"), "dev", BRIDGE]))?;
    }
    run(Command::new("ip").args(["link", "set", BRIDGE, "up"]))
}

fn start_containerd(work: &Path, folder: &Path, socket: &Path, tools: &Tools) -> Result<Process> {
    let binary = tools.get("containerd")?;
    let output = Command::new(binary).args(["config", "default"]).output()?;
    let defaults = String::from_utf8(output.stdout)?;
    let cni = folder.join("cni");
    let network = json!({"cniVersion": "0.4.0", "name": "e2e", "plugins": [{
        "type": "bridge", "bridge": BRIDGE, "isGateway": true, "ipMasq": false, "hairpinMode": true,
        "ipam": {"type": "host-local", "dataDir": folder.join("addresses"), "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]});
    std::fs::write(cni.join("10-e2e.conflist"), network.to_string())?;
    let overlay = std::fs::read_to_string("/proc/filesystems")?.contains("\toverlay\n");
    let settings = [
        ("root = \"/var/lib/containerd\"", format!("root = \"{}\"", folder.join("containerd").display())),
        ("state = \"/run/containerd\"", format!("state = \"{}\"", folder.join("state").display())),
        ("address = \"/run/containerd/containerd.sock\"", format!("address = \"{}\"", socket.display())),
        ("bin_dir = \"/opt/cni/bin\"", format!("bin_dir = \"{}\"", cni_folder()?.display())),
        ("conf_dir = \"/etc/cni/net.d\"", format!("conf_dir = \"{}\"", cni.display())),
        // Without it runc cannot lower the score in a container and fails with "can't get final child's PID from pipe: EOF".
        ("restrict_oom_score_adj = false", "restrict_oom_score_adj = true".to_owned()),
        (
            "snapshotter = \"overlayfs\"",
            format!("snapshotter = \"{}\"", if overlay { "overlayfs" } else { "native" }),
        ),
    ];
    let mut config = String::new();
    for line in defaults.lines() {
        let found = settings.iter().find(|(default, _)| line.trim() == *default);
        let line = found.map_or(line.to_owned(), |(_, ours)| ours.clone());
        let image = line.trim_start().starts_with("sandbox_image");
        config.push_str(&if image { format!("sandbox_image = \"{IMAGE}\"") } else { line });
        config.push('\n');
    }
    let file = folder.join("containerd.toml");
    std::fs::write(&file, config)?;
    Process::start(work, "containerd", Command::new(binary).arg("--config").arg(&file))
}

/// A docker-style archive: a manifest, a configuration with platform and layer digest, one layer.
fn import_image(folder: &Path, tools: &Tools, socket: &Path) -> Result<()> {
    let image = folder.join("image");
    let root = image.join("root");
    std::fs::create_dir_all(&root)?;
    std::fs::copy(tools.get("workload")?, root.join("workload"))?;
    let tar = tools.get("tar")?;
    run(Command::new(tar).arg("-C").arg(&root).arg("-cf").arg(image.join("layer.tar")).arg("workload"))?;
    let digest = Command::new("sha256sum").arg(image.join("layer.tar")).output()?;
    let digest = String::from_utf8(digest.stdout)?;
    let digest = digest.split_whitespace().next().context("sha256sum said nothing")?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Entrypoint": ["/workload"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}});
    std::fs::write(image.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    std::fs::write(image.join("manifest.json"), manifest.to_string())?;
    let archive = folder.join("image.tar");
    run(Command::new(tar).arg("-C").arg(&image).arg("-cf").arg(&archive).args([
        "manifest.json",
        "config.json",
        "layer.tar",
    ]))?;
    run(Command::new(tools.get("ctr")?)
        .arg("--address")
        .arg(socket)
        .args(["-n", "k8s.io", "images", "import"])
        .arg(&archive))
}

fn kubelet_settings(socket: &Path) -> Result<serde_json::Value> {
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "address": ADDRESS,
        "port": free_port()?,
        "healthzPort": free_port()?,
        "readOnlyPort": 0,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "10Mi", "imagefs.available": "10Mi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
    }))
}

/// Where every kubelet has its device manager's socket, whatever its root folder is.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// In a mount namespace of its own, where [`DEVICE_PLUGINS`] is a folder of this run.
fn start_kubelet(
    work: &Path,
    binary: &Path,
    config: &Path,
    kubeconfig: &Path,
    folder: &Path,
) -> Result<Process> {
    let plugins = folder.join("device-plugins");
    std::fs::create_dir_all(&plugins)?;
    std::fs::create_dir_all(DEVICE_PLUGINS)?;
    let script = format!("mount --bind '{}' {DEVICE_PLUGINS} && exec \"$@\"", plugins.display());
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "slave", "sh", "-c", &script, "sh"])
        .arg(binary)
        .arg(format!("--config={}", config.display()))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--root-dir={}", folder.display()))
        .arg(format!("--cert-dir={}", folder.join("pki").display()))
        .arg(format!("--hostname-override={NAME}"))
        .arg(format!("--node-ip={ADDRESS}"));
    Process::start(work, "kubelet", &mut command)
}
