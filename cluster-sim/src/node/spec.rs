use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::deviceplugin;
use proto::sockets::Sockets;

/// What a node is made from.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its labels, beside `kubernetes.io/hostname`, `kubernetes.io/os` and `kubernetes.io/arch`.
    pub labels: BTreeMap<String, String>,
    /// Thousandths of a core that pods may have.
    pub cpu_millis: i64,
    /// Bytes of memory that pods may have.
    pub memory_bytes: i64,
    /// How many pods it takes.
    pub pods: i64,
    /// Where its sockets are.
    pub sockets: Sockets,
    /// The kubelet's folder: `/var/lib/kubelet` on a real node.
    pub root: PathBuf,
    /// Its address; pods get theirs from it.
    pub address: [u8; 4],
    /// How long a pod's containers take to start once the node has taken it: pulling, sandbox.
    pub start_delay: Duration,
    /// How long containers go on once they are told to stop, unless a pod's annotation says otherwise. `None`: for the
    /// whole grace period.
    pub stop_after: Option<Duration>,
    /// Whether pods that wait for admission together are taken in a random order (of the cluster's seed), as the real
    /// kubelet promises none.
    pub shuffle: bool,
}

impl NodeSpec {
    /// A node of 64 cores, 512 GiB and 110 pods, with sockets of its own in memory.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            cpu_millis: 64_000,
            memory_bytes: 512 << 30,
            pods: 110,
            sockets: Sockets::memory(),
            root: PathBuf::from("/var/lib/kubelet"),
            address: [10, 0, 0, 1],
            start_delay: Duration::ZERO,
            stop_after: None,
            shuffle: true,
        }
    }

    /// The folder of the kubelet's and the plugins' sockets.
    pub fn plugin_directory(&self) -> PathBuf {
        let name = Path::new(deviceplugin::DIRECTORY).file_name();
        self.root.join(name.unwrap_or("device-plugins".as_ref()))
    }

    /// The socket of the pod resources service.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.root.join("pod-resources").join("kubelet.sock")
    }

    /// The node's address as text.
    pub(super) fn host_ip(&self) -> String {
        std::net::Ipv4Addr::from(self.address).to_string()
    }

    /// The address of the pod with this number, counted from 0: unique on the node, and among nodes with different last
    /// two bytes as long as they have fewer than 254 pods.
    pub(super) fn pod_ip(&self, number: u32) -> String {
        let host = u8::try_from(number % 254 + 1).unwrap_or(u8::MAX);
        let [_, _, third, fourth] = self.address;
        std::net::Ipv4Addr::new(10, 128 | (third & 127), fourth, host).to_string()
    }
}
