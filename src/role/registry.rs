//! The registry of a role's metrics: what is in each of them, and how gauges and counters come into it.

use std::collections::HashMap;

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Each metric gets these labels; `localpool_build_info` says which version runs.
pub fn registry(labels: &[(&str, &str)]) -> Result<Registry, prometheus::Error> {
    let labels: HashMap<_, _> = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let registry = Registry::new_custom(None, Some(labels))?;
    let build = gauges(&registry, "localpool_build_info", "1, for the version that runs.", &["version"])?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(registry)
}

pub fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(gauges.clone()))?;
    Ok(gauges)
}

pub fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}
