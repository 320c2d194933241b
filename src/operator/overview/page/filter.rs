//! What a person wants to see of the page: the query of its address.

use crate::show::Tone;

/// Words that all have to be there, and whether only what is wrong is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFilter {
    /// As it was typed.
    pub text: String,
    pub only_wrong: bool,
    words: Vec<String>,
}

/// A longer text is cut: nobody types it.
const LONGEST: usize = 200;

impl PageFilter {
    /// Of `q=WORDS&show=wrong`. Other names and values count as not said.
    pub fn parse(query: &str) -> Self {
        let mut filter = Self::default();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("q", value)) => filter.text = decoded(value).chars().take(LONGEST).collect(),
                Some(("show", value)) => filter.only_wrong = value == "wrong",
                _ => {}
            }
        }
        filter.words = filter.text.split_whitespace().map(str::to_lowercase).collect();
        filter
    }

    pub fn is_everything(&self) -> bool {
        self.words.is_empty() && !self.only_wrong
    }

    /// Whether something of this tone with these texts is shown.
    pub fn shows(&self, tone: Tone, texts: &[&str]) -> bool {
        if self.only_wrong && !matches!(tone, Tone::Bad | Tone::Doubtful) {
            return false;
        }
        if self.words.is_empty() {
            return true;
        }
        let all = texts.join("\n").to_lowercase();
        self.words.iter().all(|word| all.contains(word.as_str()))
    }
}

/// A value as forms write it: `+` for a space, `%` and two digits for a byte. What is no such thing stays.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let is_hex = |digits: &&str| first == b'%' && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = digits.filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        (rest, _) = match byte {
            Some(byte) => (&after[2..], bytes.push(byte)),
            None => (after, bytes.push(if first == b'+' { b' ' } else { first })),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_form_writes_it_and_a_broken_one_does_no_harm() {
        let read = |query: &str| PageFilter::parse(query);
        assert_eq!(read("q=rack+1%2Fsdb&show=wrong").text, "rack 1/sdb");
        assert!(read("q=rack&show=wrong").only_wrong && !read("show=all").only_wrong);
        assert_eq!(read("q=100%&x").text, "100%");
        assert_eq!(read("q=%F0%9F%zz%").text, "\u{fffd}%zz%");
        assert_eq!(read(&format!("q={}", "ä".repeat(999))).text.chars().count(), LONGEST);
        assert!(read("").is_everything() && read("q=++").is_everything());
    }

    #[test]
    fn all_words_have_to_be_there_and_case_does_not_matter() {
        let filter = PageFilter::parse("q=SDB+failing");
        assert!(filter.shows(Tone::Good, &["node-1", "sdb", "DiskFailing"]));
        assert!(!filter.shows(Tone::Good, &["node-1", "sdb", "Healthy"]));
        let wrong = PageFilter::parse("show=wrong");
        assert!(wrong.shows(Tone::Doubtful, &[]) && !wrong.shows(Tone::Good, &[]) && !wrong.shows(Tone::Plain, &[]));
    }
}
