//! A returning disk gets the data it missed.

use insta::assert_snapshot;

use crate::{create, export_and_check, fill, filters, holds, lab::Lab, put, status};

/// The resilvered bytes in `pool status`.
fn resilvered(lab: &Lab) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    let bytes = &status["pools"]["tank"]["scan_stats"]["repaired"];
    bytes.as_str().unwrap_or_else(|| panic!("{status}")).parse().unwrap()
}

#[test]
fn a_disk_that_comes_back_gets_only_what_it_has_missed() {
    let (lab, mut filters) = (Lab::new(), filters());
    // The number of writes under way when it went depends on timing.
    filters.add_filter(r"ONLINE  \d+  [1-9]\d*  0", "ONLINE  [READ]  [WRITE]  0");
    let _filters = filters.bind_to_scope();
    let Some(disks) = lab.disks(&["b"], "100M") else { return };
    create(&lab, &["mirror", "100M:a.img", &disks[0]]);
    fill(&lab);
    lab.pull("b");
    put(&lab, 1);
    assert!(status(&lab).contains("state: DEGRADED"));
    lab.plug("b");
    lab.pool(&["online", "tank", &lab.disk_path("b").display().to_string()]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    status: One or more devices had errors since the pool was imported.
    	No data is lost.
    action: Check the devices, and verify the pool: pool scrub tank
    	Then clear the errors: pool clear tank
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/disk/b/image  ONLINE  [READ]  [WRITE]  0

    errors: No known data errors
    [exit 0]
    ");
    let missed = resilvered(&lab);
    assert!((300_000..8 << 20).contains(&missed), "{missed} bytes, where all are more than 40 MiB");
    lab.pool(&["offline", "tank", "a.img"]);
    holds(&lab, 1..=1);
    lab.pool(&["online", "tank", "a.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    export_and_check(&lab);
}
