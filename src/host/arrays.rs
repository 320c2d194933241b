//! md arrays: made, started and stopped by mdadm.
//!
//! Takes in nodes of devices and what array they are, or are to be; gives out success, or mdadm's own last words. It
//! never writes to a device that it was not given, and never starts an array that lacks a member.

use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::command::TimedCommand;
use super::error::HostError;
use super::port::{Arrays, NewArray};
use super::raw::RawDisk;
use super::roots::Roots;
use super::sysfs;

/// mdadm writes a superblock to each member, and waits for udev for some seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// The arrays of this machine.
#[derive(Clone, Debug, Default)]
pub(super) struct RealArrays;

impl Arrays for RealArrays {
    fn supported(&self) -> Result<(), HostError> {
        mdadm(&["--version".to_owned()])?;
        may_have_md(&Roots::default().proc)
    }

    fn make(&self, array: &NewArray) -> Result<(), HostError> {
        mdadm(&make_args(array)).map(drop)
    }

    fn assemble(&self, uuid: Uuid, members: &[PathBuf]) -> Result<(), HostError> {
        mdadm(&assemble_args(uuid, members)).map(drop)
    }

    fn stop(&self, array: &RawDisk) -> Result<(), HostError> {
        sysfs::prove_same_array(&Roots::default(), array)?;
        mdadm(&["--stop".to_owned(), array.path.display().to_string()]).map(drop)
    }
}

/// An mdadm that was left behind could open the devices later, when they hold data.
fn mdadm(args: &[String]) -> Result<(), HostError> {
    // The host's own configuration says nothing of these arrays.
    let args = args.iter().cloned().chain(["--config=none".to_owned()]);
    TimedCommand::new("mdadm", LIMIT).ends_with_us().args(args).run().map(drop)
}

/// A kernel loads md for the first array. One that loads nothing has it, or never will.
fn may_have_md(proc: &Path) -> Result<(), HostError> {
    match proc.join("mdstat").exists() || proc.join("modules").exists() {
        true => Ok(()),
        false => Err(HostError::Unsupported {
            what: "the kernel has no md (CONFIG_BLK_DEV_MD), and loads no modules".to_owned(),
        }),
    }
}

fn make_args(array: &NewArray) -> Vec<String> {
    let NewArray { uuid, level, chunk, members } = array;
    let name = name(*uuid);
    let mut args = vec![
        "--create".to_owned(),
        format!("/dev/md/{name}"),
        // What is on the devices is of no use to anybody, so that is no question.
        "--run".to_owned(),
        "--metadata=1.2".to_owned(),
        // Every host starts it under the same name.
        "--homehost=any".to_owned(),
        format!("--name={name}"),
        format!("--uuid={}", words(*uuid)),
        format!("--level={level}"),
        format!("--chunk={}", chunk / 1024),
        format!("--raid-devices={}", members.len()),
    ];
    // One member is not what mdadm expects.
    if members.len() == 1 {
        args.push("--force".to_owned());
    }
    args.extend(members.iter().map(|member| member.display().to_string()));
    args
}

fn assemble_args(uuid: Uuid, members: &[PathBuf]) -> Vec<String> {
    let mut args = vec!["--assemble".to_owned(), format!("/dev/md/{}", name(uuid)), format!("--uuid={}", words(uuid))];
    args.extend(members.iter().map(|member| member.display().to_string()));
    args
}

/// Short enough for the superblock, beside the name of a home host.
fn name(uuid: Uuid) -> String {
    let hex = uuid.simple().to_string();
    format!("localpool-{}", hex.get(..12).unwrap_or(&hex))
}

/// As mdadm writes a UUID.
fn words(uuid: Uuid) -> String {
    let hex = uuid.simple().to_string();
    let word = |at: usize| hex.get(at..at + 8).unwrap_or_default();
    [0, 8, 16, 24].map(word).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid::from_u128(0x0123_4567_89ab_4cde_8f10_3254_7698_ba01);

    fn array(members: &[&str]) -> NewArray {
        NewArray { uuid: UUID, level: "raid0", chunk: 512 << 10, members: members.iter().map(PathBuf::from).collect() }
    }

    #[test]
    fn an_array_is_made_of_just_its_members_with_a_name_that_every_host_keeps() {
        assert_eq!(
            make_args(&array(&["/dev/sda2", "/dev/sdb2"])).join(" "),
            "--create /dev/md/localpool-0123456789ab --run --metadata=1.2 --homehost=any --name=localpool-0123456789ab \
             --uuid=01234567:89ab4cde:8f103254:7698ba01 --level=raid0 --chunk=512 --raid-devices=2 /dev/sda2 /dev/sdb2"
        );
    }

    #[test]
    fn a_kernel_without_md_is_told_from_one_that_can_load_it() {
        let proc = tempfile::tempdir().expect("a folder");
        let why = may_have_md(proc.path()).expect_err("neither is there").to_string();
        assert!(why.contains("the kernel has no md"), "{why}");
        for file in ["modules", "mdstat"] {
            let proc = tempfile::tempdir().expect("a folder");
            std::fs::write(proc.path().join(file), "").expect("written");
            may_have_md(proc.path()).expect("it has it, or can load it");
        }
    }

    #[test]
    fn only_an_array_of_one_member_is_forced() {
        assert!(make_args(&array(&["/dev/sda2"])).join(" ").ends_with("--raid-devices=1 --force /dev/sda2"));
        assert!(!make_args(&array(&["/dev/sda2", "/dev/sdb2"])).contains(&"--force".to_owned()));
    }

    #[test]
    fn an_array_is_started_by_its_uuid_of_just_its_members_and_never_forced_or_run() {
        let args = assemble_args(UUID, &array(&["/dev/sda2", "/dev/sdb2"]).members).join(" ");
        assert_eq!(
            args,
            "--assemble /dev/md/localpool-0123456789ab --uuid=01234567:89ab4cde:8f103254:7698ba01 \
             /dev/sda2 /dev/sdb2"
        );
    }
}
