//! The names in a Rust file, as far as words show: paths with their line, whether they are in test code, and what of
//! this crate they mean. Takes in text, gives out [`Names`]; it is no parser of Rust, so it does not see what macros
//! make.

/// The tokens before an item that only tests have. Strings are no tokens: the second is `any(test, feature =
/// "testing")`.
const FOR_TESTS: [&[&str]; 2] = [
    &["#", "[", "cfg", "(", "test", ")", "]"],
    &["#", "[", "cfg", "(", "any", "(", "test", ",", "feature", "=", ")", ")", "]"],
];

/// A path or a word as in the code, with the braces of `use` expanded.
#[derive(Debug)]
pub struct Named {
    pub path: Vec<String>,
    pub line: usize,
    pub in_test: bool,
    after_dyn: bool,
}

impl Named {
    /// `said` is the beginning of this path, one word of it, or `dyn` and the last word.
    pub fn says(&self, said: &str) -> bool {
        let last = |word: &str| self.path.last().is_some_and(|last| last == word);
        match said.strip_prefix("dyn ") {
            Some(word) => self.after_dyn && last(word),
            None if said.contains("::") => {
                self.path.join("::").strip_prefix(said).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            }
            // A crate comes first; a type may be anywhere.
            None if said.starts_with(char::is_lowercase) => self.path.first().is_some_and(|first| first == said),
            None => self.path.iter().any(|word| word == said),
        }
    }
}

/// The words that begin a type.
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// A type that a file declares in a module: not one of a trait, a function or a macro.
#[derive(Debug)]
pub struct DeclaredType {
    pub name: String,
    pub line: usize,
    pub in_test: bool,
}

/// All names in a file, and those that belong to this crate, by their path from the root.
pub struct Names {
    pub all: Vec<Named>,
    pub ours: Vec<Named>,
    pub types: Vec<DeclaredType>,
    /// Modules for tests alone, in files of their own.
    pub test_modules: Vec<String>,
}

impl Names {
    pub fn of(place: &str, text: &str) -> Self {
        let mut walk =
            Walk { tokens: tokens(text), at: 0, found: Vec::new(), types: Vec::new(), test_modules: Vec::new() };
        let mut module: Vec<String> = place.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        let Walk { found, types, test_modules, .. } = walk.run(&module);
        let ours = found
            .iter()
            .filter_map(|(named, inside)| Some(Named { path: from_root(&named.path, inside)?, ..*named }))
            .collect();
        Self { all: found.into_iter().map(|(named, _)| named).collect(), ours, types, test_modules }
    }
}

/// The path from the crate's root, if it begins with `crate`, `localpool`, `self` or `super`.
fn from_root(path: &[String], inside: &[String]) -> Option<Vec<String>> {
    let first = path.first()?.as_str();
    let mut base: Vec<String> = match first {
        "crate" | "localpool" => Vec::new(),
        "self" | "super" => inside.to_vec(),
        _ => return None,
    };
    let mut rest = path.iter().skip(usize::from(first != "super")).peekable();
    while rest.next_if(|word| *word == "super").is_some() {
        base.pop()?;
    }
    // `pub(super)` names nothing.
    rest.peek()?;
    base.extend(rest.cloned());
    Some(base)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub word: String,
    line: usize,
}

/// Whether an item follows that only tests have: the number of tokens that say so.
pub fn is_for_tests(tokens: &[Token]) -> Option<usize> {
    let begins = |with: &&&[&str]| {
        tokens.len() >= with.len() && with.iter().zip(tokens).all(|(word, token)| token.word == *word)
    };
    FOR_TESTS.iter().find(begins).map(|attribute| attribute.len())
}

/// The place after the brace that ends the block which begins at `open`.
pub fn end_of_block(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.word.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The place after an item: it ends with its block, or with a semicolon.
pub fn end_of_item(tokens: &[Token], from: usize) -> usize {
    match (from..tokens.len()).find(|at| matches!(tokens[*at].word.as_str(), "{" | ";")) {
        Some(at) if tokens[at].word == "{" => end_of_block(tokens, at),
        Some(at) => at + 1,
        None => tokens.len(),
    }
}

/// Identifiers, `::` and single signs; without comments, strings, characters and lifetimes.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut i, mut line, mut out) = (0, 1, Vec::new());
    while i < chars.len() {
        let from = i;
        match at(i) {
            '/' if at(i + 1) == '/' => i += chars[i..].iter().position(|c| *c == '\n').unwrap_or(chars.len() - i),
            '/' if at(i + 1) == '*' => i = end_of_comment(&chars, i),
            '"' => i = end_of_string(&chars, i),
            'r' | 'b' | 'c' if raw_hashes(&chars, i).is_some() => {
                let (open, hashes) = raw_hashes(&chars, i).expect("it was just found");
                i = end_of_raw(&chars, open, hashes);
            }
            '\'' if at(i + 1) == '\\' => i += 3 + chars[i + 3..].iter().position(|c| *c == '\'').unwrap_or(0),
            '\'' if at(i + 2) == '\'' => i += 2,
            '\'' => i += chars[i + 1..].iter().take_while(|c| is_word(**c)).count(),
            c if is_word(c) => {
                let word: String = chars[i..].iter().take_while(|c| is_word(**c)).collect();
                i += word.chars().count() - 1;
                out.push(Token { word, line });
            }
            ':' if at(i + 1) == ':' => {
                out.push(Token { word: "::".to_owned(), line });
                i += 1;
            }
            c if !c.is_whitespace() => out.push(Token { word: c.to_string(), line }),
            _ => {}
        }
        i = (i + 1).min(chars.len());
        line += chars[from..i].iter().filter(|c| **c == '\n').count();
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Comments nest. Gives the index of the last character.
fn end_of_comment(chars: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 1),
            ('*', '/') => (depth, i) = (depth - 1, i + 1),
            _ => {}
        }
        if depth == 0 {
            return i;
        }
        i += 1;
    }
    chars.len()
}

