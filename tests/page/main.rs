//! The status page in a real browser: the real renderer and server, with clusters in memory. What is checked here is what a
//! person sees and does; tests/apiserver has the page of the real controller.
//!
//! Needs Chromium (`make test-page`); without it each test says `skipped: …`. Pictures are left in target/test; `UPDATE_DOCS=1`
//! writes those of docs/status-page.md.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod browser;

use std::path::{Path, PathBuf};

use browser::Browser;
use localpool::api::crd::DevicePool;
use localpool::operator::controller::Stores;
use localpool::operator::overview::StatusPage;
use localpool::operator::overview::page_sample::{ClusterSample, hostile, list_pods, pod, troubled, well};
use localpool::role::status_page;
use serde_json::json;
use tokio::runtime::Runtime;

/// A page that is served to this test.
struct Served {
    url: String,
    stores: Stores,
    page: StatusPage,
    _runtime: Runtime,
}

fn serve(sample: ClusterSample) -> Served {
    let pods = sample.pods.clone();
    let stores = Stores::from(sample);
    let page = StatusPage::new(stores.clone(), "localpool-controller-7d9c");
    list_pods(&page, &pods);
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = status_page::router(page.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    Served { url, stores, page, _runtime: runtime }
}

/// Nothing was forbidden or went wrong, and nothing sticks out at the side.
fn is_sound(browser: &mut Browser, what: &str) {
    assert_eq!(browser.complaints, [""; 0], "{what}");
    let width = browser.value("[document.documentElement.scrollWidth, innerWidth]");
    assert!(width[0].as_u64() <= width[1].as_u64(), "{what}: the page is {width} wide");
}

/// The lowest contrast of a text of these elements, as WCAG computes it.
const CONTRAST: &str = r"(() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = (color, under) => {
        if (under) { canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1); }
        canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const back = (e) => e ? rgb(getComputedStyle(e).backgroundColor, back(e.parentElement)) : [255, 255, 255];
    const light = (c) => {
        const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const of = (e) => {
        const [a, b] = [light(rgb(getComputedStyle(e).color)), light(back(e))].sort((a, b) => b - a);
        return (a + .05) / (b + .05);
    };
    return Math.min(...[...document.querySelectorAll('h1, h2, h2 small, p, .t, .s, li, td, th, code, summary, label')].map(of));
})()";

#[test]
fn a_person_reads_what_is_wrong_in_the_dark_and_in_the_light_and_on_a_phone() {
    let Some(mut browser) = Browser::start() else { return };
    let served = serve(troubled());
    for scheme in ["light", "dark"] {
        browser.scheme(scheme);
        browser.window(1080, 720);
        browser.open(&served.url);
        assert_eq!(browser.text("h1"), "2 of 54 disks, 2 of 54 volumes and 1 of 9 nodes are wrong");
        assert_eq!(browser.text(".which"), "Disks worker-03/sdd DiskFailing, worker-07/sdc DiskMissing");
        assert_eq!(
            browser.value("document.title"),
            "2 of 54 disks, 2 of 54 volumes and 1 of 9 nodes are wrong · localpool"
        );
        // Colour is not all: each state has a sign of its own, and what is wrong a word.
        let sign = |class: &str| format!("getComputedStyle(document.querySelector('.t.{class}'), '::before').content");
        let signs = ["b", "d", "u", "g", "w", "o"].map(|class| browser.value(&sign(class)).to_string());
        assert_eq!(signs.iter().collect::<std::collections::BTreeSet<_>>().len(), 6, "{signs:?}");
        let contrast = browser.value(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{scheme}: a text has a contrast of {contrast} only");
        let dark = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 24)";
        assert_eq!(dark, scheme == "dark");
        is_sound(&mut browser, scheme);
        if scheme == "dark" {
            // What is below, in the one picture.
            browser.value("document.querySelector('#sets').scrollIntoView()");
        }
        picture(&mut browser, &format!("status-page-{scheme}"));
    }
    browser.window(390, 780);
    browser.open(&served.url);
    is_sound(&mut browser, "on a phone");
    browser.point_at(".t.b");
    browser.until("!document.querySelector('#detail').hidden");
    is_sound(&mut browser, "on a phone, with the reason");
    picture(&mut browser, "status-page-phone");
}

