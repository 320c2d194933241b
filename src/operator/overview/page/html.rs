//! Text as HTML. What is not written in this program can only come in by [`Html::text`], which escapes it.

use std::fmt::{Display, Write as _};

use crate::show::one_line;

/// A piece of a page.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup: only what is written in this program.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Any text, also inside of the quotes of an attribute. Names of hardware can hold anything: characters that turn or break a
    /// line are replaced.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in one_line(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    /// The lines of a text in an attribute.
    pub fn lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> &mut Self {
        for (at, line) in lines.into_iter().enumerate() {
            if at > 0 {
                self.raw("&#10;");
            }
            self.text(line);
        }
        self
    }

    pub fn number(&mut self, number: impl Display + Copy) -> &mut Self {
        // Writing to a String does not fail.
        let _ = write!(self.0, "{number}");
        self
    }

    pub fn add(&mut self, other: Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_an_element_an_attribute_or_a_line() {
        let mut html = Html::default();
        html.raw("<b title=\"").lines(["a\"b", "c&\n\u{202e}d"]).raw("\">").text("<script>'x'</script>").raw("</b>");
        let expected = "<b title=\"a&quot;b&#10;c&amp;\u{fffd}\u{fffd}d\">&lt;script&gt;&#39;x&#39;&lt;/script&gt;</b>";
        assert_eq!(html.into_text(), expected);
    }
}
