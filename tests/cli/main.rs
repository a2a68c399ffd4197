//! What the commands print: standard output, standard error and exit status of the real programs, word for word.
//!
//! The pools are used without services and mounts, which makes no difference to what is printed and a large one to how
//! long it takes. What differs from run to run is replaced: the lab's folder, numbers of pools and datasets, dates and
//! transaction groups.
//!
//! ```text
//! pools        a pool from its making to its end
//! datasets     datasets in lists, and their properties
//! snapshots    snapshots, and what hangs on them
//! content      streams, and files without a mount
//! quotas       accounts and quotas
//! labels       devices that are to belong to no pool
//! destroyed    pools that were destroyed by mistake
//! losses       what the loss of devices costs
//! refusals     requests that cannot be done
//! singles      single commands where they meet what others made
//! unchanged    what they leave: nothing
//! invocation   command lines that are not understood, and the programs' other names
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod content;
mod datasets;
mod destroyed;
mod invocation;
mod labels;
mod losses;
mod pools;
mod quotas;
mod refusals;
mod singles;
mod snapshots;
mod unchanged;

use std::fs;

use insta::Settings;
use lab::Lab;

/// Replaces what differs from run to run.
fn filters() -> Settings {
    let mut settings = lab::told::filters();
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

/// A lab with a pool `tank`, whose file system `tank/home` has a file, a snapshot, and another file since.
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
