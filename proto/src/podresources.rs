//! The pod resources API, v1 (`k8s.io/kubelet/pkg/apis/podresources/v1`).

pub use generated::*;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    tonic::include_proto!("v1");
}

/// The socket on which a kubelet serves it.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
