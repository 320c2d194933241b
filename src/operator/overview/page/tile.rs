//! One device of a node as a tile: a disk of the pool by its health, another one by what sets say of it. Pure.

use std::collections::BTreeMap;

use super::html::Html;
use crate::api::crd::{DevicePool, DiskStatus};
use crate::api::quantity;
use crate::operator::overview::disks::{ClusterDisk, UNKNOWN, WELL, health_tone, state_tone};
use crate::operator::overview::problems::counted;
use crate::show::{Tone, shell_word};

/// At most this many devices of a node that are in no pool are shown.
pub const OTHERS: usize = 12;

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The last part of its path.
    pub label: String,
    pub tone: Tone,
    pub standing: TileStanding,
    /// What is to be said of it in one word.
    pub word: String,
    /// What a person reads who points at it; the last line is a command if there is anything to ask.
    pub lines: Vec<String>,
}

/// Whether a device is in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileStanding {
    InPool,
    /// The dry run of a set would take it.
    WouldBeTaken,
    NotTaken,
}

/// The worse of two, for whoever looks for what is wrong.
pub fn worse(a: Tone, b: Tone) -> Tone {
    std::cmp::max_by_key(a, b, |tone| rank(*tone))
}

/// The worst is the highest.
pub fn rank(tone: Tone) -> u8 {
    match tone {
        Tone::Plain => 0,
        Tone::Good => 1,
        Tone::Doubtful => 2,
        Tone::Bad => 3,
    }
}

/// The class of the style sheet, which gives each its own sign beside its colour.
pub fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "p",
        Tone::Good => "g",
        Tone::Doubtful => "d",
        Tone::Bad => "b",
    }
}

fn label(path: &str) -> String {
    path.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(path).to_owned()
}

impl Tile {
    /// A disk of the pool.
    pub fn of_disk(pool: &DevicePool, disk: &DiskStatus) -> Self {
        let row = ClusterDisk::of(pool, disk);
        let mut tone = worse(state_tone(&row.state), health_tone(&row.health));
        if row.cordon.is_some() || row.order.is_some() {
            tone = worse(tone, Tone::Doubtful);
        }
        let word = match (row.health.as_str(), row.state.as_str()) {
            (WELL, "Ready") if row.cordon.is_some() => "Cordoned",
            (WELL | UNKNOWN, "Ready") => WELL,
            (WELL | UNKNOWN, state) => state,
            (health, _) => health,
        };
        let mut lines = vec![format!("{}, {word}", row.path)];
        lines.extend(row.message.clone());
        lines.extend(row.cordon.iter().map(|why| format!("Takes no new volumes: {why}")));
        lines.extend(row.order.iter().map(|order| format!("Order: {order}")));
        let (free, size) = (quantity::short(row.free), quantity::short(row.size));
        let volumes = counted(usize::try_from(row.volumes).unwrap_or_default(), "volume");
        let mut facts = vec![format!("{free} free of {size}"), volumes, format!("set {}", row.set), row.layout.clone()];
        facts.extend(row.model.clone());
        lines.push(facts.join(", "));
        if tone != Tone::Good {
            let since = row.since.iter().map(|since| format!(", {} since {since}", row.state));
            lines.push(format!("{}{}", row.id, since.collect::<String>()));
            let name = shell_word(&format!("{}/{}", row.node, row.id));
            lines.push(format!("kubectl localpool why disk {name}"));
        }
        Self { label: label(&row.path), tone, standing: TileStanding::InPool, word: word.to_owned(), lines }
    }

    /// Those in no pool that sets speak of, and how many more there are.
    pub fn of_others(pool: &DevicePool) -> (Vec<Self>, usize) {
        let Some(status) = &pool.status else { return (Vec::new(), 0) };
        let mut said: BTreeMap<&str, (TileStanding, Vec<String>)> = BTreeMap::new();
        for offer in &status.sets {
            let set = offer.set_name();
            for device in &offer.would_take {
                let (standing, lines) = said.entry(device).or_insert((TileStanding::NotTaken, Vec::new()));
                *standing = TileStanding::WouldBeTaken;
                lines.push(format!("The dry run of {set} would take it"));
            }
            for left in &offer.unmatched {
                let (_, lines) = said.entry(&left.device).or_insert((TileStanding::NotTaken, Vec::new()));
                lines.push(format!("Not taken by {set}: {}", left.reason));
            }
        }
        let is_other = |device: &&str| !status.disks.iter().any(|disk| is_of(device, &disk.path));
        let mut others: Vec<Self> = said
            .into_iter()
            .filter(|(device, _)| is_other(device))
            .map(|(device, (standing, said))| Self::other(pool, device, standing, said))
            .collect();
        others.sort_by_key(|tile| tile.standing == TileStanding::NotTaken);
        let more = others.len().saturating_sub(OTHERS);
        others.truncate(OTHERS);
        (others, more)
    }

    fn other(pool: &DevicePool, device: &str, standing: TileStanding, said: Vec<String>) -> Self {
        let word = if standing == TileStanding::WouldBeTaken { "would be taken" } else { "not taken" };
        let mut lines = vec![format!("{device}, {word}")];
        lines.extend(said);
        let name = shell_word(&format!("{}/{}", pool.node(), label(device)));
        lines.push(format!("kubectl localpool why disk {name}"));
        Self { label: label(device), tone: Tone::Plain, standing, word: word.to_owned(), lines }
    }

    /// The texts that a filter looks at.
    pub fn texts(&self) -> Vec<&str> {
        let lines = self.lines.iter().map(String::as_str);
        [self.label.as_str(), self.word.as_str()].into_iter().chain(lines).collect()
    }

    pub fn write(&self, html: &mut Html) {
        // Whoever walks with the key Tab comes to what is wrong; the arrow keys lead to all.
        html.raw("<button type=button class=\"t ").raw(self.class());
        html.raw(if self.tone == Tone::Bad { "\"" } else { "\" tabindex=-1" });
        html.raw(" title=\"").lines(self.lines.iter().map(String::as_str)).raw("\">").text(&self.label);
        if matches!(self.tone, Tone::Bad | Tone::Doubtful) && self.word != UNKNOWN {
            html.raw(" <b>").text(&self.word).raw("</b>");
        }
        html.raw("</button>");
    }

    fn class(&self) -> &'static str {
        match self.standing {
            TileStanding::InPool if self.word == UNKNOWN => "u",
            TileStanding::InPool => class(self.tone),
            TileStanding::WouldBeTaken => "w",
            TileStanding::NotTaken => "o",
        }
    }
}

/// Whether a device is that disk or a partition of it.
fn is_of(device: &str, disk: &str) -> bool {
    let is_number = |rest: &str| rest.chars().all(|c| c.is_ascii_digit());
    device.strip_prefix(disk).is_some_and(|rest| is_number(rest.strip_prefix('p').unwrap_or(rest)))
}
