//! Shell globs for names and paths: `*`, `?`, `[a-z]`, `[!a-z]`, `\` before a character that is meant as it is.
//!
//! Nothing but a written `/` matches a `/`. Takes in a pattern, gives out whether a text matches.

/// A pattern, cut at its slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// As it was written.
    text: String,
    parts: Vec<Vec<Token>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    One(char),
    AnyOne,
    Any,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the glob {pattern:?} {fault}")]
pub struct GlobError {
    pub pattern: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("is empty")]
    Empty,
    #[error("ends in a backslash")]
    LastBackslash,
    #[error("has a backslash before a slash")]
    EscapedSlash,
    #[error("has a [ without its ]")]
    OpenClass,
    #[error("has a range that runs backwards")]
    BackwardRange,
}

impl Glob {
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        let fail = |fault| GlobError { pattern: pattern.to_owned(), fault };
        if pattern.is_empty() {
            return Err(fail(Fault::Empty));
        }
        let mut parts = vec![Vec::new()];
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let token = match c {
                '/' => {
                    parts.push(Vec::new());
                    continue;
                }
                '*' => Token::Any,
                '?' => Token::AnyOne,
                '[' => class(&mut chars).map_err(fail)?,
                '\\' => Token::One(chars.next().ok_or_else(|| fail(Fault::LastBackslash))?),
                c => Token::One(c),
            };
            if token == Token::One('/') {
                return Err(fail(Fault::EscapedSlash));
            }
            if let Some(part) = parts.last_mut() {
                part.push(token);
            }
        }
        Ok(Self { text: pattern.to_owned(), parts })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, text: &str) -> bool {
        let mut texts = text.split('/');
        self.parts.iter().all(|part| texts.next().is_some_and(|text| part_matches(part, text)))
            && texts.next().is_none()
    }
}

/// What stands between `[` and `]`; a `]` in first place is meant as it is.
fn class(chars: &mut std::str::Chars<'_>) -> Result<Token, Fault> {
    let mut rest = chars.clone();
    let negated = matches!(rest.next(), Some('!' | '^'));
    if negated {
        chars.next();
    }
    let mut ranges = Vec::new();
    loop {
        let low = match chars.next().ok_or(Fault::OpenClass)? {
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => chars.next().ok_or(Fault::OpenClass)?,
            c => c,
        };
        let mut ahead = chars.clone();
        let range = ahead.next() == Some('-') && !matches!(ahead.next(), None | Some(']'));
        let high = if range {
            chars.next();
            match chars.next().ok_or(Fault::OpenClass)? {
                '\\' => chars.next().ok_or(Fault::OpenClass)?,
                c => c,
            }
        } else {
            low
        };
        if low > high {
            return Err(Fault::BackwardRange);
        }
        ranges.push((low, high));
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::One(own) => *own == c,
            Self::AnyOne | Self::Any => true,
            Self::Class { negated, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
        }
    }
}

/// Goes back to the last `*` only, which is enough within one part: time is at most pattern × text.
fn part_matches(part: &[Token], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut token) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match part.get(token) {
            Some(Token::Any) => {
                star = Some((token, at));
                token += 1;
            }
            Some(other) if other.takes(text[at]) => {
                at += 1;
                token += 1;
            }
            _ => {
                let Some((star_token, star_at)) = star else { return false };
                star = Some((star_token, star_at + 1));
                (token, at) = (star_token + 1, star_at + 1);
            }
        }
    }
    part[token..].iter().all(|token| *token == Token::Any)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs_match_as_a_shell_does() {
        let cases = [
            ("sda", "sda", true),
            ("sda", "sdab", false),
            ("sd*", "sda", true),
            ("sd*", "sd", true),
            ("sd?", "sd", false),
            ("sd?", "sdé", true),
            ("*", "", true),
            ("?*", "", false),
            ("*a*b*c", "xxaxbxbxc", true),
            ("*a*b*c", "xxaxcxbx", false),
            ("**n1", "nvme0n1", true),
            ("nvme[0-3]n1", "nvme2n1", true),
            ("nvme[0-3]n1", "nvme4n1", false),
            ("sd[!a-c]", "sdd", true),
            ("sd[!a-c]", "sdb", false),
            ("sd[^a]", "sda", false),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("[a-]", "-", true),
            ("[-a]", "-", true),
            ("[a\\-c]", "b", false),
            ("[a\\-c]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("/dev/sd*", "/dev/sda", true),
            ("/dev/*", "/dev/disk/by-id/x", false),
            ("/dev/*/by-id/*", "/dev/disk/by-id/x", true),
            ("/dev/disk?by-id", "/dev/disk/by-id", false),
            ("/dev/disk[!x]by-id", "/dev/disk/by-id", false),
            ("/dev/sda", "dev/sda", false),
            ("/dev/sda/", "/dev/sda", false),
            ("*", "a/b", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Glob::parse(pattern).unwrap().matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_glob_that_cannot_be_read_is_refused_with_a_message() {
        for pattern in ["", "[", "[a", "[]", "[!]", "[z-a]", "a\\", "[a\\", "[a-", "a\\/b"] {
            let error = Glob::parse(pattern).unwrap_err();
            assert!(error.to_string().contains(&format!("{pattern:?}")), "{error}");
        }
    }

    #[test]
    fn a_hostile_glob_ends_in_time() {
        let pattern = format!("{}b", "*a".repeat(500));
        assert!(!Glob::parse(&pattern).unwrap().matches(&"a".repeat(5000)));
    }

    /// The definition, as slow as it likes.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|n| !text[..n].contains(&'/') && naive(rest, &text[n..])),
            Some(('?', rest)) => text.first().is_some_and(|c| *c != '/') && naive(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn stars_and_questions_mean_what_their_definition_says(pattern in "[ab*?/]{1,8}", text in "[ab/]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Glob::parse(&pattern).unwrap().matches(&text), naive(&p, &t));
        }

        #[test]
        fn no_pattern_makes_it_panic(pattern in any::<String>(), text in any::<String>()) {
            if let Ok(glob) = Glob::parse(&pattern) { glob.matches(&text); }
        }

        #[test]
        fn an_escaped_text_matches_itself_only(text in "[a-z*?\\[\\]!-]{1,10}", other in "[a-z*?]{1,10}") {
            let pattern: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let glob = Glob::parse(&pattern).unwrap();
            prop_assert!(glob.matches(&text));
            prop_assert_eq!(glob.matches(&other), other == text);
        }
    }
}
