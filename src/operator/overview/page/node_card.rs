//! A node with the tiles of its devices. Pure.

use super::filter::PageFilter;
use super::html::Html;
use super::tile::{Tile, class, rank, worse};
use crate::api::crd::DevicePool;
use crate::api::quantity;
use crate::operator::overview::disks::UNKNOWN;
use crate::operator::overview::node_summary::NodeSummary;
use crate::operator::overview::problems::counted;
use crate::show::Tone;

/// A node of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCard {
    pub summary: NodeSummary,
    pub tone: Tone,
    /// Those of the pool, by path.
    pub disks: Vec<Tile>,
    /// Others that sets speak of.
    pub others: Vec<Tile>,
    pub others_more: usize,
}

impl NodeCard {
    pub fn of(summary: NodeSummary, pool: Option<&DevicePool>) -> Self {
        let mut all: Vec<_> = pool.iter().flat_map(|pool| &pool.status).flat_map(|status| &status.disks).collect();
        all.sort_by(|a, b| (&a.path, &a.id).cmp(&(&b.path, &b.id)));
        let disks: Vec<Tile> =
            pool.into_iter().flat_map(|pool| all.iter().map(move |disk| Tile::of_disk(pool, disk))).collect();
        let (others, others_more) = pool.map(Tile::of_others).unwrap_or_default();
        let worst = disks.iter().map(|tile| tile.tone).fold(Tone::Good, worse);
        let tone = worse(worst, worse(node_tone(&summary.state), agent_tone(&summary.agent)));
        Self { summary, tone, disks, others, others_more }
    }

    /// The worst first, and of these the one with more of it.
    pub fn order(&self) -> impl Ord + use<> {
        let bad = self.disks.iter().filter(|tile| tile.tone == Tone::Bad).count();
        (std::cmp::Reverse((rank(self.tone), bad)), self.summary.node.clone())
    }

    /// What of it a person wants to see; `None`: nothing.
    pub fn filtered(&self, filter: &PageFilter) -> Option<Self> {
        if filter.is_everything() {
            return Some(self.clone());
        }
        let NodeSummary { node, state, agent, .. } = &self.summary;
        let own = [node.as_str(), state.as_str(), agent.as_str()];
        let wanted = |tile: &&Tile| filter.shows(tile.tone, &[&own[..], &tile.texts()].concat());
        let disks: Vec<Tile> = self.disks.iter().filter(wanted).cloned().collect();
        let others: Vec<Tile> = self.others.iter().filter(wanted).cloned().collect();
        let is_shown = !disks.is_empty() || !others.is_empty() || filter.shows(self.own_tone(), &own);
        is_shown.then(|| Self { disks, others, others_more: 0, ..self.clone() })
    }

    /// What is wrong with the node itself, as `n AgentSilent`.
    pub fn wrong(&self) -> Option<String> {
        let NodeSummary { node, state, agent, .. } = &self.summary;
        let word = if agent_tone(agent) == Tone::Bad { agent } else { state };
        (self.own_tone() == Tone::Bad).then(|| format!("{node} {word}"))
    }

    /// Without its disks.
    fn own_tone(&self) -> Tone {
        worse(node_tone(&self.summary.state), agent_tone(&self.summary.agent))
    }

    pub fn write(&self, html: &mut Html) {
        let NodeSummary { node, state, agent, since, disks, volumes, size, free, .. } = &self.summary;
        html.raw("<article class=\"n ").raw(class(self.tone)).raw("\" data-node=\"").text(node).raw("\"><h3>");
        html.text(node).raw("</h3>");
        if node_tone(state) != Tone::Good {
            html.raw("<b class=\"s ").raw(class(node_tone(state))).raw("\">Node ").text(state).raw("</b>");
        }
        if agent_tone(agent) != Tone::Good {
            html.raw("<b class=\"s ").raw(class(agent_tone(agent))).raw("\">").text(&agent_word(agent));
            if let Some(since) = since {
                html.raw(" since <time>").text(since).raw("</time>");
            }
            html.raw("</b>");
        }
        html.raw("<p>").text(&counted(*disks, "disk")).raw(", ").text(&counted(*volumes, "volume"));
        if *disks > 0 {
            html.raw(", ").text(&quantity::short(*free)).raw(" free of ").text(&quantity::short(*size));
        }
        html.raw("</p><div class=ts>");
        self.disks.iter().chain(&self.others).for_each(|tile| tile.write(html));
        if self.others_more > 0 {
            html.raw("<small>and ").number(self.others_more).raw(" more that no set takes</small>");
        }
        html.raw("</div></article>");
    }
}

fn node_tone(state: &str) -> Tone {
    match state {
        "Ready" => Tone::Good,
        "Cordoned" => Tone::Doubtful,
        _ => Tone::Bad,
    }
}

/// A node without an agent is none of localpool's.
fn agent_tone(agent: &str) -> Tone {
    match agent {
        "Ready" | "None" => Tone::Good,
        "Cordoned" | UNKNOWN => Tone::Doubtful,
        _ => Tone::Bad,
    }
}

fn agent_word(agent: &str) -> String {
    match agent {
        "Cordoned" => "Takes no new volumes: its DevicePool is cordoned".to_owned(),
        UNKNOWN => "Nobody has said yet whether its agent answers".to_owned(),
        reason => format!("Its agent does not answer: {reason}"),
    }
}
