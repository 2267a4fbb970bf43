//! Every API type Trireme serves or reads.
