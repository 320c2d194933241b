//! Runs other programs: all of their output goes to a log; the lines that a person wants to see also go to the terminal
//! at once.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// A command in a folder.
pub fn command(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    command
}

/// Runs the command with our own output.
pub fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    succeeded(command, status)
}

/// The standard output of a command, without its standard error. An error if it fails.
pub fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stderr(std::process::Stdio::null()).output()?;
    succeeded(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The answer of a script: if it fails, its output is the reason.
pub fn answer(command: &mut Command) -> io::Result<Result<String, String>> {
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    Ok(if output.status.success() { Ok(text) } else { Err(text) })
}

/// Runs the command to its end, and returns its status and all that it printed.
pub fn logged(command: &mut Command, log: &Path, is_shown: fn(&str) -> bool) -> io::Result<(ExitStatus, String)> {
    let (reader, writer) = io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // These drop the last writers on our side, so that the pipe ends with the child.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
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

fn succeeded(command: &Command, status: ExitStatus) -> io::Result<()> {
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} ended with {status}", command.get_program().display()))),
    }
}
