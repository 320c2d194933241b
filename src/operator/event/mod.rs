//! Events: their content, those that an agent has yet to write (`queue`), and writing them (`writer`).

pub(in crate::operator) mod queue;
pub(in crate::operator) mod writer;

use kube::runtime::events::{Event, EventType};

/// The most bytes of a condition's message and of an Event's note.
const ROOM: usize = 1000;

/// What an Event says, whatever object it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    pub type_: EventType,
    /// One word.
    pub reason: String,
    pub note: String,
}

impl EventNote {
    pub fn event(&self, action: &str) -> Event {
        Event {
            type_: self.type_,
            reason: self.reason.clone(),
            note: Some(clip(self.note.clone())),
            action: action.to_owned(),
            secondary: None,
        }
    }
}

/// As much of a text as fits.
pub fn clip(mut text: String) -> String {
    if text.len() > ROOM {
        let most = ROOM - "…".len();
        let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= most).last();
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(clip("short".to_owned()), "short");
        let cut = clip("ä".repeat(ROOM));
        assert!(cut.len() <= ROOM && cut.ends_with("ä…"));
    }
}
