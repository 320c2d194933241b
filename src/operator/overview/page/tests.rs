use super::sample::{ClusterSample, hostile, list_pods, pod, troubled, well};
use super::*;

fn page_of(sample: ClusterSample) -> StatusPage {
    let pods = sample.pods.clone();
    let page = StatusPage::new(Stores::from(sample), "localpool-controller-0");
    list_pods(&page, &pods);
    page
}

fn content(sample: ClusterSample, query: &str) -> String {
    page_of(sample).content(&PageFilter::parse(query))
}

fn at(html: &str, needle: &str) -> usize {
    html.find(needle).unwrap_or_else(|| panic!("{needle} is not in {html}"))
}

#[test]
fn the_first_line_says_how_much_is_wrong_and_the_next_ones_what() {
    let html = content(troubled(), "");
    assert!(
        html.starts_with("<h1 class=\"s b\">2 of 54 disks, 2 of 54 volumes and 1 of 9 nodes are wrong</h1>"),
        "{html}"
    );
    at(&html, "worker-03/sdd DiskFailing, worker-07/sdc DiskMissing");
    at(&html, "<b>Nodes</b> worker-09 AgentSilent");
    at(&html, "kubectl localpool why disk worker-03/");
    let mut one = well(1, 3);
    one.disk("worker-01", 1)["state"] = serde_json::json!("Missing");
    assert!(content(one, "").starts_with("<h1 class=\"s b\">1 of 3 disks is wrong</h1>"));
}

#[test]
fn a_cluster_that_is_well_or_empty_or_not_known_yet_says_so() {
    let html = content(well(2, 3), "");
    assert!(html.starts_with("<h1 class=\"s g\">Nothing is wrong</h1>"), "{html}");
    at(&html, "2 nodes, 6 disks, 6 volumes, 6Ti free");
    assert!(!html.contains("class=\"t b\"") && !html.contains("What to do"));
    let empty = content(ClusterSample::default(), "");
    assert!(empty.starts_with("<h1 class=\"s g\">Nothing is wrong</h1>"), "{empty}");
    at(&empty, "so no disk is taken");
    let unknown = StatusPage::new(Stores::default(), "r").content(&PageFilter::default());
    assert!(unknown.starts_with("<h1 class=\"s d\">Not everything is known yet</h1>"), "{unknown}");
    for sample in [well(2, 3), troubled()] {
        let page = page_of(sample);
        let before = page.tag();
        page.stores.pools.set_old(true);
        let old = page.content(&PageFilter::default());
        assert!(!old.contains("Nothing is wrong") && old.contains("All of this is as it was before."), "{old}");
        assert_ne!(page.tag(), before, "a browser that looks is told");
    }
    assert!(!unknown.contains("There are none") && unknown.matches("None is known yet.").count() == 3, "{unknown}");
}

#[test]
fn the_worst_comes_first_and_a_disk_that_is_wrong_has_its_reason_and_the_next_command() {
    let html = content(troubled(), "");
    let cards = ["worker-03", "worker-07", "worker-09", "worker-05", "worker-01"];
    let places: Vec<usize> = cards.iter().map(|node| at(&html, &format!("data-node=\"{node}\""))).collect();
    assert!(places.is_sorted(), "{places:?}");
    let tile = &html[at(&html, "<button type=button class=\"t b\"")..];
    let tile = &tile[..at(tile, "</button>")];
    let lines = [
        "title=\"/dev/sdd, DiskFailing&#10;SMART: the disk says that it will fail soon&#10;1Ti free of 4Ti, 1 volume",
        "&#10;kubectl localpool why disk worker-03/",
        "\">sdd <b>DiskFailing</b>",
    ];
    for line in lines {
        at(tile, line);
    }
    assert!(!tile.contains("tabindex"), "the key Tab leads to it");
    at(&html, "Its agent does not answer: AgentSilent since <time>2026-11-30T23:51:40Z</time>");
    at(&html, "<button type=button class=\"t d\" tabindex=-1 title=\"/dev/sde, Cordoned");
    let rows = &html[at(&html, "<h2 id=volumes>")..];
    assert!(at(rows, "<tr class=b>") < at(rows, "<tr class=d>") && at(rows, "<tr class=d>") < at(rows, "<tr class=g>"));
}

