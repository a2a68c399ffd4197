//! Devices of which something cannot be read when the pool is opened.

use super::*;

/// Where the intent log ends, whoever answers has nothing more of it.
#[test]
fn a_mirror_one_of_whose_devices_refuses_to_be_read_opens() {
    for refusing in 0..2 {
        let disks = disks("a b");
        let newest = commit(&mirror(&disks), 5);
        let end = disks[0].size() - DATA_START;
        disks[refusing].inject(Fault { range: DATA_START..end, ..Fault::failing(Operation::Read) });
        let pool = opened(&[&disks[0], &disks[1]], 2).unwrap();
        disks[refusing].heal();
        assert_eq!(shown(pool.engine()), newest);
    }
}
