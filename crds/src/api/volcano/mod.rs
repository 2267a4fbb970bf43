//! `scheduling.volcano.sh`: the gang dialect most job controllers speak, and its queues.

pub mod v1beta1;
