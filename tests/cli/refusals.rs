//! Impossible requests: each is refused with the cause and, if possible, a remedy.

use std::fs;

use insta::assert_snapshot;

use crate::{filters, furnished};

#[test]
fn wrong_properties_are_refused_by_name() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs set recordsize=100 tank/home",
        "fs set compression=rar tank/home",
        "fs set quota=much tank/home",
        "fs set quota=10Q tank/home",
        "fs set mountpoint=here tank/home",
        "fs set color=blue tank/home",
        "fs set used=1G tank/home",
        "fs set dedup=on tank/home",
        "fs create -o encryption=on tank/safe",
        "fs get color tank/home",
        "fs list -o color",
        "fs list -s color",
        "pool set ashift=13 tank",
        "pool set color=blue tank",
        "pool set compression=lz4 tank",
        "fs set autoexpand=on tank/home",
        "fs get tank/home",
        "pool get tank",
    ]), @r"
    $ fs set recordsize=100 tank/home
    fs: cannot set property for 'tank/home': bad value '100' for 'recordsize': must be a power of two from 4K to 16M
    [exit 1]
    $ fs set compression=rar tank/home
    fs: cannot set property for 'tank/home': bad value 'rar' for 'compression': unknown algorithm
      values: on | off | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,...,100,500,1000] | gzip | gzip-[1-9]
    [exit 1]
    $ fs set quota=much tank/home
    fs: cannot set property for 'tank/home': bad value 'much' for 'quota': 'much' is not a number
      values: a size, or none
    [exit 1]
    $ fs set quota=10Q tank/home
    fs: cannot set property for 'tank/home': bad value '10Q' for 'quota': 'Q' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)
      values: a size, or none
    [exit 1]
    $ fs set mountpoint=here tank/home
    fs: cannot set property for 'tank/home': bad value 'here' for 'mountpoint': must be an absolute path, 'none' or 'legacy'
    [exit 1]
    $ fs set color=blue tank/home
    fs: cannot set property for 'tank/home': invalid property 'color'
      to list the properties: fs get --help
      user properties have a colon in their name, as in 'me:backup'
    [exit 1]
    $ fs set used=1G tank/home
    fs: cannot set property for 'tank/home': 'used' is readonly
    [exit 1]
    $ fs set dedup=on tank/home
    fs: cannot set property for 'tank/home': property 'dedup' is not supported: deduplication does not exist in this version; clones, snapshots and file copies share blocks
    [exit 1]
    $ fs create -o encryption=on tank/safe
    fs: cannot create 'tank/safe': property 'encryption' is not supported: native encryption does not exist in this version; use encrypted devices (LUKS)
    [exit 1]
    $ fs get color tank/home
    fs: bad property list: invalid property 'color'
      to list the properties: fs get --help
      user properties have a colon in their name, as in 'me:backup'
    [exit 2]
    $ fs list -o color
    fs: bad property list: invalid property 'color'
      to list the properties: fs get --help
      user properties have a colon in their name, as in 'me:backup'
    [exit 2]
    $ fs list -s color
    fs: invalid sort key: invalid property 'color'
    [exit 2]
    $ pool set ashift=13 tank
    pool: cannot set property for 'tank': 'ashift' can only be set at creation time
    [exit 1]
    $ pool set color=blue tank
    pool: cannot set property for 'tank': invalid property 'color'
      to list the properties: pool get --help
      user properties have a colon in their name, as in 'me:note'
    [exit 1]
    $ pool set compression=lz4 tank
    pool: cannot set property for 'tank': invalid property 'compression'
      'compression' is a property of file systems: fs get, fs set
    [exit 1]
    $ fs set autoexpand=on tank/home
    fs: cannot set property for 'tank/home': invalid property 'autoexpand'
      'autoexpand' is a property of pools: pool get, pool set
    [exit 1]
    $ fs get tank/home
    fs: missing properties in front of 'tank/home'
      to show all properties: fs get all tank/home
    [exit 2]
    $ pool get tank
    pool: missing properties in front of 'tank'
      to show all properties: pool get all tank
    [exit 2]
    ");
}

