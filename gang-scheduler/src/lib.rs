//! Layer 2: can all its pods land together, well?.
