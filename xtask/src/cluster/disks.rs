//! The disks of a run: loop devices on images in its folder, which is on a disk, as loop devices on
//! tmpfs zero by writing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::super::process::{answer, child, command, output};

const GIB: u64 = 1 << 30;

/// The name of the set, and how many disks of how many bytes it has: enough for all checks that run at the same time.
const DISKS: [(&str, usize, u64); 3] = [("whole", 8, 2 * GIB), ("slots", 1, 66 * GIB), ("carved", 3, 60 * GIB)];

/// How often a device that somebody keeps open is tried again, and how long after the last time.
const TRIES: usize = 50;
const BETWEEN: Duration = Duration::from_millis(200);

fn folder(work: &Path) -> PathBuf {
    work.join("disks")
}

/// What the set of that name selects, as a glob.
pub fn paths_of(work: &Path, set: &str) -> String {
    folder(work).join(format!("{set}-*.img")).display().to_string()
}

pub fn make(root: &Path, work: &Path) -> io::Result<()> {
    fs::create_dir_all(folder(work))?;
    for (set, count, size) in DISKS {
        for number in (1..=count).rev() {
            let image = folder(work).join(format!("{set}-{number}.img"));
            fs::File::create(&image)?.set_len(size)?;
            attach(root, &image)?;
        }
    }
    Ok(())
}

fn attach(root: &Path, image: &Path) -> io::Result<()> {
    let device = answer(child("losetup", root).args(["--find", "--show"]).arg(image))?.map_err(io::Error::other)?;
    // Partitions of an earlier user of the loop device outlive its binding.
    forget_partitions(root, &device);
    Ok(())
}

fn forget_partitions(root: &Path, device: &str) {
    let _ = command("partx", root).args(["--delete", device]).stderr(Stdio::null()).status();
}

pub fn count(work: &Path) -> io::Result<usize> {
    let images = fs::read_dir(folder(work))?.collect::<io::Result<Vec<_>>>()?;
    Ok(images.iter().filter(|entry| entry.path().extension().is_some_and(|kind| kind == "img")).count())
}

/// Detaches all loop devices on images of the folder, whoever attached them, and removes the folder.
pub fn remove(root: &Path, work: &Path) -> io::Result<()> {
    if !work.is_dir() {
        return Ok(());
    }
    for again in (0..TRIES).rev() {
        for device in attached(root, work)? {
            forget_partitions(root, &device);
            let _ = command("losetup", root).args(["--detach", &device]).stderr(Stdio::null()).status();
        }
        if attached(root, work)?.is_empty() {
            break;
        }
        if again == 0 {
            let work = work.display();
            return Err(io::Error::other(format!("somebody keeps a loop device of {work} open: losetup --list")));
        }
        thread::sleep(BETWEEN);
    }
    fs::remove_dir_all(work)
}

fn attached(root: &Path, work: &Path) -> io::Result<Vec<String>> {
    let list = output(command("losetup", root).args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]))?;
    Ok(below(&list, work).map(str::to_owned).collect())
}

/// The devices of a list whose file is below the folder; a file that was removed has a word behind it.
fn below<'a>(list: &'a str, work: &Path) -> impl Iterator<Item = &'a str> {
    list.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        let (device, file) = (words.next()?, words.next()?);
        Path::new(file).starts_with(work).then_some(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_on_files_of_the_folder_are_those_of_the_run() {
        let list = "/dev/loop3 /var/tmp/work/disks/whole-1.img\n/dev/loop4 /var/tmp/work-of-another/a.img\n\
                    /dev/loop5\n/dev/loop6 /var/tmp/work/disks/slots-1.img (deleted)\n";
        let ours: Vec<&str> = below(list, Path::new("/var/tmp/work")).collect();
        assert_eq!(ours, ["/dev/loop3", "/dev/loop6"]);
    }
}
