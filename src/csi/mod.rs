//! The gRPC edge: parse, one call into the domain, map the answer. The only place that names a gRPC code.

pub mod proto;
