//! `trireme`: up, demo, explain.

fn main() {}
