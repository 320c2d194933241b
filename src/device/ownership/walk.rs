//! A way through devices that lead to each other, each of them once.

use std::collections::HashSet;

use crate::host::KernelName;

/// Names to visit, each once, however the devices refer to each other.
pub(super) struct Walk<'n> {
    visited: HashSet<&'n KernelName>,
    ahead: Vec<&'n KernelName>,
}

impl<'n> Walk<'n> {
    pub(super) fn from(names: impl IntoIterator<Item = &'n KernelName>) -> Self {
        let mut walk = Self { visited: HashSet::new(), ahead: Vec::new() };
        walk.add(names);
        walk
    }

    pub(super) fn add(&mut self, names: impl IntoIterator<Item = &'n KernelName>) {
        self.visit(names);
    }

    pub(super) fn visit(&mut self, names: impl IntoIterator<Item = &'n KernelName>) {
        let Self { visited, ahead } = self;
        ahead.extend(names.into_iter().filter(|name| visited.insert(name)));
    }

    pub(super) fn next(&mut self) -> Option<&'n KernelName> {
        self.ahead.pop()
    }
}
