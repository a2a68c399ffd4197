//! Every request that changes the pool adds a line to the history, and no other request does.

use std::{cell::RefCell, collections::BTreeSet, fs::File};

use dataset::jobs::Kind as JobKind;
use protocol::{Assignment, JobTarget, NewSize, Order, ProjectChange, ProjectReach, ScrubPart, VdevKind, VdevRole};

use super::*;

/// A test world that records the names of the tried variants.
struct Tried {
    world: World,
    variants: RefCell<BTreeSet<String>>,
}

/// The name of a request's variant.
fn variant(request: &Request) -> String {
    let text = format!("{request:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// The names of all variants, in the source of the enum.
fn declared() -> BTreeSet<String> {
    let source = include_str!("../../../../protocol/src/request.rs");
    let body = source.split("pub enum Request {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase());
    let name = |line: &str| line.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned();
    body.lines().filter(is_variant).map(name).collect()
}

impl Tried {
    fn lines(&self) -> Vec<String> {
        let answer = self.world.ask(Request::History { internal: false });
        let Ok(Response::History(lines)) = answer else { panic!("{answer:?}") };
        lines.into_iter().map(|line| line.text).collect()
    }

    fn execute(&self, request: Request, stream: Option<Stream>) -> (String, Response) {
        let name = variant(&request);
        self.variants.borrow_mut().insert(name.clone());
        let command = format!("test {name} {}", self.variants.borrow().len());
        let mut ignore = |_| Ok(None);
        let mut job = Job::new(Vec::new(), &mut ignore);
        let answer = self.world.pool.as_ref().unwrap().execute(&command, request, stream, &mut job);
        (command, answer.unwrap_or_else(|failure| panic!("{name}: {failure}: {:?}", failure.hint)))
    }

    /// Executes a request that changes the pool.
    fn change(&self, request: Request) -> Response {
        self.change_with(request, None)
    }

    fn change_with(&self, request: Request, stream: Option<Stream>) -> Response {
        assert!(request.traits().is_recorded, "{request:?}");
        let before = self.lines().len();
        let (command, response) = self.execute(request, stream);
        let lines = self.lines();
        assert_eq!((lines.len(), lines.last()), (before + 1, Some(&command)));
        response
    }

    /// Records a request that does not change the pool, according to the table.
    fn quiet(&self, request: Request) {
        assert!(!request.traits().is_recorded, "{request:?}");
        self.variants.borrow_mut().insert(variant(&request));
    }

    /// Records a request that needs a running job, according to the table.
    fn of_a_job(&self, request: Request) {
        assert!(request.traits().is_recorded, "{request:?}");
        self.variants.borrow_mut().insert(variant(&request));
    }

    fn device(&self, name: &str, megabytes: u64) -> VdevSpec {
        VdevSpec { path: self.path(name).into(), create: Some(megabytes << 20) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.folder.path().join(name)
    }

    fn named(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn assignment(name: &str, value: &str) -> Vec<Assignment> {
    vec![Assignment { name: name.into(), value: value.into() }]
}

#[test]
fn each_change_of_a_pool_is_recorded_and_nothing_else() {
    let tried = Tried { world: World::new(), variants: RefCell::default() };
    datasets(&tried);
    snapshots(&tried);
    devices(&tried);
    jobs(&tried);
    nothing(&tried);
    assert_eq!(*tried.variants.borrow(), declared());
}

fn datasets(tried: &Tried) {
    let create = |text: &str, dry_run| Request::Create {
        name: name(text),
        parents: false,
        assignments: Vec::new(),
        no_mount: true,
        dry_run,
    };
    tried.change(create("tank/a", false));
    tried.change(create("tank/b", false));
    tried.quiet(create("tank/c", true));
    let (of, assignments) = (name("tank/a"), assignment("atime", "off"));
    tried.change(Request::Set { name: of, assignments, no_mount: true });
    tried.change(Request::Inherit {
        name: name("tank/a"),
        property: "atime".into(),
        recursive: false,
        received: false,
    });
    tried.change(Request::Rename {
        from: name("tank/b"),
        to: name("tank/c"),
        parents: false,
        recursive: false,
        no_mount: true,
        force: false,
    });
    tried.change(Request::Destroy {
        name: name("tank/c"),
        recursive: false,
        dependents: false,
        force: false,
        wait: false,
        dry_run: false,
    });
}

fn snapshots(tried: &Tried) {
    let names = || vec![name("tank/a@1")];
    tried.change(Request::Snapshot { names: names(), recursive: false, assignments: Vec::new() });
    tried.change(Request::Hold { tag: "keep".into(), names: names(), recursive: false });
    tried.change(Request::Release { tag: "keep".into(), names: names(), recursive: false });
    tried.change(Request::Bookmark { from: name("tank/a@1"), to: name("tank/a#1") });
    tried.change(Request::DestroyBookmark { name: name("tank/a#1"), dry_run: false });
    tried.change(Request::Rollback { to: name("tank/a@1"), destroy_newer: false, destroy_clones: false, force: false });
    tried.change(Request::Clone {
        from: name("tank/a@1"),
        to: name("tank/clone"),
        parents: false,
        assignments: Vec::new(),
        no_mount: true,
    });
    tried.change(Request::Promote { name: name("tank/clone") });
    let what = SendSpec {
        snapshot: name("tank/clone@1"),
        base: None,
        intermediates: false,
        replicate: false,
        skip_missing: false,
        properties: false,
        holds: false,
    };
    let stream = tried.path("stream");
    let send = |dry_run| Request::Send { what: what.clone(), dry_run };
    tried.world.ask_with(send(false), Some(File::create(&stream).unwrap().into())).unwrap();
    tried.quiet(send(false));
    let receive = |dry_run| {
        Request::Receive(ReceiveSpec {
            target: name("tank/received"),
            naming: ReceiveNaming::Exact,
            force: false,
            no_mount: true,
            dry_run,
            assignments: Vec::new(),
            exclude: Vec::new(),
            origin: None,
            skip_holds: false,
        })
    };
    tried.quiet(receive(true));
    tried.change_with(receive(false), Some(File::open(&stream).unwrap().into()));
    tried.change(Request::DestroySnapshots {
        set: name("tank/received@1"),
        recursive: false,
        dependents: false,
        defer: false,
        wait: false,
        dry_run: false,
    });
}

fn devices(tried: &Tried) {
    tried.change(Request::SetPool { assignments: assignment("comment", "tried") });
    let attach = |new: &str| Request::Attach {
        device: tried.named("image"),
        new: tried.device(new, 256),
        replace: false,
        force: false,
        limit: None,
    };
    tried.change(attach("second"));
    let wait = Request::job(JobKind::Resilver, Order::Wait(JobTarget::Device(tried.named("second"))));
    tried.world.ask(wait.clone()).unwrap();
    tried.quiet(wait);
    tried.change(Request::Offline { device: tried.named("second"), temporary: false });
    tried.change(Request::Online { device: tried.named("second"), expand: false });
    tried.world.ask(Request::job(JobKind::Resilver, Order::Wait(JobTarget::Device(tried.named("second"))))).unwrap();
    let split = |dry_run| Request::Split { name: "other".into(), devices: Vec::new(), dry_run };
    tried.quiet(split(true));
    tried.change(split(false));
    tried.change(attach("third"));
    tried.change(Request::Detach { device: tried.named("third"), force: true });
    tried.change(Request::Renumber { guid: 7 });
    tried.change(Request::Clear { device: None });
    tried.change(Request::Reopen);
    tried.change(Request::Trim { action: TrimAction::Start, devices: Vec::new(), rate: None, wait: false });
    tried.change(Request::start(JobKind::Scrub, None));
    tried.change(Request::ScrubPart(ScrubPart::Damage));
}

fn jobs(tried: &Tried) {
    let spare = Request::AddVdevs {
        vdevs: vec![VdevTreeSpec {
            kind: VdevKind::Disk,
            role: VdevRole::Normal,
            devices: vec![tried.device("added", 256)],
        }],
        spares: Vec::new(),
        force: true,
        dry_run: false,
    };
    tried.change(spare);
    tried.change(Request::start(JobKind::Resilver, None));
    tried.change(Request::start(JobKind::Rebalance, None));
    tried.change(Request::start(JobKind::Defragment, None));
    let start = |target| Order::Start { target, limit: None };
    tried.change(Request::job(JobKind::Remove, start(JobTarget::Device(tried.named("added")))));
    let smaller = JobTarget::Size(tried.named("image"), NewSize::To(128 << 20));
    tried.of_a_job(Request::job(JobKind::Resize, start(smaller)));
    for kind in JobKind::IN_ORDER {
        for order in [Order::Pause, Order::Stop, start(JobTarget::Pool)] {
            tried.of_a_job(Request::job(kind, order));
        }
        tried.quiet(Request::job(kind, Order::Plan(JobTarget::Pool)));
        tried.quiet(Request::wait(kind));
    }
}

fn nothing(tried: &Tried) {
    let location = || location("tank/a:/file");
    let paths = || vec![PathBytes::from(tried.path("file"))];
    for request in [
        Request::Ping,
        Request::Shutdown { force: false, export: true },
        Request::Abandon,
        Request::Pool { properties: Vec::new(), vdevs: false },
        Request::Status,
        Request::History { internal: false },
        Request::Sync,
        Request::Check,
        Request::Losses { devices: Vec::new() },
        Request::Events { after: 0 },
        Request::ClearEvents,
        Request::Activities,
        Request::IoCounters,
        Request::List {
            root: None,
            depth: None,
            kinds: dataset::property::Kinds::ALL_DATASETS,
            properties: Vec::new(),
        },
        Request::Mounts,
        Request::Mount { name: None, options: Vec::new(), overlay: false },
        Request::MountAt {
            name: name("tank/a"),
            directory: "/mnt".into(),
            options: Vec::new(),
            remount: false,
            namespace: 0,
        },
        Request::Unmount { target: None, force: false },
        Request::Holds { names: Vec::new(), recursive: false },
        Request::Diff { from: name("tank/a@1"), to: name("tank/a") },
        Request::Entries { location: location(), directory_itself: false, recursive: false },
        Request::FileAttributes { location: location(), recursive: false },
        Request::SetFileAttributes { location: location(), assignments: Vec::new(), recursive: false },
        Request::Accounts { name: name("tank/a"), kind: dataset::property::OwnerKind::User },
        Request::Projects { location: location(), reach: ProjectReach::Itself },
        Request::SetProject {
            location: location(),
            change: ProjectChange { id: None, inherit: None },
            recursive: false,
        },
        Request::Read { location: location() },
        Request::CopyIn { sources: paths(), to: location(), recursive: false },
        Request::CopyWithin { sources: vec![location()], to: location(), recursive: false },
        Request::CopyOut { sources: vec![location()], to: "/tmp/x".into(), recursive: false },
    ] {
        tried.quiet(request);
    }
}
