//! The tables that kubectl prints.

/// What is below this head, in the first line with this word.
pub fn cell(table: &str, word: &str, head: &str) -> String {
    let (first, rows) = table.split_once('\n').unwrap_or((table, ""));
    let row = rows.lines().find(|row| row.contains(word)).unwrap_or_else(|| panic!("no row with {word}:\n{table}"));
    let begins = |from: usize| {
        let around = [first[..from].chars().next_back(), first[from + head.len()..].chars().next()];
        around.into_iter().flatten().all(char::is_whitespace)
    };
    let mut places = first.match_indices(head).map(|(from, _)| from);
    let from = places.find(|from| begins(*from)).unwrap_or_else(|| panic!("no column {head}:\n{table}"));
    let next = first[from + head.len()..].find(|c: char| !c.is_whitespace());
    let width = next.map_or(usize::MAX, |gap| head.len() + gap);
    // kubectl counts characters, and heads have only those of ASCII.
    row.chars().skip(from).take(width).collect::<String>().trim().to_owned()
}
