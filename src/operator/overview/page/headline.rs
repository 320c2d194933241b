//! The first lines: how much is wrong, what, and what to do. Pure.

use super::html::Html;
use super::node_card::NodeCard;
use super::tile::{Tile, class};
use super::view::PageView;
use super::volume_table::PageVolume;
use crate::operator::overview::problems::{ClusterProblem, counted};
use crate::show::Tone;

/// So many names follow the numbers.
const NAMED: usize = 6;
/// So many problems are listed; the tiles have all of them.
const LISTED: usize = 25;

/// How much of it all is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// `2 of 48 disks, 1 of 60 volumes and 1 of 6 nodes are wrong`.
    pub text: String,
    pub tone: Tone,
    /// `n3/sdb DiskFailing`.
    pub disks: Vec<String>,
    pub volumes: Vec<String>,
    /// `n3 AgentSilent`.
    pub nodes: Vec<String>,
}

impl Headline {
    pub fn of(view: &PageView) -> Self {
        let tiles = || view.nodes.iter().flat_map(|card| card.disks.iter().map(move |tile| (card, tile)));
        let (all_disks, all_volumes) = (tiles().count(), view.volumes.len());
        let is_bad = |tile: &Tile| tile.tone == Tone::Bad;
        let disks: Vec<String> = tiles()
            .filter(|(_, tile)| is_bad(tile))
            .map(|(card, tile)| format!("{}/{} {}", card.summary.node, tile.label, tile.word))
            .collect();
        let bad_volumes = view.volumes.iter().filter(|row| row.tone == Tone::Bad);
        let volumes: Vec<String> = bad_volumes.map(|row: &PageVolume| format!("{} {}", row.name(), row.word)).collect();
        let part =
            |wrong: usize, all: usize, what: &str| (wrong > 0).then(|| format!("{wrong} of {}", counted(all, what)));
        let nodes: Vec<String> = view.nodes.iter().filter_map(NodeCard::wrong).collect();
        let parts = [
            part(disks.len(), all_disks, "disk"),
            part(volumes.len(), all_volumes, "volume"),
            part(nodes.len(), view.nodes.len(), "node"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let is_one = disks.len() + volumes.len() + nodes.len() == 1;
        let (tone, text) = match (parts.is_empty(), view.problems.is_empty(), view.is_synced) {
            (_, _, false) => (Tone::Doubtful, "Not everything is known yet".to_owned()),
            (false, ..) => (Tone::Bad, format!("{} {} wrong", enumerated(&parts), if is_one { "is" } else { "are" })),
            (true, ..) if view.is_old => (Tone::Doubtful, "The API server does not answer".to_owned()),
            (true, false, _) => (Tone::Bad, format!("{} to look at", counted(view.problems.len(), "thing"))),
            (true, true, _) => (Tone::Good, "Nothing is wrong".to_owned()),
        };
        Self { text, tone, disks, volumes, nodes }
    }

    pub fn write(&self, html: &mut Html, view: &PageView) {
        html.raw("<h1 class=\"s ").raw(class(self.tone)).raw("\">").text(&self.text).raw("</h1>");
        named(html, "Disks", &self.disks);
        named(html, "Volumes", &self.volumes);
        named(html, "Nodes", &self.nodes);
        if !view.is_synced {
            html.raw("<p>This replica of the controller has not read all kinds of objects. If it stays so, its log says why; ");
            html.raw("<code>kubectl localpool status</code> asks the API server itself.</p>");
        }
        if view.is_old {
            html.raw("<p>The API server does not answer this replica of the controller. All of this is as it was before.</p>");
        }
        let (disks, free) = view.totals();
        html.raw("<p class=none>").text(&counted(view.nodes.len(), "node")).raw(", ").text(&counted(disks, "disk"));
        html.raw(", ").text(&counted(view.volumes.len(), "volume")).raw(", ").text(&free).raw(" free</p>");
        problems(html, &view.problems);
    }
}

/// `a, b and c`.
fn enumerated(parts: &[String]) -> String {
    match parts {
        [first @ .., before, last] => {
            let first: String = first.iter().map(|part| format!("{part}, ")).collect();
            format!("{first}{before} and {last}")
        }
        _ => parts.concat(),
    }
}

fn named(html: &mut Html, what: &'static str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    html.raw("<p class=which><b>").raw(what).raw("</b> ").text(&names[..names.len().min(NAMED)].join(", "));
    if names.len() > NAMED {
        html.raw(" and ").number(names.len() - NAMED).raw(" more");
    }
    html.raw("</p>");
}

fn problems(html: &mut Html, problems: &[ClusterProblem]) {
    if problems.is_empty() {
        return;
    }
    html.raw("<details class=problems id=problems open><summary>What to do</summary><ol>");
    for ClusterProblem { what, next } in problems.iter().take(LISTED) {
        html.raw("<li>").text(what).raw("<br><span>");
        write_next(html, next);
        html.raw("</span></li>");
    }
    html.raw("</ol>");
    if problems.len() > LISTED {
        html.raw("<p>and ").number(problems.len() - LISTED).raw(" more: <code>kubectl localpool status</code></p>");
    }
    html.raw("</details>");
}

/// As the command line says it: commands are between backticks, or are all of it.
fn write_next(html: &mut Html, next: &str) {
    if next.starts_with("kubectl ") {
        html.raw("<code>").text(next).raw("</code>");
        return;
    }
    for (at, part) in next.split('`').enumerate() {
        if at % 2 == 0 {
            html.text(part);
        } else {
            html.raw("<code>").text(part).raw("</code>");
        }
    }
}
