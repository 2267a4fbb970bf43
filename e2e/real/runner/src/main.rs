//! Runs the programs against a real Kubernetes and counts what holds.

fn main() {}
