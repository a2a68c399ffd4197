//! Every request that changes the pool adds a line to the history, and no other request does.

use std::{cell::RefCell, collections::BTreeSet, fs::File};

use dataset::{
    admin::{Grantee, Reach},
    jobs::Kind as JobKind,
};
use protocol::{
    Assignment, JobTarget, MountRequest, NewSize, Order, ProjectChange, ProjectReach, ScrubPart, ServiceRequest,
    VdevKind, VdevRole,
};

use super::*;

/// A test world that records the names of the tried variants.
struct Tried {
    world: World,
    variants: RefCell<BTreeSet<String>>,
}

/// The name of a request's variant.
fn variant(request: &Request) -> String {
    let text = format!("{request:?}");
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    let subject = words.next().unwrap_or_default();
    match SUBJECTS.iter().any(|(name, _)| *name == subject) {
        true => format!("{subject}/{}", words.next().unwrap_or_default()),
        false => subject.to_owned(),
    }
}

/// The subjects of requests, with the source of each enum.
const SUBJECTS: [(&str, &str); 7] = [
    ("Service", include_str!("../../../../protocol/src/request/service.rs")),
    ("Pool", include_str!("../../../../protocol/src/request/pool.rs")),
    ("Device", include_str!("../../../../protocol/src/request/device.rs")),
    ("Dataset", include_str!("../../../../protocol/src/request/dataset.rs")),
    ("Mount", include_str!("../../../../protocol/src/request/mount.rs")),
    ("Stream", include_str!("../../../../protocol/src/request/stream.rs")),
    ("File", include_str!("../../../../protocol/src/request/file.rs")),
];

/// The names of the variants of an enum, in its source.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub enum {name} {{\n")).nth(1).unwrap().split("\n}\n").next().unwrap();
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase());
    let name = |line: &str| line.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned();
    body.lines().filter(is_variant).map(name).collect()
}

/// The names of all variants.
fn declared() -> BTreeSet<String> {
    let mut all = variants(include_str!("../../../../protocol/src/request/mod.rs"), "Request");
    for (subject, source) in SUBJECTS {
        assert!(all.remove(subject), "{subject}");
        all.extend(variants(source, &format!("{subject}Request")).iter().map(|name| format!("{subject}/{name}")));
    }
    all
}

impl Tried {
    fn lines(&self) -> Vec<String> {
        let answer = self.world.ask(PoolRequest::History { internal: false });
        let Ok(Response::History(lines)) = answer else { panic!("{answer:?}") };
        lines.into_iter().map(|line| line.text).collect()
    }

    fn execute(&self, request: impl Into<Request>, stream: Option<Stream>) -> (String, Response) {
        let request = request.into();
        let name = variant(&request);
        self.variants.borrow_mut().insert(name.clone());
        let command = format!("test {name} {}", self.variants.borrow().len());
        let mut ignore = |_| Ok(None);
        let mut job = Job::new(Vec::new(), &mut ignore);
        let answer = self.world.pool.as_ref().unwrap().execute(&command, request, stream, &mut job);
        (command, answer.unwrap_or_else(|failure| panic!("{name}: {failure}: {:?}", failure.hint)))
    }

    /// Executes a request that changes the pool.
    fn change(&self, request: impl Into<Request>) -> Response {
        self.change_with(request, None)
    }

    fn change_with(&self, request: impl Into<Request>, stream: Option<Stream>) -> Response {
        let request = request.into();
        assert!(request.traits().is_recorded, "{request:?}");
        let before = self.lines().len();
        let (command, response) = self.execute(request, stream);
        let lines = self.lines();
        assert_eq!((lines.len(), lines.last()), (before + 1, Some(&command)));
        response
    }

    /// Executes a request that changes nothing, and adds no line.
    fn same(&self, request: impl Into<Request>) {
        let before = self.lines();
        self.execute(request, None);
        assert_eq!(self.lines(), before);
    }

