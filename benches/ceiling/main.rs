//! The ceiling: the most that a mount could achieve, with a trivial file system behind it.
//!
//! ```text
//! cargo run --release -p fuse-mount --example ceiling -- FOLDER
//!
//! memory_fs  the meaning of the kernel's requests      node  files and directories      blocks  bytes
//! ```
//!
//! Mounts a file system in memory on a folder, prints its transport, and serves until it is unmounted; then its content
//! is gone. Transports, mount options and cache lifetimes are those of a dataset. So programs there run as fast as the
//! programs, the kernel and the transport allow. `CENOTE_TRANSPORT` chooses the transport, `fuse` or `uring`, as for
//! datasets. `fsbench.toml` uses the ceiling as a peer.

mod blocks;
mod memory_fs;
mod node;

use std::{
    env,
    error::Error,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use fuse_mount::{MountOptions, Serving, Transport, serve};

use memory_fs::MemoryFs;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else { return failed(2, "usage: ceiling FOLDER".into()) };
    match run(Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(1, error),
    }
}

fn failed(code: u8, why: Box<dyn Error>) -> ExitCode {
    // With standard error closed, the exit code still tells.
    let _ = writeln!(io::stderr(), "{why}");
    ExitCode::from(code)
}

fn run(folder: &Path) -> Result<()> {
    let serving = mount(folder, transport(env::var_os("CENOTE_TRANSPORT"))?)?;
    writeln!(io::stdout(), "{} is served through {}", folder.display(), serving.transport().name())?;
    while !serving.wait(Duration::from_secs(3600)) {}
    Ok(())
}

fn mount(folder: &Path, transport: Option<Transport>) -> Result<Serving> {
    let options = MountOptions { transport, ..MountOptions::new("ceiling") };
    let folder = folder.canonicalize()?;
    let (_, serving) = serve(|| Ok(MemoryFs::new()), &folder, &options)?;
    teach_kernel(&folder)?;
    Ok(serving)
}

/// Opens an existing file, as a dataset's mount does: only so does the kernel learn that open and close need no
/// request.
fn teach_kernel(folder: &Path) -> io::Result<()> {
    let file = folder.join("opened");
    fs::write(&file, [])?;
    fs::File::open(&file)?;
    fs::remove_file(file)
}

/// The transport of this name; without a name, the default choice of a dataset.
fn transport(name: Option<OsString>) -> Result<Option<Transport>> {
    let Some(name) = name else { return Ok(None) };
    match Transport::ALL.into_iter().find(|transport| transport.name() == name) {
        None => Err("CENOTE_TRANSPORT is neither 'fuse' nor 'uring'".into()),
        transport => Ok(transport),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs::OpenOptions,
        io::Read as _,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    use super::*;

    /// Does some work on a mount of each transport available here.
    fn on_mounts(work: impl Fn(&Path) -> io::Result<()>) {
        if let Err(missing) = fuse_mount::available() {
            assert!(env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "{missing}");
            return;
        }
        for transport in [None, Some(Transport::Fuse)] {
            let folder = tempfile::tempdir().unwrap();
            let serving = mount(folder.path(), transport).unwrap();
            let done = work(folder.path());
            fuse_mount::detach(folder.path()).unwrap();
            done.unwrap();
            assert!(serving.wait(Duration::from_secs(60)), "nobody uses it any more");
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().unwrap())).collect()
    }

    #[test]
    fn files_are_what_was_written() {
        on_mounts(|root| {
            let (file, content) = (root.join("file"), bytes(3_000_000));
            fs::write(&file, &content)?;
            assert_eq!(fs::read(&file)?, content);
            assert_eq!(fs::metadata(&file)?.blocks(), 3_000_000_u64.div_ceil(512));
            OpenOptions::new().write(true).open(&file)?.set_len(1_000_000)?;
            OpenOptions::new().write(true).open(&file)?.set_len(1_500_000)?;
            let mut cut = content[..1_000_000].to_vec();
            cut.resize(1_500_000, 0);
            assert_eq!(fs::read(&file)?, cut);
            assert_eq!(fs::copy(&file, root.join("copy"))?, 1_500_000);
            assert_eq!(fs::read(root.join("copy"))?, cut);
            fs::File::open(&file)?.sync_all()
        });
    }

    #[test]
    fn names_lead_where_they_should() {
        on_mounts(|root| {
            fs::create_dir(root.join("dir"))?;
            let all: BTreeSet<String> = (0..2000).map(|number| format!("file {number}")).collect();
            for name in &all {
                fs::write(root.join("dir").join(name), name)?;
            }
            assert_eq!(names(&root.join("dir"))?, all);
            assert!(fs::remove_dir(root.join("dir")).is_err(), "it is not empty");
            fs::rename(root.join("dir/file 7"), root.join("dir/file 8"))?;
            assert_eq!(fs::read(root.join("dir/file 8"))?, b"file 7");
            fs::rename(root.join("dir/file 9"), root.join("moved"))?;
            fs::hard_link(root.join("moved"), root.join("link"))?;
            symlink("dir/file 8", root.join("symlink"))?;
            assert_eq!(fs::read(root.join("symlink"))?, b"file 7");
            fs::remove_file(root.join("moved"))?;
            assert_eq!((fs::read(root.join("link"))?, fs::metadata(root.join("link"))?.nlink()), (b"file 9".into(), 1));
            fs::remove_dir_all(root.join("dir"))?;
            assert_eq!(names(root)?, ["link", "symlink"].map(String::from).into());
            Ok(())
        });
    }

    #[test]
    fn an_open_file_outlives_its_name_and_gives_its_room_back() {
        on_mounts(|root| {
            let used = || rustix::fs::statvfs(root).map(|stat| stat.f_blocks - stat.f_bfree);
            let file = root.join("file");
            fs::write(&file, bytes(40_960))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
            let mut open = fs::File::open(&file)?;
            fs::remove_file(&file)?;
            assert_eq!((open.metadata()?.mode() & 0o777, open.metadata()?.nlink(), used()?), (0o600, 0, 10));
            assert_eq!(open.read_to_end(&mut Vec::new())?, 40_960);
            Ok(())
        });
    }

    #[test]
    fn only_transports_are_taken_for_transports() {
        let chosen = |name: &str| transport(Some(name.into())).ok();
        assert_eq!(transport(None).ok(), Some(None));
        assert_eq!(["fuse", "uring"].map(chosen), Transport::ALL.map(|transport| Some(Some(transport))));
        assert_eq!(chosen("io_uring"), None);
    }
}