#[test]
fn wrong_requests_say_what_and_where() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    fs::write(lab.path("file"), "no device").unwrap();
    assert_snapshot!(lab.session(&[
        "pool list vault",
        "pool status vault",
        "pool import vault",
        "pool export vault",
        "pool create tank 64M:other.img",
        "pool create 1st 64M:other.img",
        "pool create log 64M:other.img",
        "pool create vault 64M:tank.img",
        "pool create vault tank.img",
        "pool create vault none.img",
        "pool create vault file",
        "pool create vault 1M:other.img",
        "pool create vault 64X:other.img",
        "pool create vault draid a.img b.img",
        "pool create vault raidz a.img",
        "pool create vault mirror a.img",
        "fs list vault",
        "fs list tank/none",
        "fs create tank",
        "fs create -p tank",
        "fs create tank/home",
        "fs create tank/none/below",
        "fs create tank/a@b",
        "fs create tank/!",
        "fs destroy tank",
        "fs destroy tank/none",
        "fs rename tank/home tank/home/below",
        "fs rename tank/home vault/home",
        "fs snapshot tank/home",
        "fs rollback tank/home@never",
        "fs clone tank/home@monday vault/clone",
    ]), @r"
    $ pool list vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool status vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool import vault
    pool: cannot import 'vault': no such pool available
      searched: /dev
      to search another directory: pool import -d DIR vault
    [exit 1]
    $ pool export vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool create tank 64M:other.img
    pool: cannot create 'tank': pool already exists
    [exit 1]
    $ pool create 1st 64M:other.img
    pool: cannot create '1st': the name of a pool must begin with a letter (at character 1 of '1st')
    [exit 1]
    $ pool create log 64M:other.img
    pool: cannot create 'log': the name is reserved (at character 1 of 'log')
    [exit 1]
    $ pool create vault 64M:tank.img
    pool: cannot create 'vault': [LAB]/tank.img exists
      to use the existing file, give the path without a size
    [exit 1]
    $ pool create vault tank.img
    pool: cannot create 'vault': [LAB]/tank.img holds pool 'tank'
      use -f to override; the data on the device is destroyed
    [exit 1]
    $ pool create vault none.img
    pool: cannot create 'vault': [LAB]/none.img: cannot open: No such file or directory
      to create an image of 10 GiB: 10G:[LAB]/none.img
    [exit 1]
    $ pool create vault file
    pool: cannot create 'vault': [LAB]/file is too small: 9B, at least 64M needed
    [exit 1]
    $ pool create vault 1M:other.img
    pool: cannot create 'vault': [LAB]/other.img is too small: 1M, at least 64M needed
    [exit 1]
    $ pool create vault 64X:other.img
    pool: cannot create 'vault': 'X' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)
    [exit 1]
    $ pool create vault draid a.img b.img
    pool: cannot create 'vault': vdevs of the kind 'draid' are not supported by this version of Cenote
      use single devices, 'mirror DEVICE DEVICE', or 'raidz1' to 'raidz3' with 2 to 32 devices
    [exit 1]
    $ pool create vault raidz a.img
    pool: cannot create 'vault': a raidz1 has 2 to 32 devices
      name devices after the word: raidz1 DEVICE DEVICE
    [exit 1]
    $ pool create vault mirror a.img
    pool: cannot create 'vault': a mirror has 2 to 16 devices
      name devices after the word: mirror DEVICE DEVICE
    [exit 1]
    $ fs list vault
    fs: cannot open 'vault': dataset does not exist
      no pool 'vault' is known here: pool list
    [exit 1]
    $ fs list tank/none
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ fs create tank
    fs: cannot create 'tank': missing dataset name
      to create a pool: pool create
    [exit 1]
    $ fs create -p tank
    [exit 0]
    $ fs create tank/home
    fs: cannot create 'tank/home': dataset already exists
    [exit 1]
    $ fs create tank/none/below
    fs: cannot create 'tank/none/below': parent does not exist
      use -p to create missing parents
    [exit 1]
    $ fs create tank/a@b
    fs: cannot create 'tank/a@b': the name of a file system has no '@' (at character 7 of 'tank/a@b')
    [exit 1]
    $ fs create tank/!
    fs: cannot create 'tank/!': invalid character '!' in name (at character 6 of 'tank/!')
    [exit 1]
    $ fs destroy tank
    fs: cannot destroy 'tank': 'tank' is the pool's root dataset: it cannot be destroyed
      to destroy all file systems: fs destroy -r; to destroy the pool: pool destroy
    [exit 1]
    $ fs destroy tank/none
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ fs rename tank/home tank/home/below
    fs: cannot rename 'tank/home': the new name is below the old one
    [exit 1]
    $ fs rename tank/home vault/home
    fs: cannot rename 'tank/home': file systems cannot leave their pool
      to copy the file system: fs send | fs receive
    [exit 1]
    $ fs snapshot tank/home
    fs: cannot create snapshot 'tank/home': a snapshot's name has an '@': dataset@snapshot (at character 10 of 'tank/home')
    [exit 1]
    $ fs rollback tank/home@never
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs clone tank/home@monday vault/clone
    fs: cannot create 'vault/clone': source and target pools differ
      to copy a snapshot to another pool: fs send | fs receive
    [exit 1]
    ");
}
