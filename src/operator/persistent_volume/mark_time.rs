//! `FirstMarkTime`: RFC 3339 in UTC, and the form in which the proposal's Go code wrote it.

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;

use crate::operator::status::second::to_second;

/// As Go prints a time: `2018-04-17 07:31:02.388570492 +0000 UTC m=+600.033905921`.
const GO: &str = "%Y-%m-%d %H:%M:%S%.f %z";

pub fn written(time: Timestamp) -> String {
    to_second(time).to_string()
}

/// `None`: it is no time.
pub fn read(text: &str) -> Option<Timestamp> {
    let go = || {
        // The name of the zone and the monotonic reading follow the offset.
        let words: Vec<&str> = text.split(' ').take(3).collect();
        BrokenDownTime::parse(GO, words.join(" ")).ok()?.to_timestamp().ok()
    };
    text.parse().ok().or_else(go)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_one_is_written() {
        let time: Timestamp = "2018-04-17T07:31:02Z".parse().expect("a time");
        assert_eq!(written("2018-04-17T07:31:02.388570492Z".parse().expect("a time")), "2018-04-17T07:31:02Z");
        assert_eq!(read("2018-04-17T07:31:02Z"), Some(time));
        assert_eq!(read("2018-04-17T09:31:02+02:00"), Some(time));
        let go = read("2018-04-17 07:31:02.388570492 +0000 UTC m=+600.033905921").expect("the proposal's");
        assert_eq!(go.as_second(), time.as_second());
        assert_eq!(read("2018-04-17 09:31:02 +0200 CEST"), Some(time));
        for no_time in ["", "yes", "2018-04-17", "2018-04-17 07:31:02", "07:31", "2018-13-17T07:31:02Z"] {
            assert_eq!(read(no_time), None, "{no_time:?}");
        }
    }
}
