//! The guides for planned work: each is in the index and has its parts. And each value of the chart that a page names is one
//! that the chart has, with the default that the page says.

use regex::Regex;
use serde_json::{Map, Value};

use crate::{read, root};

/// The parts of a guide, in their order; what there is to do stands between the last two, under names of its own.
const PARTS: [&str; 4] = ["When", "What it costs", "Look at", "Undo"];
/// Questions and their answers have no parts.
const WITHOUT_PARTS: &str = "faq.md";
const FOLDER: &str = "docs/guides";

/// The guides, without their index.
fn guides() -> Vec<String> {
    let files = std::fs::read_dir(root().join(FOLDER)).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "README.md");
    names.sort();
    names
}

/// The titles of a page's parts, outside of its blocks.
fn titles(page: &str) -> Vec<&str> {
    let prose = page.split("\n```").step_by(2);
    prose.flat_map(str::lines).filter_map(|line| line.strip_prefix("## ")).collect()
}

#[test]
fn each_guide_is_in_both_indices_and_has_its_parts_in_their_order() {
    let (own, all) = (read(&format!("{FOLDER}/README.md")), read("docs/README.md"));
    let guides = guides();
    assert!(guides.len() > 5, "{guides:?}");
    for guide in &guides {
        assert!(own.contains(&format!("| [{guide}]({guide}) |")), "{guide} is not in the index of the guides");
        assert!(all.contains(&format!("](guides/{guide})")), "{guide} is not in docs/README.md");
        if guide == WITHOUT_PARTS {
            continue;
        }
        let page = read(&format!("{FOLDER}/{guide}"));
        let titles = titles(&page);
        let parts: Vec<&str> = titles.iter().copied().filter(|title| PARTS.contains(title)).collect();
        assert_eq!(parts, PARTS, "{guide} has the parts {titles:?}");
        assert_eq!((titles.first(), titles.last()), (Some(&"When"), Some(&"Undo")), "{guide}");
    }
}

fn values() -> Value {
    serde_saphyr::from_str(&read("charts/localpool/values.yaml")).unwrap()
}

/// The value of the chart with this name, such as `node.http.port`.
fn value<'v>(values: &'v Value, name: &str) -> Option<&'v Value> {
    name.split('.').try_fold(values, |value, word| value.get(word))
}

/// The names of values in a page: what `--set` sets, and code that begins like one.
fn named(page: &str, values: &Map<String, Value>) -> Vec<String> {
    let set = Regex::new(r"--set(?:-string)? ([A-Za-z.]+)").unwrap();
    let code = Regex::new("`([^`]+)`").unwrap();
    let first = values.keys().map(String::as_str).collect::<Vec<_>>().join("|");
    let name = Regex::new(&format!(r"^((?:{first})(?:\.[A-Za-z]+)+)(?:$|[=:\[])")).unwrap();
    let is_file = |name: &String| [".md", ".rs", ".yaml", ".go"].iter().any(|end| name.ends_with(end));
    let prose = page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    let spans = code.captures_iter(&prose).map(|span| span[1].split_whitespace().collect::<Vec<_>>().join(" "));
    let spans = spans.filter_map(|span| name.captures(&span).map(|found| found[1].to_owned()));
    let sets = set.captures_iter(page).map(|found| found[1].to_owned());
    sets.chain(spans).filter(|name| !is_file(name)).collect()
}

/// The names in a part of a values file that the chart does not have. What a map without keys holds, or one of labels, is a
/// person's own.
fn unknown(part: &Value, known: &Value, at: &str) -> Vec<String> {
    let (Some(part), Some(known)) = (part.as_object(), known.as_object()) else { return Vec::new() };
    if known.keys().all(|key| key.contains('/')) {
        return Vec::new();
    }
    let each = part.iter().flat_map(|(key, value)| {
        let at = format!("{at}.{key}");
        known.get(key).map_or_else(|| vec![at.clone()], |known| unknown(value, known, &at))
    });
    each.collect()
}

#[test]
fn each_value_of_the_chart_that_a_page_names_is_one_that_it_has() {
    let values = values();
    let known = values.as_object().unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in crate::links::pages() {
        let text = read(&page);
        for name in named(&text, known) {
            count += 1;
            if value(&values, &name).is_none() {
                wrong.push(format!("{page}: the chart has no value {name}"));
            }
        }
        // A part of a values file, which is no object of Kubernetes.
        for block in text.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let Ok(part) = serde_saphyr::from_str::<Value>(block) else { continue };
            let first = part.as_object().and_then(|part| part.keys().next());
            if first.is_some_and(|first| known.contains_key(first)) {
                count += 1;
                wrong.extend(unknown(&part, &values, &page));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(count > 100, "only {count} were found");
}

#[test]
fn the_defaults_in_the_guide_to_sizing_are_those_of_the_chart() {
    let (page, values) = (read(&format!("{FOLDER}/sizing.md")), values());
    let (_, table) = page.split_once("\n| value | default |").expect("its table");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut count = 0;
    for row in table.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let names = cells[0].split(", ").map(|name| name.trim_matches('`'));
        let found: Vec<&Value> = names.map(|name| value(&values, name).unwrap_or_else(|| panic!("{name}"))).collect();
        let default = match found.iter().all(|value| value.is_object()) {
            true => "requests only".to_owned(),
            false => found.into_iter().map(text).collect::<Vec<_>>().join(", "),
        };
        assert!(cells[1] == default || cells[1].starts_with(&format!("{default}, ")), "{row}: it is {default}");
        count += 1;
    }
    assert!(count > 10, "only {count} rows were found");
}

#[test]
fn the_folders_that_keep_a_node_with_a_controller_are_all_named_to_the_autoscaler() {
    let pod = read("charts/localpool/templates/controller/deployment.yaml");
    let folder = Regex::new(r"- name: ([a-z-]+)\n +emptyDir: \{\}\n").unwrap();
    let folders: Vec<&str> = folder.captures_iter(&pod).map(|found| found.get(1).unwrap().as_str()).collect();
    let line = format!("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: {}\n", folders.join(","));
    assert!(read(&format!("{FOLDER}/autoscaling.md")).contains(&line), "the page does not say: {line}");
}

#[test]
fn a_name_that_the_chart_does_not_have_is_told() {
    let values = values();
    let known = values.as_object().unwrap();
    let page = "`node.nodeSelector` `node.kubernetes.io/x` `discovery.md` `controller.reaction.mode: Off`\n\
                ```sh\nhelm upgrade x y --set node.udev=false\n```\n";
    assert_eq!(named(page, known), ["node.udev", "node.nodeSelector", "controller.reaction.mode"]);
    assert!(value(&values, "node.http.port").is_some() && value(&values, "node.port").is_none());
    let part =
        serde_json::json!({"node": {"udev": true, "nodeSelector": {"a": "b"}, "podAnnotations": {"a": "b"}, "no": 1}});
    assert_eq!(unknown(&part, &values, "values"), ["values.node.no"]);
}
