//! The status page of the controller: what is wrong with which disk and volume, for a person in front of a browser.
//!
//! Takes in what the controller has in memory, and what a person wants to see of it; gives out HTML. It is pure but for the look
//! at the memory, asks nobody, and changes nothing. Its rows are those of `kubectl localpool`. What has the pods is told of a look.

mod filter;
mod headline;
mod html;
mod layout;
mod node_card;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
mod set_row;
#[cfg(test)]
mod tests;
mod tile;
mod view;
mod volume_table;

use std::sync::Arc;

use uuid::Uuid;

pub use self::filter::PageFilter;
use self::view::PageView;
use super::node_summary::ClusterCase;
use super::pod_watch::PodWatch;
use crate::operator::stores::Stores;

/// The files that the page loads.
pub const STYLE: &str = include_str!("page.css");
pub const SCRIPT: &str = include_str!("page.js");
pub const ICON: &str = include_str!("icon.svg");

/// The page of one replica of the controller.
#[derive(Clone)]
pub struct StatusPage {
    stores: Stores,
    pods: PodWatch,
    replica: Arc<str>,
    /// Tells this process from others, whose counts begin anew.
    process: Uuid,
}

impl StatusPage {
    pub fn new(stores: Stores, replica: &str) -> Self {
        Self { stores, pods: PodWatch::default(), replica: replica.into(), process: Uuid::new_v4() }
    }

    /// Has to be kept, and to hear of each look.
    pub fn pods(&self) -> &PodWatch {
        &self.pods
    }

    /// Another text after each change of what is shown. It costs nothing.
    pub fn tag(&self) -> String {
        format!("\"{}.{}.{}\"", self.process.simple(), self.stores.tag(), self.pods.tag())
    }

    /// The whole page. With the tag the browser begins to ask what has changed since.
    pub fn page(&self, filter: &PageFilter) -> String {
        let tag = self.tag();
        layout::page(&self.view(), filter, &tag)
    }

    /// What of it changes.
    pub fn content(&self, filter: &PageFilter) -> String {
        layout::content(&self.view(), filter)
    }

    fn view(&self) -> PageView {
        let Stores { volumes, pools, nodes, sets, local_volumes, .. } = &self.stores;
        let case = ClusterCase {
            pools: pools.all(),
            volumes: volumes.all(),
            nodes: nodes.all(),
            sets: sets.all(),
            local_volumes: local_volumes.all(),
            ..ClusterCase::default()
        };
        let view = PageView::of(&case, self.pods.by_claim().as_ref(), &self.replica, self.stores.are_synced());
        PageView { is_old: self.stores.are_old() || self.pods.is_old(), ..view }
    }
}
