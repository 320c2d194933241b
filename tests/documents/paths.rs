//! A path of this repository that a document names is there. Parts before it may be left out: `csi/node.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The folders that have files of ours.
const TOPS: [&str; 12] = [
    "benches", "charts", "cluster", "docs", "examples", "proto", "sanity", "scripts", "src", "testing", "tests",
    "xtask",
];

/// Names that stand for any file of a kind.
const PATTERNS: [&str; 2] = ["x/tests.rs", "examples/set-NAME.yaml"];

/// Each file and folder below `folder`, from the root.
fn found(root: &Path, folder: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        if path.is_dir() {
            found(root, &path, all);
        }
    }
}

/// Each path with all that may stand for it: its last parts.
fn known() -> BTreeSet<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec!["build.rs".to_owned()];
    for top in TOPS {
        all.push(top.to_owned());
        found(&root, &root.join(top), &mut all);
    }
    let tails = |path: &String| {
        let parts: Vec<&str> = path.split('/').collect();
        (0..parts.len()).map(|from| parts[from..].join("/")).collect::<Vec<_>>()
    };
    all.iter().flat_map(tails).collect()
}

/// The paths that a document names as code. In blocks they are a person's own, and the context of a decision is about
/// the tree of its time.
fn named(document: &str) -> Vec<String> {
    let (mut prose, mut is_block, mut is_context) = (String::new(), false, false);
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            if line.starts_with("## ") {
                is_context = line == "## Context";
            }
            if !is_context {
                prose.extend([line, "\n"]);
            }
        }
    }
    let code = Regex::new("`([^`]+)`").unwrap();
    let path = Regex::new(r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$").unwrap();
    let is_ours = |span: &str| {
        let below = span.split_once('/').is_some_and(|(top, _)| TOPS.contains(&top));
        path.is_match(span) && (below || span.ends_with(".rs") || span.ends_with(".go"))
    };
    let spans = code.captures_iter(&prose).map(|span| span[1].to_owned()).filter(|span| is_ours(span));
    spans.filter(|span| !PATTERNS.contains(&span.as_str())).collect()
}

#[test]
fn each_path_that_a_document_names_is_there() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let known = known();
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    found(&root, &root.join("docs"), &mut pages);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages.iter().filter(|page| page.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for path in named(&text) {
            count += 1;
            if !known.contains(path.trim_end_matches('/')) {
                wrong.push(format!("{page}: there is no `{path}`"));
            }
        }
    }
    assert!(count > 300, "only {count} paths were found");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn paths_are_found_in_sentences_and_tables_and_not_in_blocks_or_the_context_of_a_decision() {
    let text = "`operator/leader_stores.rs` and `src/host`, `agent/x.rs` beside `x.lock` and `a b.rs`\n```text\n`no.rs`\n\
                ```\n## Context\n`old/y.rs`\n## Decision\n| `z_test.go` | `tests/pool/` |\n";
    assert_eq!(named(text), ["operator/leader_stores.rs", "src/host", "agent/x.rs", "z_test.go", "tests/pool/"]);
    let known = known();
    assert!(known.contains("operator/leader/stores.rs") && known.contains("leader/stores.rs"));
    assert!(!known.contains("operator/leader_stores.rs"), "the file has another folder");
}
