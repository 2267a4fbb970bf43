//! Behaviours of the Kubernetes API, each a small test, for cluster-sim and the real server.
