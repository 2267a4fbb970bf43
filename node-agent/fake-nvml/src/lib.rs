//! Worlds of GPUs that answer as NVML does, driven by YAML.
