//! The items of trees: the rows of the catalogue, and the items of file systems. The first byte of an input chooses.

use std::fmt::Debug;

use dataset::{
    catalogue::{
        Bookmark, Bucket, DamageRow, DatasetRow, History, Hold, Link, Master, Named, Row, ScrubRow, SharedRow,
        SharingRow, SnapshotRow, Value, Work, decode_page, encode_page,
    },
    fs::{Account, directory::Dirent, file::extent::Extent, inode::Inode, link, master, xattr::Xattr},
};

pub(super) fn run(input: &[u8]) -> bool {
    let Some((kind, body)) = input.split_first() else { return false };
    match kind {
        0 => row::<Master>(body),
        1 => row::<DatasetRow>(body) && dataset(body),
        2 => row::<Named>(body),
        3 => row::<Value>(body),
        4 => row::<SnapshotRow>(body),
        5 => row::<Hold>(body),
        6 => row::<Bookmark>(body),
        7 => row::<Bucket>(body),
        8 => row::<Link>(body),
        9 => row::<History>(body),
        10 => row::<Work>(body),
        11 => row::<ScrubRow>(body),
        12 => row::<DamageRow>(body),
        14 => row::<SharedRow>(body),
        15 => row::<SharingRow>(body),
        13 => decode_page(body).is_ok_and(|pointers| {
            comes_back(
                decode_page(&encode_page(&pointers)).map(|again| {
                    again
                        .iter()
                        .zip(&pointers)
                        .all(|(one, two)| one.addresses() == two.addresses() && one.stored == two.stored)
                }),
                true,
            )
        }),
        16 => Inode::decode(body).is_ok_and(|inode| comes_back(Inode::decode(&inode.encode()), inode)),
        17 => Dirent::decode(body).is_ok_and(|dirent| comes_back(Dirent::decode(&dirent.encode()), dirent)),
        18 => Xattr::decode(body).is_ok_and(|xattr| comes_back(Xattr::decode(&xattr.encode()), xattr)),
        19 => Extent::decode(body).is_ok_and(|extent| comes_back(Extent::decode(&extent.encode()), extent)),
        20 => master::Master::decode(body)
            .is_ok_and(|master| comes_back(master::Master::decode(&master.encode()), master)),
        21 => link::decode(body).is_ok(),
        22 => Account::decode(body).is_ok_and(|account| comes_back(Account::decode(&account.encode()), account)),
        _ => false,
    }
}

fn comes_back<T: Debug + PartialEq, E: Debug + PartialEq>(again: Result<T, E>, value: T) -> bool {
    assert_eq!(again, Ok(value));
    true
}

fn row<R: Row + Debug + PartialEq>(body: &[u8]) -> bool {
    R::decode(body).is_ok_and(|row| comes_back(R::decode(&row.encode()), row))
}

/// Checks the figures computed from a dataset's counters, for any counters.
fn dataset(body: &[u8]) -> bool {
    let row = DatasetRow::decode(body).expect("it was decoded before");
    let (used, charge) = (row.used(), row.charge());
    assert!(used.allocated >= row.reserved_for_head() && charge.allocated >= used.allocated);
    true
}