#[test]
fn the_reason_and_the_next_command_come_by_the_pointer_and_by_the_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let served = serve(troubled());
    browser.open(&served.url);
    browser.point_at(".t.b");
    browser
        .until("document.querySelector('#detail').innerText.includes('SMART: the disk says that it will fail soon')");
    assert!(browser.text("#detail code").starts_with("kubectl localpool why disk worker-03/"));
    // A click holds it: the pointer crosses other tiles on its way to the command.
    browser.value("document.querySelector('.t.b').click()");
    browser.point_at(".t.g");
    assert!(browser.text("#detail h3").starts_with("worker-03: /dev/sdd"));
    browser.key("Escape", 27);
    browser.until("document.querySelector('#detail').hidden");
    browser.point_at(".t.w");
    browser
        .until("document.querySelector('#detail').innerText.includes('The dry run of localpool/bulk would take it')");
    // From the filter on, Tab leads to what is wrong and to nothing else of the tiles.
    browser.key("/", 191);
    browser.until("document.activeElement.name === 'q'");
    for _ in 0..10 {
        browser.key("Tab", 9);
        if browser.value("document.activeElement.matches('.t')") == true {
            break;
        }
    }
    let focused = "document.activeElement.closest('article')?.dataset.node + ' ' + document.activeElement.innerText";
    assert_eq!(browser.value(focused), "worker-03 sdd DiskFailing");
    browser.until("document.querySelector('#detail h3').innerText.startsWith('worker-03: /dev/sdd')");
    browser.key("ArrowRight", 39);
    assert_eq!(browser.value(focused), "worker-03 sde");
    browser.until("document.querySelector('#detail h3').innerText === 'worker-03: /dev/sde, Healthy'");
    browser.key("ArrowDown", 40);
    assert_eq!(browser.value(focused), "worker-07 sdb");
    browser.key("Tab", 9);
    assert_eq!(browser.value(focused), "worker-07 sdc DiskMissing");
    let spoken = browser.value("document.activeElement.getAttribute('aria-label')").to_string();
    assert!(spoken.contains("DiskMissing; the disk is missing since"), "{spoken}");
    is_sound(&mut browser, "by the keyboard");
}

#[test]
fn what_changes_in_the_cluster_changes_on_the_page_and_a_page_without_an_answer_says_so() {
    let Some(mut browser) = Browser::start() else { return };
    let served = serve(well(3, 4));
    browser.open(&served.url);
    assert_eq!(browser.text("h1"), "Nothing is wrong");
    browser.value("document.querySelector('.set details').open = true");
    // Nothing is wrong, so Tab leads to the first tile.
    browser.value("document.querySelector('.t').focus()");
    let mut changed = well(3, 4);
    changed.fail("worker-02", 1, "DiskMediaErrors", "sectors cannot be read");
    let pool: DevicePool = serde_json::from_value(changed.pool("worker-02").clone()).unwrap();
    served.stores.pools.hold(pool);
    // As if the page were shown again; else it asks within five seconds.
    let ask = "document.dispatchEvent(new Event('visibilitychange'))";
    browser.value(ask);
    browser.until("document.querySelector('h1').innerText === '1 of 12 disks is wrong'");
    assert_eq!(browser.text(".n h3"), "worker-02", "the worst is first now");
    assert_eq!(browser.value("document.querySelector('.set details').open"), true, "what was open stays open");
    let focused = "document.activeElement.closest('article')?.dataset.node + ' ' + document.activeElement.innerText";
    assert_eq!(browser.value(focused), "worker-01 sdb", "and what had the focus keeps it");
    let answers = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/content'))";
    browser.value(ask);
    browser.until(&format!("{answers}.at(-1).responseStatus === 304"));
    is_sound(&mut browser, "live");
    drop(served);
    browser.value(ask);
    browser.until("document.body.classList.contains('stale')");
    assert!(browser.text("#live").starts_with("no answer; what is shown is of "));
}

