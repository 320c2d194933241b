//! The order in which people count kernel names: `sd9` before `sd10`, `sdz` before `sdaa`. Pure.

use std::cmp::Ordering;

/// A run of digits by its value; any other run by its first two letters, which name the driver, then by length.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stretch<'n> {
    Number { length: usize, digits: &'n str },
    Word { beginning: &'n str, length: usize, word: &'n str },
}

/// Compares two names run by run; names that compare equal are in the order of their text.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    runs(a).cmp(runs(b)).then_with(|| a.cmp(b))
}

fn runs(name: &str) -> impl Iterator<Item = Stretch<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let digit = |c: char| c.is_ascii_digit();
        let first = rest.chars().next()?;
        let end = rest.find(|c| digit(c) != digit(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some(if digit(first) {
            let digits = run.trim_start_matches('0');
            Stretch::Number { length: digits.len(), digits }
        } else {
            let beginning = run.char_indices().nth(2).map_or(run, |(at, _)| &run[..at]);
            Stretch::Word { beginning, length: run.len(), word: run }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = ["loop10", "sdb", "sdaa", "nvme10n1", "nvme2n1", "loop2", "sda", "nvme2n10", "nvme2n9"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["loop2", "loop10", "nvme2n1", "nvme2n9", "nvme2n10", "nvme10n1", "sda", "sdb", "sdaa"]);
    }

    #[test]
    fn a_number_of_any_length_counts_and_equal_numbers_are_still_two_names() {
        let long = "loop99999999999999999999999999";
        assert_eq!(natural_order("loop9", long), Ordering::Less);
        assert_eq!(natural_order(long, "loop100000000000000000000000000"), Ordering::Less);
        assert_eq!(natural_order("md7", "md07"), natural_order("md07", "md7").reverse());
        assert_ne!(natural_order("md7", "md07"), Ordering::Equal);
    }
}