#[test]
fn what_a_dry_run_would_take_and_what_no_set_takes_are_shown_with_the_reason() {
    let html = content(troubled(), "");
    at(&html, "title=\"/dev/sdh, would be taken&#10;The dry run of localpool/bulk would take it");
    at(&html, "title=\"/dev/sda, not taken&#10;Not taken by localpool/fast: it is mounted at /");
    at(&html, "<summary>Would take 2 devices</summary><ul><li>worker-04: /dev/sdh</li>");
    let mut partition = well(1, 2);
    partition.pool("worker-01")["status"]["sets"][0]["unmatched"] =
        serde_json::json!([{"device": "/dev/sdb1", "reason": "x"}, {"device": "/dev/sdbc", "reason": "x"}]);
    let html = content(partition, "");
    assert!(!html.contains("title=\"/dev/sdb1") && html.contains("title=\"/dev/sdbc"), "{html}");
}

#[test]
fn no_name_breaks_out_of_its_place_on_the_page_or_in_a_command() {
    for query in ["", "q=%3Cscript%3E%22'&show=wrong"] {
        let page = page_of(hostile()).page(&PageFilter::parse(query));
        assert!(!page.contains("<script>") && !page.contains("<img") && !page.contains("<i>"), "{page}");
        assert!(!page.contains("\u{202e}") && !page.contains("onmouseover='"), "{page}");
        assert_eq!(page.matches("<script").count(), 1, "only its own");
    }
    let mut wrong = hostile();
    wrong.disk("worker-01", 0)["state"] = serde_json::json!("Missing");
    let html = content(wrong, "");
    assert!(!html.contains("why disk worker-01/serial"), "no shell runs a part of a name: {html}");
    at(&html, "kubectl localpool why disk &#39;worker-01/serial $(reboot) &#39;\\&#39;&#39;x&#39;\\&#39;&#39;&#39;");
}

/// The rows of the volumes whose claims have this text.
fn rows(html: &str, claim: &str) -> Vec<String> {
    let table = &html[at(html, "<h2 id=volumes>")..];
    table.split("<tr class=").filter(|row| row.contains(claim)).map(str::to_owned).collect()
}

#[test]
fn each_volume_has_the_pods_that_use_its_claim_and_of_several_the_others_in_a_part_that_opens() {
    let mut sample = well(1, 3);
    let claims = ["shop/a", "shop/b", "shop/c"];
    for (volume, claim) in sample.volumes.iter_mut().zip(claims) {
        volume["metadata"]["annotations"][crate::api::crd::CLAIM_ANNOTATION] = serde_json::json!(claim);
    }
    sample.pods = vec![
        pod("shop", "one", &["a"]),
        pod("other", "no-user", &["a", "b", "c"]),
        pod("shop", "two", &["x", "b"]),
        pod("shop", "three", &["b"]),
        pod("shop", "four", &["b"]),
        pod("shop", "idle", &[]),
    ];
    let html = content(sample.clone(), "");
    let row = |claim: &str| rows(&html, &format!("data-l=Claim>{claim}<")).concat();
    at(&row("shop/a"), "<td data-l=Pods>one<td data-l=State>");
    at(&row("shop/b"), "<summary>four and 2 more</summary><ul><li>three<li>two</ul></details><td data-l=State>");
    at(&row("shop/c"), "shop/c<td><td data-l=State>");
    assert!(!html.contains("no-user") && !html.contains("not known yet"), "{html}");
    let name = sample.volumes[1]["metadata"]["name"].as_str().expect("a name").to_owned();
    at(&row("shop/b"), &format!("<details id=\"pods-{name}\">"));
    for (query, claims) in [("q=three", 1), ("q=two+shop%2Fb", 1), ("q=two+shop%2Fa", 0)] {
        assert_eq!(content(sample.clone(), query).matches("data-l=Claim>").count(), claims, "{query}");
    }
    // Thousands can wait for one claim.
    sample.pods.extend((0..5000).map(|at| pod("shop", &format!("wait-{at}"), &["b"])));
    let html = content(sample, "");
    at(&html, "<summary>four and 5002 more</summary>");
    at(&html, "</ul>and 4973 more: <code>kubectl localpool volumes</code></details>");
    assert_eq!(html.matches("<li>wait-").count(), volume_table::PODS - 3, "after four, three and two");
}

