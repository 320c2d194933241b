//! What one measurement is: samples to numbers, numbers to a ratio, a ratio to met or not met. Pure.

use std::fmt;
use std::time::Duration;

/// One line of the report. `ratio` says how many times better ours is than the baseline, above 1 where it is.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Also the name of its file.
    pub name: String,
    /// For people.
    pub what: String,
    pub beside: String,
    pub unit: &'static str,
    pub ours: f64,
    pub baseline: f64,
    pub better: Better,
    /// Samples of localpool.
    pub n: usize,
    pub aims: Vec<Aim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Smaller,
    Larger,
}

/// What issue and design ask for.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    OursBelow(f64),
    OursAtMost(f64),
    RatioAtLeast(f64),
}

impl Measurement {
    /// MiB that a process holds, beside what it may hold.
    pub fn memory(name: String, what: String, value: f64, aim: f64, aims: Vec<Aim>) -> Self {
        let beside = "the aim".to_owned();
        Self { name, what, beside, unit: "MiB", ours: value, baseline: aim, better: Better::Smaller, n: 1, aims }
    }

    pub fn ratio(&self) -> f64 {
        match self.better {
            // Nothing beside nothing.
            _ if self.ours == 0.0 && self.baseline == 0.0 => 1.0,
            Better::Smaller => self.baseline / self.ours,
            Better::Larger => self.ours / self.baseline,
        }
    }

    /// Each aim, and whether it is met; empty where there is none.
    pub fn verdicts(&self) -> String {
        let words = |aim: &Aim| match aim {
            Aim::OursBelow(most) => verdict(self.ours < *most, &format!("below {} {}", short(*most), self.unit)),
            Aim::OursAtMost(most) => verdict(self.ours <= *most, &format!("at most {} {}", short(*most), self.unit)),
            Aim::RatioAtLeast(least) => verdict(self.ratio() >= *least, &format!("ratio at least {}", short(*least))),
        };
        self.aims.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

fn verdict(met: bool, aim: &str) -> String {
    if met { format!("met: {aim}") } else { format!("NOT met: {aim}") }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, beside, unit, ours, baseline, n, .. } = self;
        let (ours, baseline, ratio) = (short(*ours), short(*baseline), short(self.ratio()));
        write!(f, "{what}: {ours} {unit}; {beside}: {baseline} {unit}; ratio {ratio}, n {n}")?;
        match self.verdicts() {
            words if words.is_empty() => Ok(()),
            words => write!(f, "; {words}"),
        }
    }
}

/// All that a run has found so far; prints as it goes.
#[derive(Default)]
pub struct Report {
    measurements: Vec<Measurement>,
    notes: Vec<String>,
}

impl Report {
    pub fn add(&mut self, one: Measurement) {
        println!("  {one}");
        self.measurements.push(one);
    }

    /// What has to be known to read the numbers.
    pub fn note(&mut self, words: String) {
        println!("  {words}");
        self.notes.push(words);
    }

    pub fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Durations of one thing that was done many times.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1e3);
    }

    pub fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, other: Samples) {
        self.0.extend(other.0);
    }

    /// In the order in which they were taken.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that at least that share of all do not exceed; in milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.percentile(50)
    }
}

/// Three significant digits, and no fewer than the integer has.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
