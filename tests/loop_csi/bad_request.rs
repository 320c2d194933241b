//! Requests that are wrong: each is refused with the right code and names what is wrong, no disk is touched, and the
//! driver keeps running.

use localpool::rpc::proto::volume_capability::access_mode::Mode;
use localpool::rpc::proto::volume_content_source::{SnapshotSource, Type};
use localpool::rpc::proto::*;
use localpool_testing::{GIB, MIB, text};
use tonic::Code;

use crate::client::{Client, Made, assert_refused, block, capability, create, mount, of_kind, publish, range, stage};
use crate::driver::{CARVED, Driver, Start, WHOLE, set};
use crate::lab::{Disk, Lab};

/// A driver with a carved and a whole disk, and a volume on the first, which nothing here may change.
struct Bench {
    disks: [Disk; 2],
    before: [(u64, u64); 2],
    made: Made,
    client: Client,
    driver: Driver,
}

const INVALID: Code = Code::InvalidArgument;

impl Bench {
    async fn new(lab: &Lab) -> Self {
        let disks = [lab.disk("carved", 128 * MIB), lab.disk("whole", 64 * MIB)];
        let sets = set(lab, "carved", "carved.img", CARVED) + &set(lab, "whole", "whole.img", WHOLE);
        let (driver, mut client) = Start::new(lab, &sets).ready().await;
        let made = client.create(create(&lab.named("kept"), "carved", 20 * MIB, &mount("ext4"))).await;
        let before = disks.each_ref().map(|disk| (disk.fingerprint(), disk.writes()));
        Self { disks, before, made, client, driver }
    }

    async fn assert_untouched(mut self) {
        assert!(self.client.is_ready().await && self.driver.is_running());
        assert_eq!(self.client.ids().await, [self.made.id.clone()]);
        let now = self.disks.each_ref().map(|disk| (disk.fingerprint(), disk.writes()));
        assert!(self.before.iter().all(|(_, writes)| *writes > 0), "the counters count");
        assert_eq!(now, self.before, "a refused request wrote to a disk");
    }
}