#[test]
fn a_volume_says_which_pods_use_it_and_several_are_read_by_the_keyboard_and_on_a_phone() {
    let Some(mut browser) = Browser::start() else { return };
    let mut sample = well(1, 2);
    let claim = &sample.pods.last().unwrap()["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    let claim = claim.as_str().unwrap().to_owned();
    let namespace = sample.pods.last().unwrap()["metadata"]["namespace"].as_str().unwrap().to_owned();
    sample.pods.extend(["job-a", "job-b"].map(|name| pod(&namespace, name, &[&claim])));
    let served = serve(sample.clone());
    browser.open(&served.url);
    assert_eq!(browser.value("[...document.querySelectorAll('thead th')].map((th) => th.innerText)[1]"), "Pods");
    let cells = "[...document.querySelectorAll('tbody [data-l=Pods]')]";
    let summary = "document.querySelector('tbody details summary')";
    let one = browser.value(&format!("{cells}.find((td) => !td.querySelector('details')).innerText"));
    assert!(sample.pods.iter().any(|pod| pod["metadata"]["name"] == one), "{one}");
    browser.value(&format!("{summary}.focus()"));
    browser.key(" ", 32);
    let opened = format!("{summary}.parentElement.open && {summary}.parentElement.innerText.includes('job-b')");
    browser.until(&opened);
    is_sound(&mut browser, "with the pods");
    // It stays open when another pod comes, which the page shows by itself.
    sample.pods.push(pod(&namespace, "a-new-one", &[&claim]));
    list_pods(&served.page, &sample.pods);
    browser.value("document.dispatchEvent(new Event('visibilitychange'))");
    browser.until(&format!("{summary}.innerText === 'a-new-one and 3 more' && {opened}"));
    for width in [390, 1280] {
        browser.window(width, 780);
        browser.value(&format!("{summary}.scrollIntoView()"));
        is_sound(&mut browser, "the pods on a phone and beside each other");
        browser.picture(&target(&format!("status-page-pods-{width}")));
    }
    browser.value("document.querySelector('[name=q]').focus()");
    browser.type_text("job-a");
    browser.until("document.querySelectorAll('tbody tr').length === 1");
}

#[test]
fn five_hundred_nodes_are_shown_and_a_word_finds_one_of_them() {
    let Some(mut browser) = Browser::start() else { return };
    let mut sample = well(500, 10);
    sample.fail("worker-321", 4, "DiskFailing", "it fails");
    let served = serve(sample);
    browser.open(&served.url);
    assert_eq!(browser.value("document.querySelectorAll('.t.g').length"), 4999);
    assert_eq!(browser.text(".n h3"), "worker-321");
    is_sound(&mut browser, "500 nodes");
    browser.picture(&target("status-page-500"));
    browser.value("document.querySelector('[name=q]').focus()");
    browser.type_text("worker-77");
    browser.until("document.querySelectorAll('.n').length === 1");
    assert_eq!(browser.value("location.search"), "?q=worker-77");
    browser.value("{ const s = document.querySelector('[name=q]'); s.value = ''; document.querySelector('[name=show]').value = 'wrong'; \
                   document.querySelector('form').requestSubmit(); }");
    browser.until("location.search === '?show=wrong' && document.querySelector('.n h3')?.innerText === 'worker-321'");
    assert_eq!(browser.value("document.querySelectorAll('.t').length"), 1);
    is_sound(&mut browser, "filtered");
}

#[test]
fn no_name_of_hardware_or_of_a_tenant_becomes_part_of_the_page() {
    let Some(mut browser) = Browser::start() else { return };
    let served = serve(hostile());
    browser.window(390, 780);
    browser.open(&served.url);
    assert_eq!(browser.value("document.querySelectorAll('tbody details summary b, tbody li > *').length"), 0);
    assert!(browser.text("tbody details summary").starts_with("<script>document.title"));
    for query in ["", "?q=%22%3E%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E"] {
        browser.open(&format!("{}{query}", served.url));
        let made = browser
            .value("[document.scripts.length, document.querySelectorAll('img, i, [onmouseover], [onerror]').length]");
        assert_eq!(made, json!([1, 0]), "{query}");
        assert!(browser.text("h1").ends_with("wrong"), "{query}");
        is_sound(&mut browser, query);
    }
    browser.open(&served.url);
    browser.point_at(".t.b");
    browser.until("document.querySelector('#detail').innerText.includes('<script>document.title')");
    assert_eq!(browser.value("document.querySelectorAll('#detail script, #detail b').length"), 0);
    is_sound(&mut browser, "the reason");
    // What an inline script would do is forbidden as well, if ever one got in.
    browser.value(
        "{ const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); }",
    );
    assert!(browser.value("window.owned").is_null());
}

fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/test/{name}.png"))
}

/// A picture of the page, also for the documents if that is wished.
fn picture(browser: &mut Browser, name: &str) {
    browser.picture(&target(name));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        browser.picture(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/images/{name}.png")));
    }
}

#[test]
fn the_pictures_of_the_page_are_there_and_small() {
    for name in ["light", "dark", "phone"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/images/status-page-{name}.png"));
        let picture = std::fs::read(&file).unwrap();
        assert!(
            picture.starts_with(b"\x89PNG") && picture.len() < 150_000,
            "{}: {} bytes",
            file.display(),
            picture.len()
        );
    }
}
