//! Layer 3: what GPU units does this node really have?.
