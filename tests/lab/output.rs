//! The output of the programs as on a terminal: standard output, standard error and exit status.
//!
//! Tests compare the output with inline snapshots, word for word. Values that change from run to run are replaced by
//! [`filters`]; a test with more such values adds filters of its own.

use insta::Settings;

use super::{Lab, Run};

impl Run {
    /// Standard output, standard error and exit status.
    pub(crate) fn output(&self) -> String {
        let code = self.code.expect("it ends by itself");
        format!("{}{}[exit {code}]", self.text(), self.stderr)
    }

    /// The same behind a prompt, as a part of a session.
    pub(crate) fn at_prompt(&self) -> String {
        format!("$ {}\n{}\n", self.line, self.output())
    }
}

impl Lab {
    /// Runs a command line, whose words are separated by single spaces.
    pub(crate) fn enter(&self, line: &str) -> Run {
        let words: Vec<&str> = line.split(' ').collect();
        self.run(words[0], &words[1..])
    }

    /// The output of one command line.
    pub(crate) fn shown(&self, line: &str) -> String {
        self.enter(line).output()
    }

    /// The output of several command lines, each behind a prompt.
    pub(crate) fn session(&self, lines: &[&str]) -> String {
        lines.iter().map(|line| self.enter(line).at_prompt()).collect()
    }
}

/// Replaces what changes from run to run: the lab's folder, GUIDs, dates, txgs.
pub(crate) fn filters() -> Settings {
    let mut settings = Settings::clone_current();
    settings.add_filter(r"/\S*/cenote-lab-\w+", "[LAB]");
    settings.add_filter(r"\b\d{15,20}\b", "[GUID]");
    settings.add_filter(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [ \d]\d:\d\d(:\d\d)? \d{4}", "[DATE]");
    settings.add_filter(r"\d{4}-\d\d-\d\d[. ]\d\d:\d\d(:\d\d)?", "[DATE]");
    settings.add_filter(r"transaction group \d+", "transaction group [TXG]");
    settings
}

/// The same for tables with paths, where column widths depend on the length of the lab's path.
pub(crate) fn filters_for_paths() -> Settings {
    let mut settings = filters();
    settings.add_filter("   +", "  ");
    settings
}

/// The same for devices in `pool status`: times, sizes and values of the machine are replaced too.
pub(crate) fn filters_for_devices() -> Settings {
    let mut settings = filters_for_paths();
    settings.add_filter(r"in \d\d:\d\d:\d\d with", "in [TIME] with");
    settings.add_filter(r"(resilvered|repaired) [\d.]+[BKM]", "$1 [SIZE]");
    settings.add_filter(r"mounts: \d+ through \S+\n", "");
    settings.add_filter(r"(?m)^ +busy: freeing .*\n", "");
    settings
}
