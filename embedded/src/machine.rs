//! A machine: a kubelet, and GPUs that can be broken.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster_sim::Cluster;
use cluster_sim::node::{Kubelet, NodeSpec};
use fake_nvml::{Fault, Handle, World, WorldSpec};
use kit::http::Listen;
use model::planted::Planted;
use node_agent::driver::FakeDriver;
use proto::sockets::Sockets;

use crate::stack::{NodeConfig, Transport};

/// The XID of a GPU that has fallen off the bus.
const OFF_THE_BUS: u32 = 79;

/// A machine: a kubelet, and GPUs that can be broken.
#[derive(Debug)]
pub struct Machine {
    kubelet: Kubelet,
    gpus: Handle,
}

impl Machine {
    /// Puts a machine into the cluster; its node-agent is started by the stack.
    ///
    /// # Errors
    /// The profile does not exist, or the kubelet's sockets cannot be made.
    pub fn boot(
        cluster: &Cluster,
        config: &NodeConfig,
        number: usize,
        transport: &Transport,
    ) -> anyhow::Result<Self> {
        let world = WorldSpec::load(&config.profile)?;
        let mut spec = NodeSpec::new(&config.name);
        spec.labels.clone_from(&config.labels);
        // A training script that heeds SIGTERM: reclaiming takes a moment, not the whole grace period.
        spec.stop_after = Some(Duration::from_secs(1));
        let number = u16::try_from(number).context("more than 65,535 nodes")?.to_be_bytes();
        spec.address = [10, 1, number[0], number[1]];
        if let Transport::Unix(folder) = transport {
            spec.root = folder.join(&config.name);
            spec.sockets = Sockets::Unix;
            for below in ["device-plugins", "pod-resources"] {
                std::fs::create_dir_all(spec.root.join(below))
                    .with_context(|| format!("creating {}", spec.root.join(below).display()))?;
            }
        }
        let gpus = Handle::new(World::new(world, &config.name));
        let kubelet =
            cluster.add_node(spec).with_context(|| format!("starting the kubelet of {}", config.name))?;
        Ok(Self { kubelet, gpus })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.kubelet.name()
    }

    /// The kubelet.
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// What the machine's node-agent is started with.
    pub(crate) fn agent_config(&self, planted: Planted) -> node_agent::Config {
        let spec = self.kubelet.spec();
        let driver = Arc::new(FakeDriver::new(self.gpus.clone()));
        let mut config = node_agent::Config::new(spec.name.clone(), driver, spec.sockets.clone());
        config.kubelet_socket = spec.plugin_directory().join(proto::deviceplugin::KUBELET_SOCKET);
        config.pod_resources_socket = spec.pod_resources_socket();
        // The machine this runs on is not the one it pretends to be.
        config.sys_root = spec.root.join("sys");
        config.settings.no_timestamp = true;
        config.admin = Some(Listen::InProcess);
        config.planted = planted;
        config
    }

    /// Restarts the kubelet.
    pub fn restart_kubelet(&self) {
        // Sockets in memory can always be made; on disk a failure shows as a node that is never ready.
        let _ = self.kubelet.restart();
    }

    /// Starts the kubelet of a machine that was switched off.
    pub fn boots(&self) {
        // As for a restart.
        let _ = self.kubelet.start();
    }

    /// Makes the node ready or not.
    pub fn set_ready(&self, ready: bool) {
        self.kubelet.set_ready(ready);
    }

    /// The UUID of a GPU.
    pub fn uuid(&self, gpu: usize) -> Option<String> {
        self.gpus.read(|world| world.all_gpus().get(gpu).map(|gpu| gpu.uuid.clone()))
    }

    /// Lets a GPU fall off the bus.
    pub fn break_gpu(&self, gpu: usize) {
        self.gpus.inject(Fault::Xid { gpu: index(gpu), code: OFF_THE_BUS });
    }

    /// Brings a GPU back, as a reset would.
    pub fn mend_gpu(&self, gpu: usize) {
        self.gpus.inject(Fault::Recover { gpu: index(gpu) });
    }
}

fn index(gpu: usize) -> u32 {
    u32::try_from(gpu).unwrap_or(u32::MAX)
}
