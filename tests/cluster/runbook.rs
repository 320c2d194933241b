//! The runbooks of the alerts, and the guides: what their part "Look at" says to type is typed here, and answers as the page
//! shows.

use std::path::{Path, PathBuf};

use crate::cluster::{SOON, attempt, eventually};
use crate::page::{agent_of, fill};

/// A command that fails in a pipe is a failure, and a line that `grep` does not find is none.
const SHELL: &str = "set -euo pipefail; grep() { command grep \"$@\" || test $? = 1; }";
/// The node of all pages.
const NODE: &str = "worker-0";

/// A command of the part "Look at", and what the page shows below it.
pub struct RunbookCommand {
    /// The name of the page, which is an alert's or a guide's.
    pub alert: String,
    pub command: String,
    shown: String,
}

/// Those of all runbooks.
pub fn commands() -> Vec<RunbookCommand> {
    commands_in("runbooks")
}

/// Those of all guides.
pub fn guide_commands() -> Vec<RunbookCommand> {
    commands_in("guides")
}

fn commands_in(folder: &str) -> Vec<RunbookCommand> {
    let folder = docs().join(folder);
    let mut pages: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // An index, and answers to questions.
    pages.retain(|page| !page.ends_with("README.md") && !page.ends_with("faq.md"));
    pages.sort();
    pages.iter().flat_map(|page| commands_of(page)).collect()
}

/// The first command with these words of the runbook of an alert.
pub fn command(alert: &str, phrase: &str) -> RunbookCommand {
    let mut found = commands_of(&docs().join("runbooks").join(alert).with_extension("md")).into_iter();
    found.find(|found| found.command.contains(phrase)).unwrap_or_else(|| panic!("{alert} has no command with {phrase}"))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn commands_of(page: &Path) -> Vec<RunbookCommand> {
    let alert = page.file_stem().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    let part = text.split("\n## ").find(|part| part.starts_with("Look at\n")).expect("the part of a runbook");
    let blocks: Vec<_> = part.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
    let of_pair = |pair: &[(&str, &str)]| {
        let [("sh", command), ("text", shown)] = pair else {
            panic!("{alert}: not a command and its output: {pair:?}")
        };
        RunbookCommand { alert: alert.to_owned(), command: (*command).to_owned(), shown: (*shown).to_owned() }
    };
    blocks.chunks(2).map(of_pair).collect()
}

impl RunbookCommand {
    /// Types it for a node, with what a reader puts in for other words of the page, and returns the answer.
    pub async fn typed(&self, node: &str, values: &[(&str, &str)]) -> String {
        let fill = |text: &str| fill(&text.replace(NODE, node), values);
        let command = fill(&self.command);
        let agent = if command.contains("$AGENT") { agent_of(node) } else { String::new() };
        let said = attempt("bash", &["-c", &format!("{SHELL}\n{agent}\n{command}")]).await;
        if self.is_about_nothing() {
            let refusal = said.expect_err("the page shows an error");
            let shown = fill(&self.shown.replace(NODE, node));
            assert!(refusal.contains(shown.trim()), "{}: {refusal}", self.alert);
            return refusal;
        }
        let said = said.unwrap_or_else(|failed| panic!("{}: {failed}", self.alert));
        assert!(!said.is_empty() || self.may_be_empty(), "{}: nothing from\n{command}", self.alert);
        for head in self.heads().filter(|_| !said.is_empty()) {
            let words: Vec<&str> = head.split_whitespace().collect();
            let begins = |line: &str| line.split_whitespace().take(words.len()).eq(words.iter().copied());
            assert!(said.lines().any(begins), "{}: no {head} from\n{command}\n{said}", self.alert);
        }
        said
    }

    /// Types it until one line of the answer has all of these words; returns the answer.
    pub async fn shows(&self, node: &str, words: &[&str]) -> String {
        let poll = async || {
            let said = self.typed(node, &[]).await;
            let is_there = said.lines().any(|line| words.iter().all(|word| line.contains(word)));
            if is_there { Ok(said) } else { Err(said) }
        };
        eventually(&format!("{} shows {words:?}", self.alert), SOON, poll).await
    }

    /// Whether what it names does not exist, as the page shows.
    pub fn is_about_nothing(&self) -> bool {
        self.shown.starts_with("Error from server")
    }

    /// Whether it picks what is wrong, which may be nothing.
    fn may_be_empty(&self) -> bool {
        ["select(", "--field-selector reason="].iter().any(|part| self.command.contains(part))
    }

    /// The lines of the page that are the same everywhere: heads of tables, and what a metric says of itself.
    fn heads(&self) -> impl Iterator<Item = &str> {
        let is_head = |line: &str| line.chars().all(|c| c.is_ascii_uppercase() || " -".contains(c));
        self.shown.lines().filter(move |line| line.starts_with("# ") || is_head(line))
    }
}
