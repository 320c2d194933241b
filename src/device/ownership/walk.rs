//! A way through devices that lead to each other, each of them once.

use std::collections::HashSet;

/// Names to visit, each once, however the devices refer to each other.
pub(super) struct Walk<'n> {
    seen: HashSet<&'n str>,
    ahead: Vec<&'n str>,
}

impl<'n> Walk<'n> {
    pub(super) fn from(names: impl IntoIterator<Item = &'n String>) -> Self {
        let mut walk = Self { seen: HashSet::new(), ahead: Vec::new() };
        walk.add(names);
        walk
    }

    pub(super) fn add(&mut self, names: impl IntoIterator<Item = &'n String>) {
        self.visit(names.into_iter().map(String::as_str));
    }

    pub(super) fn visit(&mut self, names: impl IntoIterator<Item = &'n str>) {
        let Self { seen, ahead } = self;
        ahead.extend(names.into_iter().filter(|name| seen.insert(name)));
    }

    pub(super) fn next(&mut self) -> Option<&'n str> {
        self.ahead.pop()
    }
}
