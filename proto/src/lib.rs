//! The kubelet's gRPC services and the sockets they are spoken over.
//!
//! The files under `protos/` are our own; packages, names and field numbers are Kubernetes', so any kubelet and any
//! device plugin understands them.

pub mod deviceplugin;
pub mod podresources;
pub mod registration;
pub mod sockets;
