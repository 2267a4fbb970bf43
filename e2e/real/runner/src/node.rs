//! A real node: containerd and a kubelet as host processes, with everything they write in the folder of the run.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cluster::{condition, get, wait};
use crate::process::{Process, free_port};
use crate::tools::Tools;
use control_plane::ControlPlane;

/// The name of the node.
pub(crate) const NAME: &str = "e2e";
/// The one image there is: the program of tools/workload.
pub(crate) const IMAGE: &str = "trireme.dev/e2e/workload:1";
/// Folders of the machine that containerd, the CNI plugins and the kubelet write into whatever their settings are. The node's
/// own mount namespace has folders of the run in their place.
const COVERED: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// The bridge of a run's pods, with a name and addresses that no other run on this machine has.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    bridge: String,
    address: Ipv4Addr,
    note: PathBuf,
}

impl Network {
    /// Named after the folder of the run, in the first of the networks 10.244.x.0/24 that is free, counted from one that the
    /// name chooses.
    pub(crate) fn of(work: &Path) -> Result<Self> {
        let folder = work.file_name().context("a folder with a name")?.to_string_lossy().into_owned();
        let own: String = folder.chars().rev().take_while(char::is_ascii_alphanumeric).take(10).collect();
        let first = own.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        // Without ip there is no node, and any network does.
        let used = Command::new("ip").args(["-4", "-o", "address"]).output();
        let used =
            used.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let address = (0..=u8::MAX)
            .map(|step| Ipv4Addr::new(10, 244, first.wrapping_add(step), 1))
            .find(|address| !used.contains(&format!(" {address}/")))
            .context("no network 10.244.x.0/24 is free")?;
        Ok(Self { bridge: format!("tri-{own}"), address, note: work.join("bridge") })
    }

    /// The address of the node and the gateway of its pods.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// The bridge is made before the kubelet starts, which wants its address on an interface.
    pub(crate) fn make_bridge(&self) -> Result<()> {
        if !Path::new("/sys/class/net").join(&self.bridge).exists() {
            // e2e/real/run deletes it.
            std::fs::write(&self.note, &self.bridge)?;
            run(Command::new("ip").args(["link", "add", &self.bridge, "type", "bridge"]))?;
            run(Command::new("ip").args([
                "addr",
                "add",
                &format!("{}/24", self.address),
                "dev",
                &self.bridge,
            ]))?;
        }
        run(Command::new("ip").args(["link", "set", &self.bridge, "up"]))
    }

    /// For the CNI plugins.
    fn settings(&self, addresses: &Path) -> Value {
        let [a, b, c, _] = self.address.octets();
        json!({"cniVersion": "0.4.0", "name": "e2e", "plugins": [{
            "type": "bridge", "bridge": self.bridge, "isGateway": true, "ipMasq": false, "hairpinMode": true,
            "ipam": {"type": "host-local", "dataDir": addresses, "ranges": [[{"subnet": format!("{a}.{b}.{c}.0/24")}]]}}]})
    }
}

/// A running node.
pub(crate) struct Node {
    /// The kubelet's folder: `device-plugins/kubelet.sock` and `pod-resources/kubelet.sock` are in it.
    pub(crate) kubelet_folder: PathBuf,
    start: KubeletStart,
    _containerd: Process,
    kubelet: Process,
}

/// Why this machine cannot run a node, if it cannot.
pub(crate) fn possible(tools: &Tools, work: &Path) -> Result<()> {
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
        "nsenter",
    ] {
        let path = tools.get(name)?;
        let place = COVERED.into_iter().find(|place| path.starts_with(place) || work.starts_with(place));
        if let Some(place) = place {
            bail!("the node covers {place}: {} and {} must lie elsewhere", path.display(), work.display());
        }
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
    pub(crate) async fn start(
        work: &Path,
        tools: &Tools,
        network: &Network,
        plane: &ControlPlane,
    ) -> Result<Self> {
        let folder = work.join("node");
        std::fs::create_dir_all(folder.join("cni"))?;
        network.make_bridge()?;
        note_control_groups(work)?;
        let socket = folder.join("containerd.sock");
        let cni = network.settings(&folder.join("addresses"));
        std::fs::write(folder.join("cni/10-e2e.conflist"), cni.to_string())?;
        let mut _containerd = start_containerd(work, &folder, &socket, tools)?;
        let ctr = tools.get("ctr")?.to_owned();
        wait("containerd to answer", Duration::from_secs(30), async || {
            _containerd.alive()?;
            Ok(Command::new(&ctr).arg("--address").arg(&socket).arg("version").output()?.status.success())
        })
        .await?;
        import_image(&folder, tools, &socket)?;

        let start = KubeletStart {
            work: work.to_owned(),
            binary: tools.get("kubelet")?.to_owned(),
            config: folder.join("kubelet.json"),
            kubeconfig: plane.kubelet_kubeconfig.clone(),
            address: network.address(),
            beside: _containerd.id(),
        };
        std::fs::write(&start.config, kubelet_settings(&socket, start.address)?.to_string())?;
        let kubelet = start.run()?;
        let kubelet_folder = covered(&folder, "/var/lib").join("kubelet");
        let mut node = Self { kubelet_folder, start, _containerd, kubelet };
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
        let before = told(client).await?;
        self.kubelet.kill();
        self.kubelet = self.start.run()?;
        // What it had said stands for a while.
        wait("the kubelet to tell of the node again", Duration::from_secs(90), async || {
            Ok(told(client).await? != before)
        })
        .await?;
        self.wait_ready(client).await
    }
}

