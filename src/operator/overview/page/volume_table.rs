//! The table of volumes: the worst first, and so many that the page stays small. Pure.

use super::filter::PageFilter;
use super::html::Html;
use super::tile::{class, rank, worse};
use crate::api::quantity;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::overview::disks::{UNKNOWN, WELL, health_tone, state_tone};
use crate::operator::overview::volumes::ClusterVolume;
use crate::show::{Tone, shell_word};

/// So many volumes are shown at once; a filter finds the others.
pub const VOLUMES: usize = 200;
/// So many pods of a volume are named; one claim can have thousands that wait for it.
pub const PODS: usize = 30;

/// A volume of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageVolume {
    pub tone: Tone,
    pub word: String,
    volume: ClusterVolume,
    /// Where its disk is now, as `sdb`.
    disk: Option<String>,
}

impl PageVolume {
    pub fn of(volume: ClusterVolume, disk: Option<String>) -> Self {
        let word = match (volume.health.as_str(), volume.state.as_str()) {
            (WELL | UNKNOWN, "Ready") => WELL,
            (WELL | UNKNOWN, state) => state,
            (health, _) => health,
        };
        let tone = worse(state_tone(&volume.state), health_tone(&volume.health));
        Self { tone, word: word.to_owned(), volume, disk }
    }

    /// The worst first; then by namespace and claim.
    pub fn order(&self) -> impl Ord + use<> {
        let ClusterVolume { namespace, claim, id, .. } = &self.volume;
        (std::cmp::Reverse(rank(self.tone)), namespace.clone(), claim.clone(), id.clone())
    }

    /// The claim, or the volume's own id if it has none.
    pub fn name(&self) -> String {
        match (&self.volume.namespace, &self.volume.claim) {
            (Some(namespace), Some(claim)) => format!("{namespace}/{claim}"),
            _ => self.volume.id.to_string(),
        }
    }

    pub fn is_shown(&self, filter: &PageFilter) -> bool {
        let ClusterVolume { id, node, state, message, usage, class, set, pods, .. } = &self.volume;
        let name = self.name();
        let some = [&self.disk, message, class, set].into_iter().flatten().map(String::as_str);
        let own = [id.as_str(), node.as_str(), &self.word, state, usage, &name];
        let pods = pods.iter().map(ObjectName::as_str);
        filter.shows(self.tone, &own.into_iter().chain(some).chain(pods).collect::<Vec<_>>())
    }

    pub fn write(&self, html: &mut Html) {
        let ClusterVolume { namespace, claim, node, state, message, size, usage, id, .. } = &self.volume;
        html.raw("<tr class=").raw(class(self.tone)).raw("><th scope=row data-l=Claim>").text(&self.name());
        self.write_pods(html);
        html.raw("<td data-l=State><b class=\"s ").raw(class(self.tone)).raw("\">").text(&self.word).raw("</b>");
        if *state != self.word && self.word != WELL {
            html.raw(" <small>").text(state).raw("</small>");
        }
        html.raw("<td data-l=Where>").text(node);
        if let Some(disk) = &self.disk {
            html.raw("/").text(disk);
        }
        html.raw("<td data-l=Size class=r>").text(&quantity::short(*size)).raw("<td data-l=Use>").text(usage);
        if self.tone == Tone::Good {
            return;
        }
        html.raw("<tr class=\"why ").raw(class(self.tone)).raw("\"><td colspan=6>");
        if let Some(message) = message {
            html.raw("<p>").text(message).raw("</p>");
        }
        html.raw("<code>");
        match (namespace, claim) {
            (Some(namespace), Some(claim)) => {
                let (namespace, claim) = (ObjectName::as_str(namespace), ObjectName::as_str(claim));
                html.raw("kubectl localpool why pvc ").text(&shell_word(&format!("{namespace}/{claim}")));
            }
            _ => {
                html.raw("kubectl describe poolvolume ").text(&shell_word(id.as_str()));
            }
        }
        html.raw("</code>");
    }

    /// They are in the namespace of the claim. Of several the others are in a part that opens by pointer, finger and keyboard.
    fn write_pods(&self, html: &mut Html) {
        let ClusterVolume { id, pods, .. } = &self.volume;
        let Some((first, others)) = pods.split_first() else {
            html.raw("<td>");
            return;
        };
        html.raw("<td data-l=Pods>");
        if others.is_empty() {
            html.text(first.as_str());
            return;
        }
        html.raw("<details id=\"pods-").text(id.as_str()).raw("\"><summary>").text(first.as_str()).raw(" and ");
        html.number(others.len()).raw(" more</summary><ul>");
        for pod in others.iter().take(PODS - 1) {
            html.raw("<li>").text(pod.as_str());
        }
        html.raw("</ul>");
        if others.len() > PODS - 1 {
            html.raw("and ").number(others.len() - (PODS - 1)).raw(" more: <code>kubectl localpool volumes</code>");
        }
        html.raw("</details>");
    }
}

/// The table of those that a person wants to see. `all` is in its order; `none` is said if there is none.
pub fn write_volumes(html: &mut Html, all: &[PageVolume], filter: &PageFilter, none: &'static str) {
    let wanted: Vec<&PageVolume> = all.iter().filter(|row| row.is_shown(filter)).collect();
    html.raw("<h2 id=volumes>Volumes <small>").number(wanted.len());
    if wanted.len() < all.len() {
        html.raw(" of ").number(all.len());
    }
    html.raw("</small></h2>");
    if wanted.is_empty() {
        html.raw("<p class=none>").raw(if all.is_empty() { none } else { "None is like that." }).raw("</p>");
        return;
    }
    html.raw("<table><thead><tr><th scope=col>Claim<th scope=col>Pods<th scope=col>State<th scope=col>Where");
    html.raw("<th scope=col class=r>Size<th scope=col>Use</thead><tbody>");
    wanted.iter().take(VOLUMES).for_each(|row| row.write(html));
    html.raw("</table>");
    if wanted.len() > VOLUMES {
        html.raw("<p>These are the ").number(VOLUMES).raw(" worst of ").number(wanted.len());
        html.raw(". The filter above finds others.</p>");
    }
}