#[test]
fn a_volume_whose_claim_is_gone_has_not_the_pods_of_another_claim_of_that_name() {
    let shown = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut sample = well(1, 1);
        change(&mut sample.volumes[0]);
        content(sample, "").contains("<td data-l=Pods>")
    };
    assert!(shown(&|_| {}));
    assert!(!shown(&|volume| {
        let annotations = volume["metadata"]["annotations"].as_object_mut().expect("an object");
        annotations.remove(crate::api::crd::CLAIM_UID_ANNOTATION).expect("it was bound");
    }));
    assert!(!shown(&|volume| volume["spec"]["intent"] = serde_json::json!("Delete")));
}

#[test]
fn until_the_pods_are_known_the_page_says_so_and_a_browser_is_told_when_they_are() {
    const UNKNOWN: &str = "It is not known yet which pods use them: <code>kubectl localpool volumes</code>";
    let sample = well(1, 2);
    let page = StatusPage::new(Stores::from(sample.clone()), "r");
    let (before, html) = (page.tag(), page.content(&PageFilter::default()));
    at(&html, UNKNOWN);
    assert!(html.starts_with("<h1 class=\"s g\">Nothing is wrong</h1>"), "pods are no health: {html}");
    list_pods(&page, &sample.pods);
    let (after, html) = (page.tag(), page.content(&PageFilter::default()));
    assert!(after != before && !html.contains(UNKNOWN) && html.contains("<td data-l=Pods>"), "{html}");
    page.pods().look();
    assert_eq!(page.tag(), after, "a look changes nothing");
    page.pods.pods.set_old(true);
    at(&page.content(&PageFilter::default()), "All of this is as it was before.");
    assert_ne!(page.tag(), after);
    assert!(!StatusPage::new(Stores::default(), "r").content(&PageFilter::default()).contains(UNKNOWN), "no volumes");
}

#[test]
fn a_filter_leaves_what_has_all_words_and_what_is_wrong() {
    let of = |query: &str| content(troubled(), query);
    let cards = |html: &str| html.matches("<article class=\"n ").count();
    assert_eq!((cards(&of("")), cards(&of("show=wrong")), cards(&of("q=worker-03"))), (9, 4, 1));
    let html = of("q=diskfailing");
    assert_eq!((cards(&html), html.matches("<button").count()), (1, 1));
    let html = of("q=shop%2F");
    assert!(html.contains("<h2 id=volumes>Volumes <small>") && html.contains(" of 54</small>"), "{html}");
    assert!(of("q=nothing-like-that").contains("No node is like that."));
    assert!(of("q=nothing-like-that").starts_with("<h1 class=\"s b\">2 of 54"), "the first line is about all");
}

#[test]
fn the_page_of_500_nodes_with_10_disks_each_is_below_a_limit() {
    const MOST: usize = 1_300_000;
    let html = content(well(500, 10), "");
    assert!(html.len() < MOST, "{} bytes", html.len());
    assert_eq!(html.matches("<button type=button class=\"t g\"").count(), 5000);
    assert_eq!(html.matches("<tr class=g>").count(), volume_table::VOLUMES);
    at(&html, "These are the 200 worst of 5000.");
    // All of them wrong at once.
    let mut worst = well(500, 10);
    worst.pools.iter_mut().flat_map(|pool| pool["status"]["disks"].as_array_mut()).flatten().for_each(|disk| {
        disk["state"] = serde_json::json!("Missing");
    });
    let html = content(worst, "");
    assert!(html.len() < 2 * MOST, "{} bytes", html.len());
    at(&html, "and 4994 more</p>");
    at(&html, "and 4975 more: <code>kubectl localpool status</code>");
    assert!(content(well(500, 10), "q=worker-77").len() < 20_000);
}

#[test]
fn the_tag_changes_with_each_object_and_with_the_process_and_with_nothing_else() {
    let page = page_of(well(1, 1));
    let before = page.tag();
    assert_eq!(page.clone().tag(), before);
    assert_ne!(page_of(well(1, 1)).tag(), before, "another process counts anew");
    let pool = page.stores.pools.get("worker-01").expect("it is there");
    page.stores.pools.remove(&*pool);
    assert_ne!(page.tag(), before);
    let before = page.tag();
    page.stores.sets.lose();
    assert_ne!(page.tag(), before, "that a kind is not served any more is shown");
}
