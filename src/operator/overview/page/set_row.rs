//! A set with what it has, what it would take, and what it leaves. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::filter::PageFilter;
use super::html::Html;
use super::tile::{class, rank};
use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet};
use crate::api::quantity;
use crate::device::{NodeName, SetName};
use crate::operator::bytes::unsigned;
use crate::operator::overview::problems::counted;
use crate::operator::set::offers::{Offers, listed, offers_of, sum, unmatched};
use crate::operator::set::status::{AVAILABLE, VALID};
use crate::operator::set::summary::SetStatus;
use crate::show::{Tone, shell_word};

/// A LocalVolumeSet or LocalVolume of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRow {
    pub kind: &'static str,
    plural: &'static str,
    pub namespace: String,
    pub name: String,
    pub tone: Tone,
    pub word: String,
    pub message: String,
    pub class: String,
    pub devices: usize,
    pub nodes: usize,
    pub available: u64,
    pub largest: u64,
    /// `node: device`.
    pub would_take: DeviceLines,
    /// `node: device: reason`.
    pub left: DeviceLines,
}

/// Some of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLines {
    pub shown: Vec<String>,
    pub more: usize,
}

impl DeviceLines {
    /// Of devices as the status of a set names them.
    fn of(devices: &[Value], more: i64) -> Self {
        let fields = |device: &Value| {
            let named = ["node", "device", "reason"].iter().filter_map(|field| device[field].as_str());
            named.collect::<Vec<_>>().join(": ")
        };
        Self { shown: devices.iter().map(fields).collect(), more: unsigned(more) }
    }

    fn count(&self) -> usize {
        self.shown.len() + self.more
    }
}

impl SetRow {
    pub fn of_set<'a>(set: &LocalVolumeSet, pools: impl IntoIterator<Item = &'a DevicePool>) -> Self {
        let conditions = set.status.as_ref().map_or(&[][..], |status| &status.conditions);
        Self::of(set, ("LocalVolumeSet", "localvolumesets"), conditions, pools)
    }

    pub fn of_local_volume<'a>(set: &LocalVolume, pools: impl IntoIterator<Item = &'a DevicePool>) -> Self {
        let conditions = set.status.as_ref().map_or(&[][..], |status| &status.conditions);
        Self::of(set, ("LocalVolume", "localvolumes"), conditions, pools)
    }

    fn of<'a>(
        set: &impl SetStatus,
        (kind, plural): (&'static str, &'static str),
        conditions: &[Condition],
        pools: impl IntoIterator<Item = &'a DevicePool>,
    ) -> Self {
        let offers = offers_of(pools, |name: &SetName| set.is_own(name));
        let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let (tone, word, message) = match (find(VALID), find(AVAILABLE)) {
            (Some(valid), _) if valid.status == "False" => (Tone::Bad, &*valid.reason, &*valid.message),
            (_, Some(available)) if available.status == "True" => (Tone::Good, &*available.reason, &*available.message),
            (_, Some(available)) => (Tone::Doubtful, &*available.reason, &*available.message),
            (_, None) => (Tone::Doubtful, "Unknown", "the controller has not said anything of it yet"),
        };
        let mut classes: Vec<&str> = offers.iter().map(|(_, offer)| offer.class.as_str()).collect();
        classes.sort_unstable();
        classes.dedup();
        Self {
            kind,
            plural,
            namespace: set.namespace().unwrap_or_default(),
            name: set.name_any(),
            tone,
            word: word.to_owned(),
            message: message.to_owned(),
            class: classes.join(", "),
            devices: unsigned(sum(&offers, |offer| offer.devices)),
            nodes: offers.iter().filter(|(_, offer)| offer.devices > 0).count(),
            available: unsigned(sum(&offers, |offer| offer.available)),
            largest: offers.iter().map(|(_, offer)| unsigned(offer.largest)).max().unwrap_or(0),
            would_take: would_take(&offers),
            left: left(&offers),
        }
    }

    /// The worst first.
    pub fn order(&self) -> impl Ord + use<> {
        (std::cmp::Reverse(rank(self.tone)), self.namespace.clone(), self.name.clone())
    }

    pub fn is_shown(&self, filter: &PageFilter) -> bool {
        let own = [self.kind, &self.namespace, &self.name, &self.word, &self.message, &self.class];
        let lines = self.would_take.shown.iter().chain(&self.left.shown).map(String::as_str);
        filter.shows(self.tone, &own.into_iter().chain(lines).collect::<Vec<_>>())
    }

    pub fn write(&self, html: &mut Html) {
        let Self { kind, plural, namespace, name, tone, word, message, class: of_class, .. } = self;
        html.raw("<article class=\"set ").raw(class(*tone)).raw("\"><h3><small>").raw(kind).raw("</small> ");
        html.text(namespace).raw("/").text(name).raw("</h3><b class=\"s ").raw(class(*tone)).raw("\">").text(word);
        html.raw("</b><p>").text(message).raw("</p><p>");
        let has = format!("{} on {}", counted(self.devices, "device"), counted(self.nodes, "node"));
        if !message.contains(&has) {
            html.text(&has).raw(", ");
        }
        html.text(&quantity::short(self.available)).raw(" free");
        if self.largest > 0 {
            html.raw(", the largest volume ").text(&quantity::short(self.largest));
        }
        if !of_class.is_empty() {
            html.raw(", class ").text(of_class);
        }
        html.raw("</p>");
        write_lines(html, "Would take ", &self.would_take);
        write_lines(html, "Does not take ", &self.left);
        if *tone != Tone::Good {
            html.raw("<code>kubectl -n ").text(&shell_word(namespace)).raw(" describe ").raw(plural).raw(" ");
            html.text(&shell_word(name)).raw("</code>");
        }
        html.raw("</article>");
    }
}

fn write_lines(html: &mut Html, what: &'static str, lines: &DeviceLines) {
    if lines.count() == 0 {
        return;
    }
    html.raw("<details><summary>").raw(what).text(&counted(lines.count(), "device")).raw("</summary><ul>");
    for line in &lines.shown {
        html.raw("<li>").text(line).raw("</li>");
    }
    if lines.more > 0 {
        html.raw("<li>and ").number(lines.more).raw(" more</li>");
    }
    html.raw("</ul></details>");
}

fn would_take(offers: &Offers<'_>) -> DeviceLines {
    let shown = |node: &NodeName, device: &String| json!({"node": node, "device": device});
    let (devices, cut) = listed(offers, |offer| &offer.would_take, shown);
    DeviceLines::of(&devices, sum(offers, |offer| offer.would_take_omitted).saturating_add(cut))
}

fn left(offers: &Offers<'_>) -> DeviceLines {
    let (devices, more) = unmatched(offers);
    DeviceLines::of(&devices, more)
}
