//! The C ABI of fake-nvml: libnvidia-ml.so.1 for the unmodified nvml-wrapper.
