//! What can follow in a command line: subcommands, options, values, or the names of something in the cluster. Pure.
//!
//! Takes in clap's tree and the words so far; gives out what a shell may offer. Where names are wanted, whoever calls asks
//! the cluster for them.

use clap::{Arg, Command};

/// Names that only the cluster knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Disks,
    NodeDisks,
    Volumes,
    Nodes,
    Pvcs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellOffer {
    /// Each with what it is.
    Words(Vec<(String, String)>),
    Names(NameKind),
    Files,
    Nothing,
}

/// What can stand in the place of the last of the words; they begin after the name of the program.
pub fn offer(root: &Command, words: &[String]) -> ShellOffer {
    let Some((last, before)) = words.split_last() else { return subcommands(root, 0) };
    let mut command = root;
    let mut positions = 0;
    let mut open: Option<&Arg> = None;
    for word in before {
        if open.take().is_some() {
            continue;
        }
        if word.starts_with('-') && word.len() > 1 {
            open = option(command, word).filter(|arg| takes_next_word(arg));
        } else if let Some(below) = command.find_subcommand(word) {
            (command, positions) = (below, 0);
        } else {
            positions += 1;
        }
    }
    match open {
        Some(arg) => values(arg),
        None if last.starts_with('-') => options(command, before),
        None => subcommands(command, positions),
    }
}

/// The option that a word names.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_it = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
    };
    command.get_arguments().find(is_it)
}

fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn options(command: &Command, used: &[String]) -> ShellOffer {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), text(arg.get_help()))));
    ShellOffer::Words(named.filter(|(name, _)| !used.contains(name)).collect())
}

/// What comes next without a dash: a subcommand, or the argument in that place.
fn subcommands(command: &Command, positions: usize) -> ShellOffer {
    let below: Vec<_> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    if !below.is_empty() {
        return ShellOffer::Words(below.iter().map(|one| (one.get_name().to_owned(), text(one.get_about()))).collect());
    }
    command.get_positionals().nth(positions).map_or(ShellOffer::Nothing, values)
}

fn values(arg: &Arg) -> ShellOffer {
    let possible: Vec<_> =
        arg.get_possible_values().iter().map(|one| (one.get_name().to_owned(), String::new())).collect();
    if !possible.is_empty() {
        return ShellOffer::Words(possible);
    }
    match arg.get_id().as_str() {
        "disk" | "keep" => ShellOffer::Names(NameKind::Disks),
        "node_disk" => ShellOffer::Names(NameKind::NodeDisks),
        "volume" => ShellOffer::Names(NameKind::Volumes),
        "node" => ShellOffer::Names(NameKind::Nodes),
        "claim" => ShellOffer::Names(NameKind::Pvcs),
        "file" | "archive" | "kubeconfig" | "install_in" | "state_dir" | "sets" | "socket" => ShellOffer::Files,
        _ => ShellOffer::Nothing,
    }
}

/// The first line of a help.
fn text(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The value of an option among the words, as `--context NAME` or `--context=NAME`.
pub fn value_of(words: &[String], long: &str) -> Option<String> {
    let option = format!("--{long}");
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(&option)? {
        "" => words.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

/// The value of an option among the words that has a short name, too: `-n NAME`, `-nNAME`.
pub fn short_value_of(words: &[String], short: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(short)? {
        "" => words.get(at + 1).cloned(),
        rest => Some(rest.trim_start_matches('=').to_owned()),
    })
}

/// The names of a namespace without it, if the words name one already.
pub fn in_namespace(names: Vec<(String, String)>, namespace: Option<&str>) -> Vec<(String, String)> {
    let Some(namespace) = namespace else { return names };
    let of_it = |(name, about): (String, String)| {
        let name = name.strip_prefix(namespace)?.strip_prefix('/')?;
        Some((name.to_owned(), about))
    };
    names.into_iter().filter_map(of_it).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::{Cli, Plugin};

    fn offered(mut root: Command, line: &str) -> ShellOffer {
        root.build();
        offer(&root, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn plugin(line: &str) -> ShellOffer {
        offered(Plugin::command(), line)
    }

    fn words(offer: ShellOffer) -> Vec<String> {
        match offer {
            ShellOffer::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn subcommands_options_and_values_are_offered_where_they_can_stand() {
        let first = words(plugin(""));
        assert!(first.contains(&"why".to_owned()) && !first.iter().any(|word| word.starts_with('_')), "{first:?}");
        assert_eq!(words(plugin("why ")), ["pvc", "disk", "help"]);
        assert!(words(plugin("volumes --")).contains(&"--no-headers".to_owned()));
        assert!(!words(plugin("volumes --no-headers --")).contains(&"--no-headers".to_owned()), "once");
        assert_eq!(words(plugin("volumes -o ")), ["table", "wide", "json", "yaml", "name"]);
        assert_eq!(words(plugin("volumes --output ")), ["table", "wide", "json", "yaml", "name"]);
        assert!(words(offered(Cli::command(), "state set-aside ")).contains(&"journal".to_owned()));
    }

    #[test]
    fn names_that_only_the_cluster_knows_are_asked_for_by_their_kind() {
        assert_eq!(plugin("why disk "), ShellOffer::Names(NameKind::NodeDisks));
        assert_eq!(plugin("why pvc "), ShellOffer::Names(NameKind::Pvcs));
        assert_eq!(plugin("disk drain --dry-run gpt"), ShellOffer::Names(NameKind::Disks));
        assert_eq!(plugin("disk drain --context a "), ShellOffer::Names(NameKind::Disks));
        assert_eq!(plugin("volume erase "), ShellOffer::Names(NameKind::Volumes));
        assert_eq!(plugin("disks --node "), ShellOffer::Names(NameKind::Nodes));
        assert_eq!(plugin("disk drain --kubeconfig "), ShellOffer::Files);
        assert_eq!(plugin("disk drain one "), ShellOffer::Nothing);
    }

    #[test]
    fn the_cluster_is_the_one_that_the_words_name() {
        let words: Vec<String> = "disk drain --context=a --kubeconfig /x ".split(' ').map(str::to_owned).collect();
        assert_eq!(value_of(&words, "context").as_deref(), Some("a"));
        assert_eq!(value_of(&words, "kubeconfig").as_deref(), Some("/x"));
        assert_eq!(value_of(&words, "node"), None);
    }

    #[test]
    fn claims_of_a_namespace_that_is_named_are_offered_without_it() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        for line in ["why pvc -n night s", "why pvc -nnight s", "why pvc -n=night s"] {
            assert_eq!(short_value_of(&words(line), "-n").as_deref(), Some("night"), "{line}");
        }
        assert_eq!(short_value_of(&words("why pvc s"), "-n"), None);
        let names = || ["day/s", "night/s", "nightly/t"].map(|name| (name.to_owned(), String::new())).to_vec();
        assert_eq!(in_namespace(names(), Some("night")), [("s".to_owned(), String::new())]);
        assert_eq!(in_namespace(names(), None), names());
    }
}
