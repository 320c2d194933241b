//! What the leader reports at `/metrics` about the reaction. Its steps and its reasons to wait are words of
//! `operator/reaction`.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

#[derive(Clone)]
pub struct ReactionMetrics {
    /// By step.
    pub steps: IntCounterVec,
    /// By why.
    pub held: IntGaugeVec,
    pub in_flight: IntGauge,
    pub oldest: IntGauge,
    pub bad_nodes: IntGauge,
    /// By mode: 1 for the one that holds.
    pub mode: IntGaugeVec,
}

impl ReactionMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(format!("localpool_controller_{name}"), help);
        let steps = opts("reaction_steps_total", "Steps of the reaction that were done, by step.");
        let held = opts("reaction_held", "Lost volumes that the reaction does nothing about now, by why.");
        let in_flight = opts("reaction_in_flight", "Volumes whose reaction is under way.");
        let oldest = opts("reaction_oldest_timestamp_seconds", "When the oldest of them began; 0 if there is none.");
        let bad_nodes = opts("reaction_bad_nodes", "Nodes that count as bad for controller.reaction.maxBadNodes.");
        let mode = opts("reaction_mode", "1 for the mode of the reaction.");
        let all = Self {
            steps: IntCounterVec::new(steps, &["step"])?,
            held: IntGaugeVec::new(held, &["why"])?,
            in_flight: IntGauge::with_opts(in_flight)?,
            oldest: IntGauge::with_opts(oldest)?,
            bad_nodes: IntGauge::with_opts(bad_nodes)?,
            mode: IntGaugeVec::new(mode, &["mode"])?,
        };
        let Self { steps, held, in_flight, oldest, bad_nodes, mode } = &all;
        registry.register(Box::new(steps.clone()))?;
        for gauges in [held, mode] {
            registry.register(Box::new(gauges.clone()))?;
        }
        for gauge in [in_flight, oldest, bad_nodes] {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(all)
    }

    /// Another replica counts from now on. What was done stays counted.
    pub fn reset(&self) {
        let Self { steps: _, held, in_flight, oldest, bad_nodes, mode } = self;
        held.reset();
        mode.reset();
        for gauge in [in_flight, oldest, bad_nodes] {
            gauge.set(0);
        }
    }
}
