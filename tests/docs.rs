//! The administrator's guide (`docs/src`) and the README: every command in them is run, in the order of its page.
//!
//! A page begins in an empty directory. In blocks of the kind `console`, lines that begin with `$ ` or `# ` are
//! commands for sh. Lines without a prompt are output, which is not compared. After a backslash a command continues on
//! the next line. Each command must exit with status 0, or fail if its line ends with the comment `# fails`. A page
//! with a `# ` command needs root. Blocks of other kinds, such as `text`, are not run.
//!
//! Services are restarted after crashes, as on an administrator's machine. Nothing stays mounted after a page.

mod lab;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use lab::{Lab, can_mount};

/// Begins a block of commands.
const CONSOLE: &str = "```console";
/// Ends a block, and begins blocks of other kinds.
const FENCE: &str = "```";
/// Ends a command that has to fail.
const FAILS: &str = "# fails";
/// The limit on a command, in seconds.
const PATIENCE: &str = "120";
/// The exit status of timeout(1) after its limit. Greater statuses mean that the command could not be run.
const TIMED_OUT: i32 = 124;

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// The number of its first line in the page, from 1.
    number: usize,
    /// The script for sh.
    script: String,
    /// Its prompt was `#`.
    as_root: bool,
}

impl Line {
    /// Whether the command has to fail.
    fn has_to_fail(&self) -> bool {
        self.script.trim_end().ends_with(FAILS)
    }

    /// Whether the command ended as the page says. Not being found, or taking too long, does not count as failing.
    fn ended_as_said(&self, code: Option<i32>) -> bool {
        match self.has_to_fail() {
            true => code.is_some_and(|code| (1..TIMED_OUT).contains(&code)),
            false => code == Some(0),
        }
    }
}

/// The commands of a page.
fn commands(page: &str) -> Vec<Line> {
    let (mut found, mut fence, mut unfinished): (Vec<Line>, Option<&str>, bool) = (Vec::new(), None, false);
    for (index, text) in page.lines().enumerate() {
        match fence {
            None if text.starts_with(FENCE) => fence = Some(text),
            None => {}
            Some(_) if text.starts_with(FENCE) => (fence, unfinished) = (None, false),
            Some(CONSOLE) => unfinished = take(&mut found, index + 1, text, unfinished),
            Some(_) => {}
        }
    }
    assert_eq!(fence, None, "a block has no end");
    found
}

/// Adds a line of a console block to the commands; whether the command continues on the next line.
fn take(found: &mut Vec<Line>, number: usize, text: &str, unfinished: bool) -> bool {
    if unfinished {
        let last = found.last_mut().expect("a command is unfinished");
        last.script.push('\n');
        last.script.push_str(text);
        return text.ends_with('\\');
    }
    let prompts = [("$ ", false), ("# ", true)];
    let Some((script, as_root)) =
        prompts.iter().find_map(|(prompt, as_root)| Some((text.strip_prefix(*prompt)?, *as_root)))
    else {
        return false;
    };
    found.push(Line { number, script: script.to_owned(), as_root });
    script.ends_with('\\')
}

/// The folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The search path with the programs of this build in front.
fn search_path() -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_pool")).parent().expect("a program is in a folder");
    let rest = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    format!("{}:{rest}", programs.display())
}

/// Runs a command line of a page in the lab.
fn enter(lab: &Lab, script: &str) -> Output {
    // The lab sets the environment of its programs; sh gets the same, and passes it on.
    let of_programs = lab.command("pool", &[]);
    let mut shell = Command::new("timeout");
    shell.args([PATIENCE, "sh", "-c", script]).current_dir(lab.path("page")).stdin(Stdio::null());
    for (name, value) in of_programs.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PATH", search_path()).env("LC_ALL", "C").output().unwrap()
}

/// Whether this user may run these commands, which mount file systems below others.
fn may_run(path: &str, lines: &[Line]) -> bool {
    let shares = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let is_user_enough =
        shares.lines().any(|line| line.trim() == "user_allow_other") && lines.iter().all(|line| !line.as_root);
    let may = rustix::process::geteuid().is_root() || is_user_enough;
    if !may {
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("skipped: {path} has commands for root, or mounts below mounts, which root has not allowed");
        }
    }
    may
}

