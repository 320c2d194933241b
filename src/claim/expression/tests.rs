use std::collections::BTreeSet;

use proptest::prelude::*;

use super::facts::FACTS;
use super::*;
use crate::device::{
    Reach,
    sample::{disk, holds, unclaimed},
};
use crate::host::RawDisk;

const LOCAL: Attachment = Attachment { reach: Reach::Local, by: None };

fn parse(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match Expression::parse(text) {
        Ok(_) => panic!("{text} was taken"),
        Err(error) => error.to_string(),
    }
}

fn device() -> Device {
    let raw = RawDisk {
        vendor: Some("SEAGATE ".into()),
        model: Some("ST8000NM000A".into()),
        wwid: Some("naa.5000c500a1b2c3d4".into()),
        transport: Some("sas".into()),
        rotational: true,
        numa_node: Some(1),
        links: vec!["/dev/disk/by-id/wwn-0x5000c500a1b2c3d4".into(), "/dev/disk/by-path/pci-0000:3b:00.0-sas-1".into()],
        ..unclaimed("sda").raw
    };
    Device { link: raw.links[0].clone(), raw, ..unclaimed("sda") }
}

fn ask(text: &str, device: &Device) -> Result<(), Mismatch> {
    parse(text).selects(device, LOCAL)
}

#[test]
fn each_fact_of_a_device_is_there_by_the_name_that_discovery_gives_it() {
    let device = device();
    for text in [
        "device.name == 'sda' && device.path == '/dev/sda' && device.type == 'disk'",
        "device.size == 107374182400 && device.size >= 100 * 1024 * 1024 * 1024",
        "device.vendor == 'SEAGATE' && device.model.startsWith('ST') && device.serial == 'SN-sda'",
        "device.wwn == '0x5000c500a1b2c3d4' && device.deviceID.endsWith(device.wwn)",
        "device.tran == 'sas' && device.transport == device.tran && device.rotational && device.property == 'Rotational'",
        "device.logicalSectorSize == 512 && device.physicalSectorSize == 4096 && device.numaNode == 1",
        "device.byPath.contains('3b:00') && device.links.exists(link, link.contains('by-path'))",
        "device.attachment == 'Local' && device.attachedBy == '' && device.diskId != ''",
        "!device.readOnly && !device.removable && device.discard && device.zoned == ''",
        "device.model.matches('(?i)^st[0-9]+nm') && device['model'] in ['ST8000NM000A', 'other']",
        "has(device.model) && type(device.size) == int && size(device.links) == 2",
        "device.links.filter(l, l.startsWith('/dev/disk/by-id/')).map(l, size(l)).all(n, n > 5)",
    ] {
        assert_eq!(ask(text, &device), Ok(()), "{text}");
    }
    assert_eq!(FACTS.len(), FACTS.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len());
}

/// A set that was written against a name, its type or its words goes on.
#[test]
fn each_name_means_what_it_has_always_meant() {
    let mut raw = RawDisk { serial: Some(" S1 ".into()), zoned: Some("host-aware".into()), ..device().raw };
    raw.links.extend((0..70).map(|n| format!("/dev/disk/by-id/more-{n}").into()));
    (raw.size, raw.read_only, raw.removable) = (u64::MAX, true, true);
    let bare = Device { raw: disk("sdb"), link: "/dev/sdb".into(), ..unclaimed("sdb") };
    let network = Attachment { reach: Reach::Network, by: Some("Amazon EBS") };
    let mut listed = String::new();
    for (of, attachment) in [(Device { raw, ..device() }, network), (bare, LOCAL)] {
        let Value::Map(all) = facts(&Observed { device: &of, attachment, shown_verdict: None }) else {
            panic!("no map")
        };
        let mut lines: Vec<String> = all.map.iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
        lines.sort_unstable();
        listed.extend(lines);
    }
    holds("claim/expression/golden/facts", &format!("{}\n{listed}", facts::fields()));
}

#[test]
fn a_fact_that_is_not_known_is_an_empty_text_and_fails_no_expression() {
    let bare = Device { raw: disk("sda"), link: "/dev/sda".into(), ..unclaimed("sda") };
    let none =
        "device.vendor == '' && device.serial == '' && device.wwn == '' && device.tran == '' && device.deviceID == ''";
    assert_eq!(ask(none, &bare), Ok(()));
    assert_eq!(ask("device.numaNode == -1 && device.byPath == '' && size(device.links) == 0", &bare), Ok(()));
    for (name, _) in FACTS.iter() {
        assert_eq!(ask(&format!("device.{name} == device.{name}"), &bare), Ok(()), "{name}");
    }
}

