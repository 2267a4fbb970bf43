//! Only Kubernetes, in one process: API server, kubelets, job controllers, faults, virtual time.
