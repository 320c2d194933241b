//! The page as a whole: its parts in their order. Pure.

use super::filter::PageFilter;
use super::headline::Headline;
use super::html::Html;
use super::node_card::NodeCard;
use super::set_row::SetRow;
use super::view::PageView;
use super::volume_table::write_volumes;

/// The whole page; `tag` is that of what it shows.
pub fn page(view: &PageView, filter: &PageFilter, tag: &str) -> String {
    let mut html = Html::default();
    html.raw("<!doctype html><html lang=en><head><meta charset=utf-8>");
    html.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=color-scheme content=\"light dark\"><title>").text(&Headline::of(view).text);
    html.raw(" · localpool</title><link rel=icon href=icon.svg><link rel=stylesheet href=style.css>");
    html.raw("<script src=page.js defer></script></head><body><header><span class=brand>localpool</span>");
    html.raw("<form role=search><label>Show <select name=show><option value=all>everything");
    html.raw("<option value=wrong").raw(if filter.only_wrong { " selected" } else { "" });
    html.raw(">what is wrong</select></label><label class=q>with the words <input type=search name=q value=\"");
    html.text(&filter.text).raw("\" placeholder=\"node, disk, claim, pod, reason…\" autocomplete=off></label>");
    html.raw("<noscript><button>Filter</button></noscript></form><p id=live><span role=status></span> <time aria-hidden=true></time></p></header>");
    html.raw("<main id=content data-tag=\"").text(tag).raw("\">").add(body(view, filter)).raw("</main>");
    html.raw(
        "<aside id=detail hidden><button type=button aria-label=Close>×</button><div></div></aside></body></html>\n",
    );
    html.into_text()
}

/// What of it changes.
pub fn content(view: &PageView, filter: &PageFilter) -> String {
    body(view, filter).into_text()
}

fn body(view: &PageView, filter: &PageFilter) -> Html {
    let mut html = Html::default();
    Headline::of(view).write(&mut html, view);
    write_nodes(view, &mut html, filter);
    let sets: Vec<&SetRow> = view.sets.iter().filter(|set| set.is_shown(filter)).collect();
    html.raw("<h2 id=sets>Sets <small>").number(sets.len()).raw("</small></h2>");
    match (view.sets.is_empty(), view.is_synced) {
        (false, _) => {}
        (true, false) => {
            html.raw("<p class=none>None is known yet.</p>");
        }
        (true, true) => {
            let none =
                "<p class=none>There are none, so no disk is taken: <code>kubectl apply</code> a LocalVolumeSet.</p>";
            html.raw(none);
        }
    }
    html.raw("<div class=sets>");
    sets.iter().for_each(|set| set.write(&mut html));
    html.raw("</div>");
    let none = if view.is_synced { "There are none." } else { "None is known yet." };
    write_volumes(&mut html, &view.volumes, filter, none);
    if !view.has_pods && !view.volumes.is_empty() {
        html.raw("<p class=none>It is not known yet which pods use them: <code>kubectl localpool volumes</code></p>");
    }
    html.raw("<footer>Read by ").text(&view.replica).raw(", localpool ").raw(env!("CARGO_PKG_VERSION"));
    html.raw(". This page changes nothing.</footer>");
    html
}

fn write_nodes(view: &PageView, html: &mut Html, filter: &PageFilter) {
    let shown: Vec<NodeCard> = view.nodes.iter().filter_map(|card| card.filtered(filter)).collect();
    html.raw("<h2 id=nodes>Nodes and disks <small>").number(shown.len());
    if shown.len() < view.nodes.len() {
        html.raw(" of ").number(view.nodes.len());
    }
    html.raw(
        "</small></h2><ul class=legend><li class=b>wrong<li class=d>look at it<li class=u>not known<li class=g>healthy",
    );
    html.raw("<li class=w>a dry run would take it<li class=o>not taken</ul>");
    if shown.is_empty() {
        let none =
            if view.is_synced || !view.nodes.is_empty() { "No node is like that." } else { "None is known yet." };
        html.raw("<p class=none>").raw(none).raw("</p>");
    }
    html.raw("<div class=ns>");
    shown.iter().for_each(|card| card.write(html));
    html.raw("</div>");
}
