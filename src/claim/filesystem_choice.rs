//! Which filesystems that an administrator mounted and named a set chooses.

use std::collections::BTreeSet;

/// Those that have each of these tags; without tags each named filesystem of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesystemChoice {
    pub tags: BTreeSet<String>,
}

impl FilesystemChoice {
    pub fn takes(&self, tags: &BTreeSet<String>) -> bool {
        self.tags.is_subset(tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_must_match_and_none_means_every_filesystem() {
        let tags = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let choice = |words: &[&str]| FilesystemChoice { tags: tags(words) };
        assert!(choice(&[]).takes(&tags(&[])) && choice(&[]).takes(&tags(&["a"])));
        assert!(choice(&["a"]).takes(&tags(&["a", "b"])) && choice(&["a", "b"]).takes(&tags(&["b", "a"])));
        assert!(!choice(&["a", "c"]).takes(&tags(&["a", "b"])) && !choice(&["A"]).takes(&tags(&["a"])));
    }
}
