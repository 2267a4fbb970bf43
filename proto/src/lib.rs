//! The kubelet's gRPC services and the sockets they are spoken over.
