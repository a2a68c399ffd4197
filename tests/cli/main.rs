//! The output of the commands: standard output, standard error and exit status of the real programs, word for word.
//!
//! The pools are used without services and mounts, which does not change the output and saves much time. Values that
//! change from run to run are replaced: the lab's folder, GUIDs, dates and txgs.
//!
//! ```text
//! plans        layouts of pools that do not exist yet
//! pools        a pool from creation to destruction
//! datasets     datasets in lists, and their properties
//! snapshots    snapshots, with holds, bookmarks and clones
//! content      streams, and files without a mount
//! transfers    limits and progress of streams, and what they leave out
//! quotas       accounting and quotas
//! labels       devices to be removed from any pool
//! destroyed    pools destroyed by mistake
//! losses       the effect of losing devices
//! refusals     refused requests
//! schema       JSON field by field, beside OpenZFS
//! singles      single commands on the results of other commands
//! unchanged    refused requests, which change nothing
//! invocation   invalid command lines, and the programs' other names
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod content;
mod datasets;
mod destroyed;
mod invocation;
mod labels;
mod losses;
mod plans;
mod pools;
mod quotas;
mod refusals;
mod schema;
mod singles;
mod snapshots;
mod transfers;
mod unchanged;

use std::fs;

use insta::Settings;
use lab::Lab;

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters();
    settings.add_filter(r"\[GUID\] +-", "[GUID]  -");
    settings.add_filter(r#""(txg|createtxg)": "\d+""#, r#""$1": "[TXG]""#);
    settings.add_filter(r"createtxg( +)\d+ +-", "createtxg$1[TXG]  -");
    // Numbers and times are stored in as many bytes as they need.
    settings.add_filter(r"(logical\w+ +)[\d.]+K +-", "$1[SIZE]  -");
    settings.add_filter(r"at byte [1-9]\d*", "at byte [N]");
    settings.add_filter(r"estimated size is \d+B", "estimated size is [SIZE]");
    settings.add_filter(r"(?m)^(incremental\t.*\t|size\t)\d+$", "$1[SIZE]");
    settings
}

/// A lab with a pool `tank`, whose file system `tank/home` has a file, a snapshot, and a later file.
fn furnished() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    lab.fs(&["create", "-o", "compression=zstd-3", "tank/home"]);
    fs::write(lab.path("text"), "a line of text\n".repeat(1000)).unwrap();
    lab.fs(&["cp", "text", "tank/home:/first"]);
    lab.fs(&["snapshot", "tank/home@monday"]);
    lab.fs(&["cp", "text", "tank/home:/second"]);
    lab
}
