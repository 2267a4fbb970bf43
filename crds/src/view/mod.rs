//! Lean read-only structs: what a watch decodes into before the index interns it.
//!
//! One file per watched kind. A view names only the fields its reader uses, so that decoding skips the rest; nothing
//! here is ever written back (patches are built from what is to change, not from a view).