fn end_of_string(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i
}

/// `r"`, `r#"`, `br##"`: the index of the quote and the number of hashes.
fn raw_hashes(chars: &[char], from: usize) -> Option<(usize, usize)> {
    if from > 0 && is_word(chars[from - 1]) {
        return None;
    }
    let prefix = chars[from..].iter().take(2).take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let hashes = chars[from + prefix..].iter().take_while(|c| **c == '#').count();
    let open = from + prefix + hashes;
    let raw = chars[from..from + prefix].contains(&'r');
    (raw && chars.get(open) == Some(&'"')).then_some((open, hashes))
}

fn end_of_raw(chars: &[char], open: usize, hashes: usize) -> usize {
    let mut i = open + 1;
    while i < chars.len() {
        let closes = chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
        if closes {
            return i + hashes;
        }
        i += 1;
    }
    i
}

/// Goes through the tokens of one file; knows in which module it is, and whether that is for tests only.
struct Walk {
    tokens: Vec<Token>,
    at: usize,
    /// Each name, and its module.
    found: Vec<(Named, Vec<String>)>,
    types: Vec<DeclaredType>,
    test_modules: Vec<String>,
}

impl Walk {
    fn word(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| &token.word)
    }

    fn words(&self, expected: &[&str]) -> bool {
        expected.iter().enumerate().all(|(i, word)| self.word(i) == *word)
    }

    fn run(&mut self, module: &[String]) -> Walk {
        let mut inside = module.to_vec();
        // For each open brace: whether it began a module, and whether tests began with it.
        let mut open: Vec<(bool, bool)> = Vec::new();
        let mut test_item = false;
        while self.at < self.tokens.len() {
            if let Some(attribute) = FOR_TESTS.iter().find(|attribute| self.words(attribute)) {
                test_item = true;
                self.at += attribute.len();
            } else if self.word(0) == "mod" && self.word(2) == "{" {
                inside.push(self.word(1).to_owned());
                open.push((true, std::mem::take(&mut test_item)));
                self.at += 3;
            } else if self.word(0) == "mod" && self.word(2) == ";" {
                if std::mem::take(&mut test_item) {
                    self.test_modules.push(self.word(1).to_owned());
                }
                self.at += 3;
            } else if self.word(0) == "{" {
                open.push((false, std::mem::take(&mut test_item)));
                self.at += 1;
            } else if self.word(0) == "}" {
                if open.pop().is_some_and(|(module, _)| module) {
                    inside.pop();
                }
                self.at += 1;
            } else if self.word(0).starts_with(is_word) {
                let in_test = test_item || open.iter().any(|(_, test)| *test);
                if TYPES.contains(&self.word(0)) && self.word(1).starts_with(char::is_uppercase) {
                    let line = self.tokens[self.at].line;
                    if open.iter().all(|(module, _)| *module) {
                        self.types.push(DeclaredType { name: self.word(1).to_owned(), line, in_test });
                    }
                }
                let after_dyn = self.at > 0 && self.tokens[self.at - 1].word == "dyn";
                let paths = self.path(Vec::new());
                let named = |(path, line)| (Named { path, line, in_test, after_dyn }, inside.clone());
                self.found.extend(paths.into_iter().map(named));
            } else {
                // The end of an item without a body, such as a `use` under `#[cfg(test)]`.
                test_item &= self.word(0) != ";";
                self.at += 1;
            }
        }
        Walk {
            tokens: Vec::new(),
            at: 0,
            found: std::mem::take(&mut self.found),
            types: std::mem::take(&mut self.types),
            test_modules: std::mem::take(&mut self.test_modules),
        }
    }

    /// One path, or all those of a group (`a::{b, c::d}`), each with the line where it ends.
    fn path(&mut self, mut before: Vec<String>) -> Vec<(Vec<String>, usize)> {
        before.push(self.word(0).to_owned());
        let line = self.tokens[self.at].line;
        self.at += 1;
        if self.word(0) != "::" {
            return vec![(before, line)];
        }
        match self.word(1) {
            "{" => {
                self.at += 2;
                let mut all = Vec::new();
                while !matches!(self.word(0), "}" | "") {
                    match self.word(0).starts_with(is_word) {
                        true if self.word(0) == "as" => self.at += 2,
                        true => all.extend(self.path(before.clone())),
                        false => self.at += 1,
                    }
                }
                self.at += 1;
                all
            }
            next if next.starts_with(is_word) => {
                self.at += 1;
                self.path(before)
            }
            _ => vec![(before, line)],
        }
    }
}