#[test]
fn a_device_for_which_it_is_not_true_is_left_and_so_is_one_on_which_it_fails() {
    let device = device();
    let refusal_of = |text: &str| ask(text, &device).unwrap_err().to_string();
    assert_eq!(refusal_of("device.size < 5"), "the expression is not true for it: device.size < 5");
    for (text, why) in [
        ("device.size", "it returns a number, not true or false"),
        ("device.model", "it returns a string, not true or false"),
        ("device.links", "it returns a list, not true or false"),
        ("device.links[7] == ''", "Index out of bounds"),
        ("device.size / (device.numaNode - 1) > 0", "Division by zero"),
        ("device.size > '1Gi'", "no matching overload"),
        ("9223372036854775807 + device.size > 0", "Overflow"),
        ("device[device.name] == ''", "No such key: sda"),
    ] {
        let message = refusal_of(text);
        assert!(
            message.starts_with("the expression cannot be evaluated for it: ") && message.contains(why),
            "{message}"
        );
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn what_is_not_known_or_not_allowed_is_refused_when_it_is_read() {
    for (text, why) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("disk.size > 5", "\"disk\" is not known; the only variable is `device`"),
        ("device.sise > 5", "`device` has no \"sise\"; it has attachedBy, attachment, byPath"),
        ("device['sise'] > 5", "`device` has no \"sise\""),
        ("has(device.sise)", "`device` has no \"sise\""),
        ("device.size >", "is not valid CEL: line 1, column 14: "),
        ("device.size = 5", "is not valid CEL: line 1, column 13: "),
        ("'", "is not valid CEL: line 1, column 1: "),
        ("lowercase(device.model) == 'a'", "there is no function \"lowercase\" here; there are bool, bytes, contains"),
        ("device.model.lowerAscii() == 'a'", "no function \"lowerAscii\""),
        ("timestamp('2026-01-01T00:00:00Z') == device.name", "no function \"timestamp\""),
        ("device.model.matches('(')", "the pattern \"(\" of matches: unclosed group"),
        ("device.model.matches('(a{1000}){1000}')", "of matches: "),
        ("device.model.matches(device.name)", "a pattern of matches that is not a constant string"),
        ("{'a': 1}['a'] == 1", "makes a map"),
        ("a.b{c: 1} == 1", "makes a map or a message"),
        ("optional.of(1).hasValue()", "there is no function \"hasValue\""),
        ("device.links.exists(l, l + l == '')", "joins with + inside a macro"),
        ("(device.links + device.links).exists(l, l == '')", "joins with + inside a macro"),
        ("device.links.map(l, [l, l]).all(l, true)", "makes a list or map of the elements of a macro"),
        ("device.links.exists(l, m == '')", "\"m\" is not known"),
        ("device.links.exists(l, true) && l == ''", "\"l\" is not known"),
    ] {
        let message = refusal(text);
        assert!(message.contains(why), "{text}: {message}");
    }
    assert_eq!(refusal(&"a".repeat(EXPRESSION_MAX_BYTES + 1)), "has 2049 bytes; at most 2048 are allowed");
    parse("device.links.exists(device, device == '')");
}

#[test]
fn no_depth_ends_the_process_when_it_is_read_and_none_that_is_taken_when_it_is_asked() {
    let nests: [(&str, &str, &str); 12] = [
        ("(", "true", ")"),
        ("[", "1", "]"),
        ("{1:", "1", "}"),
        ("size(", "1", ")"),
        ("[1].all(x,", "true", ")"),
        ("device.links.exists(x,", "true", ")"),
        ("true?", "true", ":false"),
        ("true?false:", "true", ""),
        ("1+", "1", ""),
        ("!", "true", ""),
        ("", "device.links", "[0]"),
        ("", "device.model", ".a"),
    ];
    let device = device();
    for (before, middle, after) in nests {
        let mut taken = 0;
        for times in (1..40).chain([100, 300, 1000, 2000]) {
            let text = before.repeat(times) + middle + &after.repeat(times);
            if let Ok(expression) = Expression::parse(&text) {
                let _ = expression.selects(&device, LOCAL);
                taken = times;
            }
            let open = before.repeat(times);
            let _ = Expression::parse(&open);
        }
        assert!(taken > 0 || after == "}", "{before}{middle}{after}");
    }
    assert_eq!(refusal(&("1".to_owned() + &"+1".repeat(100) + " > 0")), "is nested more than 32 deep");
}

#[test]
fn what_could_take_long_is_refused_however_it_is_built() {
    let list = format!("[{}]", ["1"; 300].join(","));
    for text in [
        format!("{list}.all(a, {list}.all(b, a != b))"),
        "device.links.all(a, device.links.all(b, device.links.all(c, a != b || b != c)))".to_owned(),
        format!("{list}.all(a, device.model.matches('x') || {list}.size() > 0 || device.model.matches('y'))"),
    ] {
        let message = refusal(&text);
        assert!(message.starts_with("could take too long on a device (cost "), "{message}");
    }
    parse("device.links.all(a, device.links.all(b, a == b || a != b))");
    parse(&format!("{list}.exists(a, a == device.numaNode)"));
}

#[test]
fn a_long_expression_is_shortened_where_it_is_repeated() {
    let text = format!("device.size < 5 && ({})", ["device.rotational"; 40].join(" ||\n  "));
    let message = ask(&text, &device()).unwrap_err().to_string();
    assert!(message.chars().count() < 200 && message.ends_with(" …") && !message.contains('\n'), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_makes_the_reader_panic(
        text in "(\\(|\\)|\\[|\\]|\\{|\\}|,|:|\\?|\\+|-|!|<=|==|&&|\\|\\||\\.|device|x|1|2u|'s'|in|\\.all\\(x,|has\\(| |\n|\\\\|'|\"|é){0,60}"
    ) {
        if let Err(error) = Expression::parse(&text) {
            prop_assert!(!matches!(error, ExpressionError::Broken(_)), "{error}");
        }
    }
}
