//! Layer 1: may this workload take its share of quota now?.
