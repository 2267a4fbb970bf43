//! The device plugin API, v1beta1 (`k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1`).

use std::time::Duration;

pub use generated::*;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    tonic::include_proto!("v1beta1");
}

/// The only version of this API that a kubelet accepts in [`RegisterRequest::version`].
pub const VERSION: &str = "v1beta1";
/// [`Device::health`] of a device that may be given out.
pub const HEALTHY: &str = "Healthy";
/// [`Device::health`] of a device that may not.
pub const UNHEALTHY: &str = "Unhealthy";
/// The folder in which the kubelet and the plugins have their sockets.
pub const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
/// File name of the kubelet's registration socket in [`DIRECTORY`].
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// File name of the kubelet's checkpoint in [`DIRECTORY`]: the one file that a restart leaves.
pub const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// Bytes that a [`Device::id`] may have.
pub const MAX_DEVICE_ID: usize = 63;
/// How long the kubelet waits for PreStartContainer.
pub const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the kubelet keeps the capacity of a resource whose plugin went away.
pub const ENDPOINT_GRACE: Duration = Duration::from_secs(300);
