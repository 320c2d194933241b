//! Words of commands that a person may copy into a shell: names of hardware can hold anything.

/// One word of such a command.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_shell() {
        assert_eq!(shell_word("n1/wwn-0x5:1"), "n1/wwn-0x5:1");
        assert_eq!(shell_word("n/$(reboot) 'x'"), "'n/$(reboot) '\\''x'\\'''");
        assert_eq!(shell_word(""), "''");
    }
}
