//! Layer 2's decisions, pure: nodes, filters, gangs, reasons.
