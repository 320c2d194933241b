//! Which volumes may be on the filesystem of a disk: a document in the state directory that is only added to, so that a
//! change of one of thousands of volumes costs a line. Pure.
//!
//! The first line says what it is. Each one behind it is a change: `+ID`, the volume may be there; `=ID`, a scan has
//! found it there; `-ID`, it is not there. A last line without an end was never promised to anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::device::{DiskId, VolumeId};

const HEAD: &str = "localpool volumes 1";
/// The list is rewritten when it has more than twice as many lines as volumes, plus this number.
const SPARE: usize = 1000;

/// The name of the document of a disk.
pub fn document(disk: &DiskId) -> String {
    format!("volumes-{disk}.list")
}

/// What is known of a volume on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It may be there.
    Begun,
    /// A scan has found it there.
    Seen,
}

/// Whether listed volumes that a scan has not found may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// One was begun since the scan began, and may have ended, too: the next scan tells.
    May,
    AreNot,
}

/// All that may be on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedVolumes {
    volumes: BTreeMap<VolumeId, Sighting>,
    /// Of the document.
    lines: usize,
}

/// What becomes of a volume's line; `None`: it is not on the disk.
pub type ListChange = (VolumeId, Option<Sighting>);

/// Why a document is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("its first line is not {HEAD:?}")]
    Head,
    #[error("line {0} is damaged")]
    Line(usize),
}

impl ListedVolumes {
    pub fn new(volumes: BTreeMap<VolumeId, Sighting>) -> Self {
        let lines = volumes.len();
        Self { volumes, lines }
    }

