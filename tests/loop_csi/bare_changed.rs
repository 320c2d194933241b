//! What a bare device keeps of its earlier volume: the read-only flag, and the space that it gained by growing.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::{Command, Stdio};

use localpool_testing::{MIB, eventually, run, text};
use nix::sys::stat::{Mode, SFlag, mknod};

use crate::client::{assert_refused, block, create, publish};
use crate::driver::{SOON, Start, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_bare_volume_that_was_published_read_only_is_served_after_a_restart_and_erased() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "bare", "bare.img", "layout: RawDevice"));
    let (driver, mut client) = start.ready().await;
    let all = client.capacity("bare", &block()).await;
    let made = client.create(create(&lab.named("vm"), "bare", MIB, &block())).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    OpenOptions::new().write(true).open(&target).unwrap().write_all_at(&[0x77; 8192], MIB).unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    let mut request = publish(&made.id, &staging, &target, &block());
    request.readonly = true;
    client.node.node_publish_volume(request).await.unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    driver.stop();

    let (driver, mut client) = start.ready().await;
    driver.await_verdict(&disk.node, "Ours", &format!("in pool as a bare device, holds volume {}", made.id));
    client.delete(&made.id).await.unwrap();
    client.await_capacity("bare", &block(), all).await;
    assert!(disk.is_blank());
    let made = client.create(create(&lab.named("next"), "bare", MIB, &block())).await;
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    OpenOptions::new().write(true).open(&target).unwrap().write_all_at(&[0x77; 8192], MIB).unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_what_a_bare_device_gained_while_it_had_a_volume_is_not_in_the_next_one() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "bare", "bare.img", "layout: RawDevice")).ready().await;
    let made = client.create(create(&lab.named("vm"), "bare", MIB, &block())).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    client.publish(&made.id, &staging, &target, &block()).await.unwrap();
    OpenOptions::new().write(true).open(&disk.image).unwrap().set_len(128 * MIB).unwrap();
    run("losetup", &["--set-capacity", disk.path()]);
    let device = OpenOptions::new().write(true).open(&target).unwrap();
    device.write_all_at(&[0x77; 4096], 101 * MIB).unwrap();
    device.sync_all().unwrap();
    drop(device);
    client.unpublish(&made.id, &target).await.unwrap();
    client.delete(&made.id).await.unwrap();
    client.await_capacity("bare", &block(), (128 * MIB, 128 * MIB)).await;
    assert!(disk.is_blank());
    driver.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_bare_volume_that_a_process_has_open_is_not_deleted_before_that_closes_it() {
    let lab = crate::lab!();
    let disk = lab.disk("bare", 64 * MIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "bare", "bare.img", "layout: RawDevice")).ready().await;
    let all = client.capacity("bare", &block()).await;
    let made = client.create(create(&lab.named("vm"), "bare", MIB, &block())).await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    // As in a container: a node of its own, with any name.
    let (other, number) = (lab.path("node"), std::fs::metadata(&disk.node).unwrap().rdev());
    mknod(&other, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, number).unwrap();
    for opened in [other, disk.node.clone()] {
        client.publish(&made.id, &staging, &target, &block()).await.unwrap();
        let script = r#"exec 3<>"$0" && echo open && exec sleep 600"#;
        let mut process = Command::new("sh").arg("-c").arg(script).arg(&opened).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut output).unwrap();
        assert_eq!(output, "open\n");
        client.unpublish(&made.id, &target).await.unwrap();
        let refused = client.delete(&made.id).await;
        process.kill().unwrap();
        process.wait().unwrap();
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(&format!("open in sleep (pid {})", process.id())), "{refused}");
    }
    // The kernel has it open, but no process has.
    let over = run("losetup", &["--find", "--show", text(&disk.node)]);
    let refused = client.delete(&made.id).await;
    run("losetup", &["--detach", over.trim()]);
    let name = over.trim().trim_start_matches("/dev/");
    let message = format!("below {name}");
    assert_refused(refused, tonic::Code::FailedPrecondition, &[&message, disk.path()]);
    let backing = format!("/sys/block/{name}/loop/backing_file");
    assert!(eventually(SOON, || std::fs::metadata(&backing).is_err()), "{over} stays");
    client.delete(&made.id).await.unwrap();
    client.await_capacity("bare", &block(), all).await;
    driver.stop();
}
