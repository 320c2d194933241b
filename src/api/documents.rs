//! A file of YAML documents, split before any is parsed, so that a mistake in one does not affect the others.
//!
//! Takes in the text, gives out each document as a JSON value or the problem with it, with its position.

use serde_json::Value;
use serde_saphyr::MessageFormatter as _;

use super::strict::Problem;

/// One document that is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Counted from 1; empty documents count too.
    pub number: usize,
    /// Line of the file where it begins, counted from 1.
    pub line: usize,
    pub value: Result<Value, Problem>,
}

/// The documents of a file, without the empty ones.
pub fn split(text: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut number = 0;
    // A byte order mark is no content.
    let mut part = DocumentText { line: 1, text: String::new() };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut begun = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        // At the start of a line nothing else can look like this, not even in block texts.
        let marker = ["---", "..."].into_iter().find(|marker| is_marker(line, marker));
        if let Some(marker) = marker {
            if begun || !part.is_empty() {
                number += 1;
                documents.extend(part.document(number));
            }
            begun = marker == "---";
            let rest = if begun { format!("   {}", &line[3..]) } else { String::new() };
            part = DocumentText { line: index + 1, text: rest };
        } else {
            part.text.push_str(line);
        }
    }
    if begun || !part.is_empty() {
        documents.extend(part.document(number + 1));
    }
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// The lines of one document.
struct DocumentText {
    line: usize,
    text: String,
}

impl DocumentText {
    /// Whether there are only comments, directives and blank lines.
    fn is_empty(&self) -> bool {
        self.text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with(['#', '%']))
    }

    fn document(&self, number: usize) -> Option<Document> {
        if self.is_empty() {
            return None;
        }
        let first = self.text.lines().take_while(|line| line.trim().is_empty()).count();
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let value = serde_saphyr::from_str_with_options(&self.text, options).map_err(|error| self.problem(&error));
        Some(Document { number, line: self.line + first, value })
    }

    fn problem(&self, error: &serde_saphyr::Error) -> Problem {
        let line = error.location().and_then(|place| usize::try_from(place.line()).ok()).filter(|line| *line > 0);
        let path = line.map_or_else(String::new, |line| format!("line {}", self.line + line - 1));
        // The parser's own position is left out: it counts from the start of the document and would mislead.
        let what = serde_saphyr::UserMessageFormatter.format_message(error);
        Problem { path, what: format!("not valid YAML: {what}") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(usize, usize, Option<Value>)> {
        split(text).into_iter().map(|document| (document.number, document.line, document.value.ok())).collect()
    }

    #[test]
    fn documents_are_told_apart_with_their_places() {
        let text = "# head\n---\na: 1\n---\n# nothing\n---\n\nb: 2\n...\n---\nc: |\n  x\n  --- y\n";
        let expected =
            [(1, 3, Some(json!({"a": 1}))), (3, 8, Some(json!({"b": 2}))), (4, 11, Some(json!({"c": "x\n--- y\n"})))];
        assert_eq!(read(text), expected);
    }

    #[test]
    fn markers_with_comments_content_and_other_line_ends_count() {
        assert_eq!(read("--- # first\r\na: 1\r\n---\r\nb: 2\r\n").len(), 2);
        assert_eq!(read("--- {a: 1}\n--- [2]"), [(1, 1, Some(json!({"a": 1}))), (2, 2, Some(json!([2])))]);
        assert_eq!(read("%YAML 1.2\n---\na: 1\n"), [(1, 3, Some(json!({"a": 1})))]);
        assert_eq!(read("a: 1\n----\n").len(), 1);
        assert_eq!(read("\u{feff}a: 1\n"), [(1, 1, Some(json!({"a": 1})))]);
        assert_eq!(read("\n# only\n---\n---\n"), []);
    }

    #[test]
    fn a_document_with_a_slip_loses_no_other_and_names_its_line() {
        let documents = split("a: 1\n---\nb: [1\nc: 2\n---\nd: 4\n");
        assert_eq!(documents[0].value, Ok(json!({"a": 1})));
        let problem = documents[1].value.clone().unwrap_err();
        assert_eq!(problem.path, "line 4", "{problem}");
        assert!(problem.what.starts_with("not valid YAML: "), "{problem}");
        assert_eq!(documents[2].value, Ok(json!({"d": 4})));
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let documents = split("---\na: 1\nb: 1\na: 2\n");
        let problem = documents[0].value.clone().unwrap_err();
        assert_eq!(problem.path, "line 4");
        assert!(problem.what.contains("duplicate"), "{problem}");
    }

    #[test]
    fn hostile_documents_end_in_an_error() {
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
        for text in [bomb.to_owned(), "[".repeat(100_000), "a: \u{0}".to_owned(), "\t- x: *nowhere".to_owned()] {
            assert!(split(&text).iter().all(|document| document.value.is_err()), "{:.20}", text);
        }
    }
}
