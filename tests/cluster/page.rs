//! The pages of docs/: their commands are run as a reader types them.

use crate::cluster::{attempt, run};

/// A section of a page.
pub struct Section(String);

/// The section of docs/PAGE with this title.
pub fn section(page: &str, title: &str) -> Section {
    let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let found = text.split("\n## ").find(|part| part.starts_with(&format!("{title}\n")));
    Section(found.unwrap_or_else(|| panic!("{page} has no section {title}")).to_owned())
}

impl Section {
    /// All that is code: each line of a block, and what stands in a sentence or a comment, in one line.
    fn commands(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (number, part) in self.0.split("```").enumerate() {
            if number % 2 == 0 {
                all.extend(in_a_sentence(part));
                continue;
            }
            for line in part.lines().skip(1) {
                match line.strip_prefix('#') {
                    Some(comment) => all.extend(in_a_sentence(comment)),
                    None => all.push(line.to_owned()),
                }
            }
        }
        all
    }

    /// The first command with these words, with what a reader puts in for the words in capitals.
    pub fn command(&self, phrase: &str, values: &[(&str, &str)]) -> String {
        let commands = self.commands();
        let found = commands.iter().find(|command| command.contains(phrase));
        fill(found.unwrap_or_else(|| panic!("no command with {phrase}: {commands:?}")), values)
    }

    /// The command that is below these words: all lines of its block.
    pub fn below(&self, phrase: &str) -> String {
        let (_, below) = self.0.split_once(phrase).unwrap_or_else(|| panic!("the page does not say {phrase}"));
        let block = below.split("```").nth(1).expect("a block");
        block.lines().skip(1).collect::<Vec<_>>().join("\n")
    }

    /// How many sentences of it are bold.
    pub fn bold(&self) -> usize {
        self.0.lines().filter(|line| line.starts_with("**")).count()
    }

    /// All lines of the block that has these words.
    pub fn block(&self, phrase: &str, values: &[(&str, &str)]) -> Vec<String> {
        let block = self.0.split("```").skip(1).step_by(2).find(|block| block.contains(phrase));
        block.expect("a block with that command").lines().skip(1).map(|line| fill(line, values)).collect()
    }
}

fn in_a_sentence(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A command with what a reader puts in for some words.
pub fn fill(command: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(command.to_owned(), |line, (word, value)| line.replace(word, value))
}

/// Runs what a person typed.
pub async fn typed(command: &str) -> String {
    run("sh", &["-c", command]).await
}

/// The lines that find the agent's pod of a node, `$AGENT`.
pub fn agent_of(node: &str) -> String {
    let lines = where_commands_run().block("AGENT=", &[("NODE=worker-0", &format!("NODE={node}"))]);
    lines.iter().filter(|line| !line.contains("exec")).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn where_commands_run() -> Section {
    section("troubleshooting.md", "Where a command runs")
}

/// Runs a verb in the agent's pod of a node, as the page says how.
pub async fn in_the_agents_pod(node: &str, verb: &str) -> String {
    try_in_the_agents_pod(node, verb).await.unwrap_or_else(|output| panic!("{output}"))
}

pub async fn try_in_the_agents_pod(node: &str, verb: &str) -> Result<String, String> {
    let exec = where_commands_run().command("exec $AGENT -- localpool devices", &[]);
    let (before, _) = exec.split_once("localpool devices").expect("a verb in its place");
    attempt("sh", &["-c", &format!("{}\n{before}{verb}", agent_of(node))]).await
}

/// Runs a verb in the controller's pod.
pub async fn in_the_controllers_pod(verb: &str) -> String {
    let exec = where_commands_run().command("exec deploy/localpool-controller", &[]);
    let (before, _) = exec.split_once("localpool volume").expect("a verb in its place");
    typed(&format!("{before}{verb}")).await
}
