//! How the API server is asked: one request (`client`) and its error, a write to the state that was seen, and a watch,
//! which keeps a store of objects by their names.

pub(in crate::operator) mod client;
pub(in crate::operator) mod error;
pub(in crate::operator) mod object_key;
pub(in crate::operator) mod store;
pub(in crate::operator) mod watch;
pub(in crate::operator) mod write;