/// Runs all commands of a page, whose path is relative to the repository.
fn run_page(path: &str) {
    let page = fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = commands(&page);
    if lines.is_empty() || !can_mount() || !may_run(path, &lines) {
        return;
    }
    let mut lab = Lab::new();
    lab.restart_services();
    // Pages about repair cause damage themselves.
    if page.contains("dd if=") {
        lab.damages();
    }
    for folder in ["page", "home"] {
        fs::create_dir(lab.path(folder)).unwrap();
    }
    for line in lines {
        let ended = enter(&lab, &line.script);
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        let Line { number, script, .. } = &line;
        assert!(line.ended_as_said(ended.status.code()), "{path}:{number}: {script}\n{said}({})", ended.status);
    }
}

/// A test for each page, and the list of all pages.
macro_rules! pages {
    ($($test:ident: $path:literal,)*) => {
        /// The pages that are run.
        const PAGES: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $test() {
                run_page($path);
            }
        )*
    };
}

pages! {
    the_readme: "README.md",
    introduction: "docs/src/README.md",
    getting_started: "docs/src/getting-started.md",
    pools_and_vdevs: "docs/src/pools.md",
    raidz: "docs/src/raidz.md",
    mirrors_and_spares: "docs/src/mirrors.md",
    replacing_and_resilvering: "docs/src/replacing.md",
    changing_the_layout: "docs/src/layout.md",
    scrub_errors_and_recovery: "docs/src/recovery.md",
    properties: "docs/src/properties.md",
    snapshots_rollback_clones_and_diff: "docs/src/snapshots.md",
    backup_files: "docs/src/streams.md",
    mounting: "docs/src/mounting.md",
    quotas_and_projects: "docs/src/quotas.md",
    delegation: "docs/src/delegation.md",
    acls_and_attributes: "docs/src/attributes.md",
    the_service_and_its_supervisor: "docs/src/service.md",
    in_the_browser: "docs/src/browser.md",
    monitoring: "docs/src/monitoring.md",
    security: "docs/src/security.md",
    troubleshooting: "docs/src/troubleshooting.md",
    coming_from_zfs: "docs/src/openzfs.md",
    limitations: "docs/src/limitations.md",
}

/// The pages in the guide's table of contents.
fn contents() -> BTreeSet<String> {
    let summary = fs::read_to_string(repository().join("docs/src/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(page, _)| format!("docs/src/{page}")).collect()
}

#[test]
fn every_page_is_in_the_contents_and_is_run() {
    let run: BTreeSet<String> =
        PAGES.iter().map(|page| (*page).to_owned()).filter(|page| page != "README.md").collect();
    assert_eq!(contents(), run);
    let there = fs::read_dir(repository().join("docs/src")).unwrap();
    let there = there.map(|entry| format!("docs/src/{}", entry.unwrap().file_name().to_string_lossy()));
    let there: BTreeSet<String> = there.filter(|page| page.ends_with(".md") && page != "docs/src/SUMMARY.md").collect();
    assert_eq!(there, run);
}

/// The targets of a page's links, without other sites and anchors of the page itself.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let targets = targets.filter_map(|target| target.split('#').next());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

#[test]
fn links_lead_to_files_that_exist() {
    for path in PAGES {
        let path = repository().join(path);
        let page = fs::read_to_string(&path).unwrap();
        for target in links(&page) {
            assert!(path.parent().unwrap().join(target).exists(), "{}: {target}", path.display());
        }
    }
}

#[test]
fn a_page_is_read_as_it_is_meant() {
    let page =
        "# Title\n\n```console\n$ one   # fails\nsaid\n# two \\\n  three\n```\n\n```text\n$ never\n```\n$ nor this\n";
    let line = |number, script: &str, as_root| Line { number, script: script.to_owned(), as_root };
    let lines = commands(page);
    assert_eq!(lines, [line(4, "one   # fails", false), line(6, "two \\\n  three", true)]);
    assert!(lines[0].ended_as_said(Some(1)) && lines[1].ended_as_said(Some(0)));
    for code in [Some(0), Some(TIMED_OUT), Some(127), None] {
        assert!(!lines[0].ended_as_said(code));
    }
}
