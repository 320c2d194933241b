//! Times as objects have them: whole seconds.

use jiff::Timestamp;

/// As the API server stores a time: what is compared with it later must be equal.
pub fn to_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_loses_its_fraction_and_nothing_else() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(to_second(time("2026-03-01T00:00:07.999999999Z")), time("2026-03-01T00:00:07Z"));
        assert_eq!(to_second(time("2026-03-01T00:00:07Z")), time("2026-03-01T00:00:07Z"));
    }
}