/// A request with one thing changed.
fn with<R: Clone>(request: &R, change: impl FnOnce(&mut R)) -> R {
    let mut request = request.clone();
    change(&mut request);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_missing_field_is_refused_by_its_name_in_every_call() {
    let lab = crate::lab!();
    let mut bench = Bench::new(&lab).await;
    let (id, client) = (bench.made.id.clone(), &mut bench.client);
    let (staging, target) = (lab.path("staging"), lab.path("target"));

    let good = create(&lab.named("new"), "carved", 20 * MIB, &block());
    let mut bad = vec![
        (with(&good, |r| r.name.clear()), "name"),
        (with(&good, |r| r.volume_capabilities.clear()), "volume_capabilities"),
        (with(&good, |r| r.volume_capabilities[0].access_mode = None), "access_mode"),
        (with(&good, |r| r.volume_capabilities[0].access_type = None), "`mount` nor `block`"),
        (with(&good, |r| r.capacity_range = Some(CapacityRange::default())), "capacity_range"),
    ];
    for (request, field) in bad.drain(..) {
        assert_refused(client.try_create(request).await, INVALID, &[field]);
    }
    assert_refused(client.delete("").await, INVALID, &["volume_id"]);
    assert_refused(client.get("").await, INVALID, &["volume_id"]);
    assert_refused(client.expand("", MIB, 0).await, INVALID, &["volume_id"]);
    let no_range = ControllerExpandVolumeRequest { volume_id: id.clone(), ..Default::default() };
    assert_refused(client.controller.controller_expand_volume(no_range).await, INVALID, &["capacity_range"]);
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: vec![mount("ext4")],
        ..Default::default()
    };
    for (request, field) in [
        (with(&validate, |r| r.volume_id.clear()), "volume_id"),
        (with(&validate, |r| r.volume_capabilities.clear()), "volume_capabilities"),
    ] {
        assert_refused(client.controller.validate_volume_capabilities(request).await, INVALID, &[field]);
    }
    let good = stage(&id, &staging, &mount("ext4"));
    for (request, field) in [
        (with(&good, |r| r.volume_id.clear()), "volume_id"),
        (with(&good, |r| r.staging_target_path.clear()), "staging_target_path"),
        (with(&good, |r| r.volume_capability = None), "volume_capability"),
    ] {
        assert_refused(client.node.node_stage_volume(request).await, INVALID, &[field]);
    }
    let good = publish(&id, &staging, &target, &mount("ext4"));
    for (request, field) in [
        (with(&good, |r| r.volume_id.clear()), "volume_id"),
        (with(&good, |r| r.target_path.clear()), "target_path"),
        (with(&good, |r| r.volume_capability = None), "volume_capability"),
    ] {
        assert_refused(client.node.node_publish_volume(request).await, INVALID, &[field]);
    }
    let nowhere = std::path::Path::new("");
    assert_refused(client.unstage("", &staging).await, INVALID, &["volume_id"]);
    assert_refused(client.unstage(&id, nowhere).await, INVALID, &["staging_target_path"]);
    assert_refused(client.unpublish("", &target).await, INVALID, &["volume_id"]);
    assert_refused(client.unpublish(&id, nowhere).await, INVALID, &["target_path"]);
    assert_refused(client.stats("", &target).await, INVALID, &["volume_id"]);
    assert_refused(client.stats(&id, nowhere).await, INVALID, &["volume_path"]);
    assert_refused(client.node_expand("", &target, MIB).await, INVALID, &["volume_id"]);
    assert_refused(client.node_expand(&id, nowhere, MIB).await, INVALID, &["volume_path"]);
    bench.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_names_and_paths_that_are_too_long_or_lead_elsewhere_are_refused() {
    let lab = crate::lab!();
    let mut bench = Bench::new(&lab).await;
    let (id, client) = (bench.made.id.clone(), &mut bench.client);
    let good = create(&lab.named("new"), "carved", 20 * MIB, &block());
    let long = "n".repeat(129);
    assert_refused(client.try_create(with(&good, |r| r.name = long.clone())).await, INVALID, &["name", "129", "128"]);
    for control in ["a\u{0}b", "a\u{8}", "\u{1b}[31m", "a\u{7f}b", "a\u{9f}b"] {
        let request = with(&good, |r| r.name = control.to_owned());
        assert_refused(client.try_create(request).await, INVALID, &["name", "control"]);
    }
    assert_refused(client.delete(&long).await, INVALID, &["volume_id", "129"]);
    assert_refused(client.get(&long).await, INVALID, &["volume_id", "129"]);
    // An id that localpool did not make names none of its volumes.
    for stranger in ["../../etc/passwd", "x", &id.to_uppercase(), &format!("{id} ")] {
        client.delete(stranger).await.unwrap();
        assert_refused(client.get(stranger).await, Code::NotFound, &[stranger]);
        assert_refused(client.expand(stranger, MIB, 0).await, Code::NotFound, &[stranger]);
        let staged = client.stage(stranger, &lab.path("staging"), &mount("ext4")).await;
        assert_refused(staged, Code::NotFound, &[stranger]);
    }
    let dir = text(&lab.dir);
    for bad in [
        "relative/path",
        "../up",
        &format!("{dir}/inner/../up"),
        &format!("{dir}/a\0b"),
        &format!("/{}", "p".repeat(4096)),
    ] {
        let staged = with(&stage(&id, &lab.dir, &mount("ext4")), |r| r.staging_target_path = bad.to_owned());
        assert_refused(client.node.node_stage_volume(staged).await, INVALID, &["staging_target_path"]);
        let published = publish(&id, &lab.path("staging"), &lab.dir, &mount("ext4"));
        let target = with(&published, |r| r.target_path = bad.to_owned());
        assert_refused(client.node.node_publish_volume(target).await, INVALID, &["target_path"]);
        let staging = with(&published, |r| r.staging_target_path = bad.to_owned());
        assert_refused(client.node.node_publish_volume(staging).await, INVALID, &["staging_target_path"]);
        let bad = std::path::Path::new(bad);
        assert_refused(client.unstage(&id, bad).await, INVALID, &["staging_target_path"]);
        assert_refused(client.unpublish(&id, bad).await, INVALID, &["target_path"]);
        assert_refused(client.stats(&id, bad).await, Code::NotFound, &["volume_path"]);
        assert_refused(client.node_expand(&id, bad, MIB).await, Code::NotFound, &["volume_path"]);
    }
    bench.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_name_of_128_bytes_and_one_like_a_path_are_just_names() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 128 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    let long = format!("{:x<128}", lab.node());
    for name in [long, format!("../../{}", lab.node()), format!("ä / ☃ {}", lab.node())] {
        let made = client.create(create(&name, "fast", 4 * MIB, &block())).await;
        assert_eq!(made.id.len(), 36);
        client.delete(&made.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_capabilities_that_a_local_volume_cannot_have_are_refused() {
    let lab = crate::lab!();
    let mut bench = Bench::new(&lab).await;
    let (id, client) = (bench.made.id.clone(), &mut bench.client);
    let good = create(&lab.named("new"), "carved", 20 * MIB, &block());
    let type_of = |capability: VolumeCapability| capability.access_type.unwrap();
    for (bad, message) in [
        (vec![block(), mount("ext4")], "contradict"),
        (vec![mount("xfs"), mount("ext4")], "contradict"),
        (vec![mount("zfs")], "zfs"),
        (vec![capability(Mode::MultiNodeMultiWriter, type_of(block()))], "MULTI_NODE_MULTI_WRITER"),
        (vec![capability(Mode::MultiNodeReaderOnly, type_of(mount("")))], "MULTI_NODE_READER_ONLY"),
        (vec![block(), capability(Mode::MultiNodeSingleWriter, type_of(block()))], "MULTI_NODE_SINGLE_WRITER"),
        (vec![capability(Mode::Unknown, type_of(block()))], "access_mode"),
    ] {
        let request = with(&good, |r| r.volume_capabilities = bad.clone());
        assert_refused(client.try_create(request).await, INVALID, &[message]);
        let capacity = GetCapacityRequest { volume_capabilities: bad.clone(), ..Default::default() };
        assert_refused(client.controller.get_capacity(capacity).await, INVALID, &[message]);
        // Asking whether they are possible is no error; the answer is no.
        let validate =
            ValidateVolumeCapabilitiesRequest { volume_id: id.clone(), volume_capabilities: bad, ..Default::default() };
        let answer = client.controller.validate_volume_capabilities(validate).await.unwrap().into_inner();
        assert!(answer.confirmed.is_none() && answer.message.contains(message), "{answer:?}");
    }
    let validate = |wanted: VolumeCapability| ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: vec![wanted],
        ..Default::default()
    };
    for (wanted, confirmed) in [(mount("ext4"), true), (mount(""), true), (mount("xfs"), false), (block(), false)] {
        let answer = client.controller.validate_volume_capabilities(validate(wanted)).await.unwrap().into_inner();
        assert_eq!(answer.confirmed.is_some(), confirmed, "{answer:?}");
    }
    let unknown = with(&validate(block()), |r| r.volume_id = "nobody".to_owned());
    let refused = client.controller.validate_volume_capabilities(unknown).await;
    assert_refused(refused, Code::NotFound, &["nobody"]);
    // A volume is used as what it was made for.
    for (wanted, message) in [(block(), "filesystem"), (mount("xfs"), "ext4")] {
        assert_refused(client.stage(&id, &lab.path("staging"), &wanted).await, INVALID, &[message]);
        let refused = client.publish(&id, &lab.path("staging"), &lab.path("target"), &wanted).await;
        assert_refused(refused, INVALID, &[message]);
    }
    bench.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_sizes_that_cannot_be_had_are_refused_with_what_could_be_had() {
    let lab = crate::lab!();
    let mut bench = Bench::new(&lab).await;
    let (made, client) = (bench.made.clone(), &mut bench.client);
    let sized = |class: &str, required: i64, limit: i64| {
        let mut request = create(&lab.named("new"), class, MIB, &block());
        request.capacity_range = Some(CapacityRange { required_bytes: required, limit_bytes: limit });
        request
    };
    let whole = client.capacity("whole", &block()).await.1;
    let carved = client.capacity("carved", &block()).await.1;
    let (mib, gib) = (1 << 20, i64::try_from(GIB).unwrap());
    for (request, code, words) in [
        (sized("carved", 0, 0), INVALID, vec!["capacity_range".to_owned()]),
        (sized("carved", -1, 0), INVALID, vec!["required_bytes".to_owned(), "-1".to_owned()]),
        (sized("carved", mib, -5), INVALID, vec!["limit_bytes".to_owned(), "-5".to_owned()]),
        (sized("carved", 2 * mib, mib), INVALID, vec!["limit_bytes".to_owned(), "required_bytes".to_owned()]),
        (sized("carved", gib, 0), Code::ResourceExhausted, vec![gib.to_string(), carved.to_string()]),
        (sized("carved", i64::MAX, 0), Code::ResourceExhausted, vec![carved.to_string()]),
        (sized("whole", mib, 2 * mib), Code::OutOfRange, vec![(2 * mib).to_string(), whole.to_string()]),
        (sized("carved", 10, 100), Code::OutOfRange, vec!["100".to_owned(), mib.to_string()]),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_refused(client.try_create(request).await, code, &words);
    }
    let small_xfs = with(&sized("carved", mib, 299 * mib), |r| r.volume_capabilities = vec![of_kind(Some("xfs"))]);
    assert_refused(client.try_create(small_xfs).await, Code::OutOfRange, &["xfs", &(300 * mib).to_string()]);

    let expand = |required, limit| ControllerExpandVolumeRequest {
        volume_id: made.id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: required, limit_bytes: limit }),
        ..Default::default()
    };
    let growable = (made.size + carved).to_string();
    for (request, code, words) in [
        (expand(0, 0), INVALID, "capacity_range"),
        (expand(-7, 0), INVALID, "-7"),
        (expand(30 * mib, 29 * mib), INVALID, "limit_bytes"),
        (expand(gib, 0), Code::OutOfRange, &growable),
        (expand(i64::MAX, 0), Code::OutOfRange, &growable),
        (expand(mib, 2 * mib), Code::OutOfRange, &made.size.to_string()),
    ] {
        assert_refused(client.controller.controller_expand_volume(request).await, code, &[words]);
    }
    client.stage(&made.id, &lab.path("staging"), &mount("ext4")).await.unwrap();
    bench.before = bench.disks.each_ref().map(|disk| (disk.fingerprint(), disk.writes()));
    let beyond = client.node_expand(&made.id, &lab.path("staging"), made.size + MIB).await;
    assert_refused(beyond, Code::OutOfRange, &[&made.size.to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_parameters_and_sources_that_are_not_known_are_refused_by_name() {
    let lab = crate::lab!();
    let mut bench = Bench::new(&lab).await;
    let client = &mut bench.client;
    let good = create(&lab.named("new"), "carved", 20 * MIB, &block());
    let parameter =
        |key: &str, value: &str| with(&good, |r| drop(r.parameters.insert(key.to_owned(), value.to_owned())));
    let snapshot = VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: "s".to_owned() })) };
    let elsewhere = TopologyRequirement {
        requisite: vec![Topology { segments: [("topology.localpool.dev/node".to_owned(), "moon".to_owned())].into() }],
        preferred: Vec::new(),
    };
    for (request, code, words) in [
        (parameter("clas", "carved"), INVALID, "clas"),
        (parameter("set", "carved"), INVALID, "namespace"),
        (parameter("class", "nobodys"), Code::ResourceExhausted, "nobodys"),
        (parameter("set", "default/nobodys"), Code::ResourceExhausted, "nobodys"),
        (with(&good, |r| r.parameters.clear()), INVALID, "carved, whole"),
        (with(&good, |r| r.volume_content_source = Some(snapshot)), INVALID, "volume_content_source"),
        (
            with(&good, |r| drop(r.mutable_parameters.insert("iops".into(), "9".into()))),
            INVALID,
            "mutable_parameters.iops",
        ),
        (with(&good, |r| r.accessibility_requirements = Some(elsewhere)), Code::ResourceExhausted, "moon|node"),
    ] {
        let words: Vec<&str> = words.split('|').filter(|word| *word != "moon").collect();
        assert_refused(client.try_create(request).await, code, &words);
    }
    let provisioners = parameter("csi.storage.k8s.io/pvc/name", "data");
    let made = client.create(with(&provisioners, |r| r.capacity_range = Some(range(MIB, 0)))).await;
    client.delete(&made.id).await.unwrap();
}
