//! Layer 1's decisions, pure: cohort tree, flavors, preemption, queues, reasons.
