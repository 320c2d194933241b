//! Runs other programs. The output of long ones goes to a log, and the lines that a person wants to see go to the
//! terminal at once, too.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// Starts a program that gets a signal when its parent ends.
const WITH_PARENT: &str = "setpriv";

/// A command in a folder.
pub fn command(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    command
}

/// A command that ends with this process, also if this process is killed, and that reads nothing from the terminal.
pub fn child(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = command(WITH_PARENT, folder);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program).stdin(Stdio::null());
    command
}

/// Runs the command with our own output.
pub fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    succeeded(command, status)
}

/// The standard output of a command, without its standard error. An error if it fails.
pub fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stderr(Stdio::null()).output()?;
    succeeded(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The answer of a script: if it fails, its output is the reason.
pub fn answer(command: &mut Command) -> io::Result<Result<String, String>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    Ok(if output.status.success() { Ok(text) } else { Err(text) })
}

/// Runs the command to its end, and returns its status and all that it printed.
pub fn logged(command: &mut Command, log: &Path, is_shown: fn(&str) -> bool) -> io::Result<(ExitStatus, String)> {
    let (reader, writer) = io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // These drop the last writers on our side, so that the pipe ends with the child.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut file = File::create(log)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(reader);
    while reader.read_until(b'\n', &mut line)? > 0 {
        file.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if is_shown(text.trim_end_matches('\n')) {
            print!("{text}");
        }
        line.clear();
    }
    let status = child.wait()?;
    Ok((status, String::from_utf8_lossy(&fs::read(log)?).into_owned()))
}

/// The same, but the command writes into the log itself: a pipe would be open, and waited for, as long as anything has
/// it that the command has started and left behind.
pub fn followed(command: &mut Command, log: &Path, is_shown: fn(&str) -> bool) -> io::Result<(ExitStatus, String)> {
    let file = File::create(log)?;
    let mut reader = BufReader::new(File::open(log)?);
    let mut child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
    let mut line = Vec::new();
    loop {
        // First this, so that all of its output is there.
        let ended = child.try_wait()?;
        while reader.read_until(b'\n', &mut line)? > 0 {
            if !line.ends_with(b"\n") && ended.is_none() {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            if is_shown(text) {
                println!("{text}");
            }
            line.clear();
        }
        if let Some(status) = ended {
            return Ok((status, String::from_utf8_lossy(&fs::read(log)?).into_owned()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn succeeded(command: &Command, status: ExitStatus) -> io::Result<()> {
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} ended with {status}", name(command).display()))),
    }
}

/// The program that a person knows.
fn name(command: &Command) -> &OsStr {
    let program = command.get_program();
    let behind = || command.get_args().skip_while(|word| *word != "--").nth(1);
    if program == WITH_PARENT { behind().unwrap_or(program) } else { program }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash(script: &str) -> Command {
        let mut bash = child("bash", Path::new("/"));
        bash.args(["-c", script]);
        bash
    }

    #[test]
    fn what_fails_is_called_by_its_own_name() {
        let error = run(&mut bash("exit 3")).map_err(|error| error.to_string());
        assert_eq!(error, Err("bash ended with exit status: 3".to_owned()));
    }

    #[test]
    fn what_is_left_behind_with_the_output_open_is_not_waited_for() {
        let log = std::env::temp_dir().join(format!("xtask-followed-{}", std::process::id()));
        let begun = std::time::Instant::now();
        let done = followed(&mut bash("echo one; printf two; sleep 20 & exit 1"), &log, |_| false);
        let (status, text) = done.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((status.code(), text.as_str()), (Some(1), "one\ntwo"));
        assert!(begun.elapsed() < Duration::from_secs(10));
        let _ = fs::remove_file(log);
    }
}
