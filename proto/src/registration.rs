//! The plugin watcher API, v1 (`k8s.io/kubelet/pkg/apis/pluginregistration/v1`): the kubelet finds a socket and asks.

pub use generated::*;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    tonic::include_proto!("pluginregistration");
}

/// The folder that the kubelet watches for sockets.
pub const DIRECTORY: &str = "/var/lib/kubelet/plugins_registry";
/// [`PluginInfo::r#type`] of a device plugin.
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