/// What the kubelet last said of the node's readiness, with the time.
async fn told(client: &kube::Client) -> Result<Option<Value>> {
    let node = get(client, &format!("/api/v1/nodes/{NAME}")).await?;
    Ok(condition(&node, "Ready").cloned())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {} {text}", output.status);
    Ok(())
}

/// Tells e2e/real/run to remove the kubelet's control groups, unless another kubelet has made them.
fn note_control_groups(work: &Path) -> Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    let mut places = vec![root.to_owned()];
    for entry in std::fs::read_dir(root)? {
        places.push(entry?.path());
    }
    if !places.iter().any(|place| place.join("kubepods").exists()) {
        std::fs::write(work.join("control-groups"), "kubepods")?;
    }
    Ok(())
}

/// The folder of the run that the node has in the place of one of [`COVERED`].
fn covered(folder: &Path, place: &str) -> PathBuf {
    folder.join("host").join(place.trim_start_matches('/'))
}

/// In a mount namespace of its own, which the kubelet joins. What is mounted there, roots of containers and network
/// namespaces of pods among it, ends with the last process in it.
fn start_containerd(work: &Path, folder: &Path, socket: &Path, tools: &Tools) -> Result<Process> {
    let binary = tools.get("containerd")?;
    let output = Command::new(binary).args(["config", "default"]).output()?;
    let defaults = String::from_utf8(output.stdout)?;
    let cni = folder.join("cni");
    let overlay = std::fs::read_to_string("/proc/filesystems")?.contains("\toverlay\n");
    let settings = [
        ("root = \"/var/lib/containerd\"", format!("root = \"{}\"", folder.join("containerd").display())),
        ("state = \"/run/containerd\"", format!("state = \"{}\"", folder.join("state").display())),
        ("address = \"/run/containerd/containerd.sock\"", format!("address = \"{}\"", socket.display())),
        ("bin_dir = \"/opt/cni/bin\"", format!("bin_dir = \"{}\"", cni_folder()?.display())),
        ("conf_dir = \"/etc/cni/net.d\"", format!("conf_dir = \"{}\"", cni.display())),
        ("path = \"/opt/containerd\"", format!("path = \"{}\"", folder.join("opt").display())),
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
    let mut script = String::new();
    for place in COVERED {
        let ours = covered(folder, place);
        std::fs::create_dir_all(&ours)?;
        script.push_str(&format!("mount --bind '{}' {place} && ", ours.display()));
    }
    script.push_str("exec \"$@\"");
    let mut command = Command::new(tools.get("unshare")?);
    command.args(["--mount", "--propagation", "slave", "sh", "-c", &script, "sh"]);
    Process::start(work, "containerd", command.arg(binary).arg("--config").arg(&file))
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

fn kubelet_settings(socket: &Path, address: IpAddr) -> Result<Value> {
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "address": address,
        // Names are resolved nowhere in these tests, and the machine's file may lie below /run.
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "port": free_port()?,
        "healthzPort": free_port()?,
        "readOnlyPort": 0,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "10Mi", "imagefs.available": "10Mi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
    }))
}

/// How the kubelet is started, and started again.
#[derive(Debug)]
struct KubeletStart {
    work: PathBuf,
    binary: PathBuf,
    config: PathBuf,
    kubeconfig: PathBuf,
    address: IpAddr,
    /// The process whose mount namespace it joins.
    beside: u32,
}

impl KubeletStart {
    fn run(&self) -> Result<Process> {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.beside))
            .arg(&self.binary)
            .arg(format!("--config={}", self.config.display()))
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--hostname-override={NAME}"))
            .arg(format!("--node-ip={}", self.address));
        Process::start(&self.work, "kubelet", &mut command)
    }
}