    /// And whether its end is cut off: what is added would be behind a part of a line.
    pub fn parse(text: &str) -> Result<(Self, bool), ListError> {
        let (whole, cut) = text.rsplit_once('\n').ok_or(ListError::Head)?;
        let mut lines = whole.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(ListError::Head);
        }
        let mut list = Self::default();
        for (number, line) in (2..).zip(lines) {
            list.take_in(change(line).ok_or(ListError::Line(number))?);
        }
        Ok((list, !cut.is_empty()))
    }

    /// The whole document.
    pub fn text(&self) -> String {
        let changes = self.volumes.iter().map(|(id, sighting)| (*id, Some(*sighting)));
        format!("{HEAD}\n{}", lines(changes))
    }

    pub fn take_in(&mut self, (id, sighting): ListChange) {
        self.lines += 1;
        match sighting {
            Some(sighting) => drop(self.volumes.insert(id, sighting)),
            None => drop(self.volumes.remove(&id)),
        }
    }

    /// Those of the changes that are none are left out.
    pub fn news(&self, changes: impl IntoIterator<Item = ListChange>) -> Vec<ListChange> {
        let is_news = |(id, sighting): &ListChange| self.volumes.get(id).copied() != *sighting;
        changes.into_iter().filter(is_news).collect()
    }

    /// What changes as a scan has found these volumes on the disk, and no others. Those that were `begun` since may be
    /// there all the same; with [`Others::May`] all that are listed. Costs one look at each.
    pub fn difference(
        &self,
        found: &BTreeSet<VolumeId>,
        begun: &BTreeSet<VolumeId>,
        others: Others,
    ) -> Vec<ListChange> {
        let mut changes = Vec::new();
        let mut found_ids = found.iter().copied().peekable();
        for (id, sighting) in &self.volumes {
            while let Some(new) = found_ids.next_if(|found| found < id) {
                changes.push((new, Some(Sighting::Seen)));
            }
            let wanted = match found_ids.next_if_eq(id) {
                Some(_) => Some(Sighting::Seen),
                None if others == Others::May || begun.contains(id) => Some(Sighting::Begun),
                None => None,
            };
            changes.extend((wanted != Some(*sighting)).then_some((*id, wanted)));
        }
        changes.extend(found_ids.map(|id| (id, Some(Sighting::Seen))));
        let unlisted = begun.iter().filter(|id| !self.contains(**id) && !found.contains(id));
        changes.extend(unlisted.map(|id| (*id, Some(Sighting::Begun))));
        changes
    }

    pub fn contains(&self, id: VolumeId) -> bool {
        self.volumes.contains_key(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    pub fn all(&self) -> BTreeSet<VolumeId> {
        self.volumes.keys().copied().collect()
    }

    /// Those that no scan has found there.
    pub fn unseen(&self) -> BTreeSet<VolumeId> {
        let unseen = self.volumes.iter().filter(|(_, sighting)| **sighting == Sighting::Begun);
        unseen.map(|(id, _)| *id).collect()
    }

    /// Its document was written whole: it has a line for each volume, and no others.
    pub fn was_written_whole(&mut self) {
        self.lines = self.volumes.len();
    }

    /// Its document is mostly of what is over.
    pub fn is_long(&self) -> bool {
        self.lines > 2 * self.volumes.len() + SPARE
    }
}

/// Lines to be added to a document.
pub fn lines(changes: impl IntoIterator<Item = ListChange>) -> String {
    let mut text = String::new();
    for (id, sighting) in changes {
        let sign = match sighting {
            Some(Sighting::Begun) => '+',
            Some(Sighting::Seen) => '=',
            None => '-',
        };
        writeln!(text, "{sign}{id}").expect("a string takes all words");
    }
    text
}

fn change(line: &str) -> Option<ListChange> {
    let sighting = match line.chars().next()? {
        '+' => Some(Sighting::Begun),
        '=' => Some(Sighting::Seen),
        '-' => None,
        _ => return None,
    };
    Some((line.get(1..)?.parse().ok()?, sighting))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: VolumeId = VolumeId::from_u128(1);
    const B: VolumeId = VolumeId::from_u128(2);
    const C: VolumeId = VolumeId::from_u128(3);

    fn parsed(text: &str) -> ListedVolumes {
        ListedVolumes::parse(text).expect("read").0
    }

    #[test]
    fn a_list_of_this_format_is_read_and_written_byte_for_byte() {
        let text = include_str!("volume_list/format-1.list");
        let (list, is_cut) = ListedVolumes::parse(text).expect("read");
        assert_eq!((list.all(), list.unseen(), is_cut), (BTreeSet::from([A, C]), BTreeSet::from([A]), false));
        let changes = [
            (A, Some(Sighting::Begun)),
            (B, Some(Sighting::Begun)),
            (B, Some(Sighting::Seen)),
            (C, Some(Sighting::Seen)),
            (B, None),
        ];
        assert_eq!(format!("{HEAD}\n{}", lines(changes)), text);
        assert_eq!(parsed(&list.text()).volumes, list.volumes);
    }

    #[test]
    fn what_was_cut_off_anywhere_says_nothing_that_was_not_promised_and_all_that_was() {
        let changes = [(A, Some(Sighting::Begun)), (A, Some(Sighting::Seen)), (B, Some(Sighting::Begun)), (A, None)];
        let text = format!("{HEAD}\n{}", lines(changes));
        for len in HEAD.len() + 1..=text.len() {
            let (list, is_cut) = ListedVolumes::parse(&text[..len]).expect("read");
            let whole = text[..len].matches('\n').count() - 1;
            let mut wanted = ListedVolumes::default();
            changes[..whole].iter().for_each(|change| wanted.take_in(*change));
            assert_eq!(list, wanted, "{len}");
            assert_eq!(is_cut, !text[..len].ends_with('\n'), "{len}");
        }
        for len in 0..=HEAD.len() {
            assert_eq!(ListedVolumes::parse(&text[..len]), Err(ListError::Head), "{len}");
        }
    }

    #[test]
    fn a_text_that_is_no_list_is_refused_and_not_taken_as_empty() {
        let of = |line: &str| ListedVolumes::parse(&format!("{HEAD}\n{}{line}\n+{A}\n", lines([(B, None)])));
        for line in ["", "+", "?00000000-0000-0000-0000-000000000001", "+x", "é"] {
            assert_eq!(of(line), Err(ListError::Line(3)), "{line:?}");
        }
        assert_eq!(ListedVolumes::parse("localpool volumes 2\n"), Err(ListError::Head));
    }

    #[test]
    fn only_what_changes_is_written_and_a_list_that_is_mostly_of_the_past_is_written_whole() {
        let mut list = ListedVolumes::new(BTreeMap::from([(A, Sighting::Seen), (B, Sighting::Begun)]));
        assert_eq!(list.news([(A, Some(Sighting::Seen)), (C, None)]), []);
        let (none, all) = (BTreeSet::new(), BTreeSet::from([A, B]));
        let news = list.difference(&all, &BTreeSet::from([B, C]), Others::AreNot);
        assert_eq!(news, [(B, Some(Sighting::Seen)), (C, Some(Sighting::Begun))]);
        news.into_iter().for_each(|change| list.take_in(change));
        assert_eq!(list.difference(&all, &BTreeSet::from([C]), Others::AreNot), []);
        assert_eq!(list.difference(&all, &none, Others::May), []);
        assert_eq!(list.difference(&none, &none, Others::AreNot), [(A, None), (B, None), (C, None)]);
        assert_eq!(
            list.difference(&none, &BTreeSet::from([B]), Others::AreNot),
            [(A, None), (B, Some(Sighting::Begun)), (C, None)]
        );
        assert_eq!(
            list.difference(&none, &none, Others::May),
            [(A, Some(Sighting::Begun)), (B, Some(Sighting::Begun))]
        );
        let empty = ListedVolumes::default();
        assert_eq!(empty.difference(&all, &none, Others::May), [(A, Some(Sighting::Seen)), (B, Some(Sighting::Seen))]);
        assert!(!list.is_long());
        (0..SPARE).for_each(|_| [Some(Sighting::Seen), None].into_iter().for_each(|is| list.take_in((C, is))));
        assert!(list.is_long() && !parsed(&list.text()).is_long());
    }
}