    /// Records a request that does not change the pool, according to the table.
    fn quiet(&self, request: impl Into<Request>) {
        let request = request.into();
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
    delegation(&tried);
    snapshots(&tried);
    devices(&tried);
    jobs(&tried);
    nothing(&tried);
    assert_eq!(*tried.variants.borrow(), declared());
}

fn datasets(tried: &Tried) {
    let create = |text: &str, dry_run| DatasetRequest::Create {
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
    tried.change(DatasetRequest::Set { name: of, assignments, no_mount: true, dry_run: false });
    tried.change(DatasetRequest::Inherit {
        name: name("tank/a"),
        property: "atime".into(),
        recursive: false,
        received: false,
        dry_run: false,
    });
    tried.change(DatasetRequest::Rename {
        from: name("tank/b"),
        to: name("tank/c"),
        parents: false,
        recursive: false,
        no_mount: true,
        force: false,
        dry_run: false,
    });
    let (of, assignments) = (name("tank/a"), assignment("atime", "off"));
    tried.same(DatasetRequest::Set { name: of, assignments, no_mount: true, dry_run: true });
    let (of, property) = (name("tank/a"), "atime".to_owned());
    tried.same(DatasetRequest::Inherit { name: of, property, recursive: false, received: false, dry_run: true });
    tried.same(DatasetRequest::Rename {
        from: name("tank/a"),
        to: name("tank/d"),
        parents: false,
        recursive: false,
        no_mount: true,
        force: false,
        dry_run: true,
    });
    tried.change(DatasetRequest::Destroy {
        name: name("tank/c"),
        recursive: false,
        dependents: false,
        force: false,
        wait: false,
        dry_run: false,
    });
}

fn delegation(tried: &Tried) {
    let reach = Reach { local: true, descendent: true };
    let (to, permissions) = (vec![Grantee::Everyone], vec!["snapshot".to_owned()]);
    tried.change(DatasetRequest::Allow { name: name("tank"), to: to.clone(), permissions, reach });
    tried.quiet(DatasetRequest::Allowances { name: name("tank") });
    let permissions = Vec::new();
    tried.change(DatasetRequest::Unallow { name: name("tank"), from: to, permissions, reach, recursive: true });
}

fn snapshots(tried: &Tried) {
    let names = || vec![name("tank/a@1")];
    tried.change(DatasetRequest::Snapshot { names: names(), recursive: false, assignments: Vec::new() });
    tried.change(DatasetRequest::Hold { tag: "keep".into(), names: names(), recursive: false });
    tried.change(DatasetRequest::Release { tag: "keep".into(), names: names(), recursive: false });
    tried.change(DatasetRequest::Bookmark { from: name("tank/a@1"), to: name("tank/a#1") });
    tried.change(DatasetRequest::DestroyBookmark { name: name("tank/a#1"), dry_run: false });
    tried.change(DatasetRequest::Rollback {
        to: name("tank/a@1"),
        destroy_newer: false,
        destroy_clones: false,
        force: false,
        dry_run: false,
    });
    tried.same(DatasetRequest::Rollback {
        to: name("tank/a@1"),
        destroy_newer: false,
        destroy_clones: false,
        force: false,
        dry_run: true,
    });
    tried.change(DatasetRequest::Clone {
        from: name("tank/a@1"),
        to: name("tank/clone"),
        parents: false,
        assignments: Vec::new(),
        no_mount: true,
    });
    tried.change(DatasetRequest::Promote { name: name("tank/clone") });
    let what = SendSpec::full(name("tank/clone@1"));
    let stream = tried.path("stream");
    let send = |dry_run| StreamRequest::Send { what: what.clone(), dry_run };
    tried.world.ask_with(send(false), Some(File::create(&stream).unwrap().into())).unwrap();
    tried.quiet(send(false));
    let receive_at = |target, dry_run, resumable| {
        StreamRequest::Receive(ReceiveSpec { no_mount: true, dry_run, resumable, ..ReceiveSpec::exact(name(target)) })
    };
    let receive = |dry_run| receive_at("tank/received", dry_run, false);
    tried.quiet(receive(true));
    tried.change_with(receive(false), Some(File::open(&stream).unwrap().into()));
    let StreamRequest::Receive(spec) = receive(false) else { unreachable!("the request is a receive") };
    tried.change_with(StreamRequest::Correct(spec), Some(File::open(&stream).unwrap().into()));
    let whole = std::fs::read(&stream).unwrap();
    std::fs::write(&stream, &whole[..whole.len() - 1]).unwrap();
    let cut = tried.world.ask_with(receive_at("tank/partial", false, true), Some(File::open(&stream).unwrap().into()));
    assert!(cut.is_err(), "{cut:?}");
    let (dataset, limit) = (name("tank/partial"), None);
    tried.quiet(StreamRequest::SendSaved { dataset, dry_run: true, limit });
    tried.change(StreamRequest::DiscardPartial(name("tank/partial")));
    tried.change(DatasetRequest::DestroySnapshots {
        set: name("tank/received@1"),
        recursive: false,
        dependents: false,
        defer: false,
        wait: false,
        dry_run: false,
    });
}

fn devices(tried: &Tried) {
    tried.same(PoolRequest::SetPool { assignments: assignment("comment", "tried"), dry_run: true });
    tried.change(PoolRequest::SetPool { assignments: assignment("comment", "tried"), dry_run: false });
    let attach = |new: &str| DeviceRequest::Attach {
        device: tried.named("image"),
        new: tried.device(new, 256),
        replace: false,
        force: false,
        limit: None,
        dry_run: false,
    };
    tried.change(attach("second"));
    let wait = Request::job(JobKind::Resilver, Order::Wait(JobTarget::Device(tried.named("second"))));
    tried.world.ask(wait.clone()).unwrap();
    tried.quiet(wait);
    tried.change(DeviceRequest::Offline { device: tried.named("second"), temporary: false });
    tried.change(DeviceRequest::Online { device: tried.named("second"), expand: false });
    tried.world.ask(Request::job(JobKind::Resilver, Order::Wait(JobTarget::Device(tried.named("second"))))).unwrap();
    let split = |dry_run| DeviceRequest::Split { name: "other".into(), devices: Vec::new(), dry_run };
    tried.quiet(split(true));
    tried.change(split(false));
    tried.change(attach("third"));
    tried.change(DeviceRequest::Detach { device: tried.named("third"), force: true });
    tried.change(PoolRequest::Renumber { guid: 7 });
    tried.change(PoolRequest::Clear { device: None });
    tried.change(PoolRequest::Reopen);
    let all = || JobTarget::Devices(Vec::new());
    tried.change(Request::job(JobKind::Trim, Order::Start { target: all(), limit: None }));
    tried.quiet(Request::job(JobKind::Trim, Order::Plan(all())));
    tried.change(Request::job(JobKind::Initialize, Order::Start { target: all(), limit: None }));
    tried.quiet(Request::job(JobKind::Initialize, Order::Plan(all())));
    tried.quiet(Request::job(JobKind::Initialize, Order::Wait(all())));
    tried.change(Request::job(JobKind::Initialize, Order::Forget(all())));
    tried.change(Request::start(JobKind::Scrub, None));
    tried.change(Request::ScrubPart(ScrubPart::Damage));
}

fn jobs(tried: &Tried) {
    let spare = DeviceRequest::AddVdevs {
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
        let orders = [Order::Pause(JobTarget::Pool), Order::Stop(JobTarget::Pool), start(JobTarget::Pool)];
        for order in orders {
            tried.of_a_job(Request::job(kind, order));
        }
        tried.quiet(Request::job(kind, Order::Plan(JobTarget::Pool)));
        tried.quiet(Request::wait(kind));
    }
}

fn nothing(tried: &Tried) {
    let location = || location("tank/a:/file");
    let paths = || vec![PathBytes::from(tried.path("file"))];
    tried.quiet(ServiceRequest::Ping);
    tried.quiet(ServiceRequest::Shutdown { force: false, export: true });
    tried.quiet(ServiceRequest::Abandon);
    tried.quiet(PoolRequest::Pool { properties: Vec::new(), vdevs: false });
    tried.quiet(PoolRequest::Status);
    tried.quiet(PoolRequest::History { internal: false });
    tried.quiet(PoolRequest::Sync);
    tried.quiet(PoolRequest::Check);
    tried.quiet(PoolRequest::Losses { devices: Vec::new() });
    tried.quiet(PoolRequest::Events { after: 0 });
    tried.quiet(PoolRequest::ClearEvents);
    tried.quiet(PoolRequest::Activities);
    tried.quiet(PoolRequest::IoCounters);
    tried.quiet(PoolRequest::CacheFigures);
    tried.quiet(DatasetRequest::List {
        root: None,
        depth: None,
        kinds: dataset::property::Kinds::ALL_DATASETS,
        properties: Vec::new(),
        range: None,
    });
    tried.quiet(MountRequest::Mounts);
    tried.quiet(MountRequest::FileCounters);
    tried.quiet(MountRequest::Activity);
    tried.quiet(MountRequest::Mount { name: None, options: Vec::new(), overlay: false });
    tried.quiet(MountRequest::MountAt {
        name: name("tank/a"),
        directory: "/mnt".into(),
        options: Vec::new(),
        remount: false,
        namespace: 0,
    });
    tried.quiet(MountRequest::Unmount { target: None, force: false });
    tried.quiet(DatasetRequest::Holds { names: Vec::new(), recursive: false });
    tried.quiet(StreamRequest::Diff { from: name("tank/a@1"), to: name("tank/a") });
    tried.quiet(FileRequest::Entries { location: location(), directory_itself: false, recursive: false });
    tried.quiet(FileRequest::FileAttributes { location: location(), recursive: false });
    tried.quiet(FileRequest::SetFileAttributes { location: location(), assignments: Vec::new(), recursive: false });
    tried.quiet(DatasetRequest::Accounts { name: name("tank/a"), kind: dataset::property::OwnerKind::User });
    tried.quiet(FileRequest::Projects { location: location(), reach: ProjectReach::Itself });
    tried.quiet(FileRequest::SetProject {
        location: location(),
        change: ProjectChange { id: None, inherit: None },
        recursive: false,
    });
    tried.quiet(FileRequest::Read { location: location() });
    tried.quiet(FileRequest::CopyIn { sources: paths(), to: location(), recursive: false, no_links: false });
    tried.quiet(FileRequest::CopyWithin {
        sources: vec![location()],
        to: location(),
        recursive: false,
        no_links: false,
    });
    tried.quiet(FileRequest::CopyOut { sources: vec![location()], to: "/tmp/x".into(), recursive: false });
}
