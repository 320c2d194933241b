//! A page that says which test shows a statement names one that exists, in the file that has it.

use regex::Regex;

/// Pages with such tables, the first column of these, and how many tests each page names at least: a changed format must
/// not look like none.
const PAGES: [(&str, &str, usize); 4] = [
    ("docs/node-disk-setup-proposal.md", "the proposal", 50),
    ("docs/pv-monitoring.md", "the proposal", 30),
    ("docs/disk-uuid.md", "the proposal", 25),
    ("docs/safety.md", "promise", 20),
];

#[test]
fn each_test_that_a_page_names_is_in_its_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    // `one`, `two` and `three` in `file.rs`
    let named = Regex::new(r"((?:`[a-z0-9_]+`(?:, | and )?)+) in `([a-z_/]+\.rs)`").unwrap();
    let one = Regex::new("`([a-z0-9_]+)`").unwrap();
    for (page, first, least) in PAGES {
        let (text, mut count) = (read(page), 0);
        for group in named.captures_iter(&text) {
            let file = read(&group[2]);
            for test in one.captures_iter(&group[1]) {
                assert!(file.contains(&format!("fn {}()", &test[1])), "{page}: {} has no test {}", &group[2], &test[1]);
                count += 1;
            }
        }
        assert!(count >= least, "{page} names only {count} tests");
        let head = format!("| {first} |");
        let cells = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with(&head));
        let without = cells
            .filter(|line| !line.contains(".rs`") && !line.contains("not applicable") && !line.contains("not done"));
        assert_eq!(without.collect::<Vec<_>>(), [""; 0], "{page}: no test, and no reason for that");
    }
}
