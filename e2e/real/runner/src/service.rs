//! How the API server finds what stands behind a Service and runs on this machine: there is no kube-proxy.

use std::net::{IpAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// An address of this machine that an EndpointSlice may hold: none of the loopback.
pub(crate) fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent: the address is one reserved for documentation.
    socket.connect("192.0.2.1:9").context("this machine has no address but loopback")?;
    let address = socket.local_addr()?.ip();
    ensure!(!address.is_loopback() && !address.is_unspecified(), "this machine has no address but loopback");
    Ok(address)
}

/// A replica behind port `https` of a Service. Kubernetes 1.33 looks for the Endpoints of the Service's name, of which there is
/// one for all replicas: the last counts. Later ones look for the EndpointSlices.
pub(crate) fn endpoints(
    namespace: &str,
    service: &str,
    replica: &str,
    address: IpAddr,
    port: u16,
) -> [Value; 2] {
    let address = address.to_string();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": replica, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": service, "namespace": namespace, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]});
    [slice, endpoints]
}
