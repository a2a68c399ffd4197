//! The item of an account.

use pool::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::View,
};

use crate::{
    fs::{
        failure::{Failure, damaged},
        inode::Inode,
        key,
    },
    property::OwnerKind,
};

const VERSION: u8 = 1;

/// The place of accounts in the tree.
impl OwnerKind {
    /// The item kind of the accounts.
    pub(super) fn item(self) -> u8 {
        match self {
            OwnerKind::User => key::USER,
            OwnerKind::Group => key::GROUP,
            OwnerKind::Project => key::PROJECT,
        }
    }

    /// The key of the account with the given id.
    pub(in crate::fs) fn key(self, id: u32) -> Key {
        Key::new(key::DATASET, self.item(), id.into())
    }

    /// The id of an inode's owner of the given kind.
    pub(in crate::fs) fn of(self, inode: &Inode) -> u32 {
        match self {
            OwnerKind::User => inode.uid,
            OwnerKind::Group => inode.gid,
            OwnerKind::Project => inode.project,
        }
    }
}

/// A number of bytes and of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The content of files, in bytes.
    pub bytes: u64,
    /// The number of inodes.
    pub objects: u64,
}

/// The usage and quota of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The sum of the charged inodes.
    pub used: Amount,
    /// The limits; 0 for none.
    pub quota: Amount,
}

impl Account {
    /// The bytes left under the quota.
    pub(super) fn bytes_left(&self) -> u64 {
        if self.quota.bytes == 0 { u64::MAX } else { self.quota.bytes.saturating_sub(self.used.bytes) }
    }

    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_u8(VERSION);
        for number in [self.used.bytes, self.used.objects, self.quota.bytes, self.quota.objects] {
            out.put_varint(number);
        }
        out
    }

    /// Decodes the body of an item.
    pub fn decode(body: &[u8]) -> Result<Account, Malformed> {
        const WHAT: &str = "account";
        let mut reader = Reader::new(body);
        if reader.u8(WHAT)? != VERSION {
            return malformed("version of an account");
        }
        let used = Amount { bytes: reader.varint(WHAT)?, objects: reader.varint(WHAT)? };
        let quota = Amount { bytes: reader.varint(WHAT)?, objects: reader.varint(WHAT)? };
        reader.finish(WHAT)?;
        Ok(Account { used, quota })
    }
}

/// The account under a key; an empty account if missing.
pub(super) fn load(view: &View<'_>, key: Key) -> Result<Account, Failure> {
    let entry = view.get(key)?;
    entry.map_or(Ok(Account::default()), |entry| Account::decode(entry.body()).map_err(damaged(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_account_is_coded_as_the_document_says() {
        let account = Account { used: Amount { bytes: 300, objects: 2 }, quota: Amount { bytes: 3, objects: 4 } };
        assert_eq!(account.encode(), [1, 0xac, 2, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn an_account_round_trips([bytes, objects, most_bytes, most_objects]: [u64; 4]) {
            let used = Amount { bytes, objects };
            let account = Account { used, quota: Amount { bytes: most_bytes, objects: most_objects } };
            prop_assert_eq!(Account::decode(&account.encode()), Ok(account));
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Account::decode(&body);
        }
    }
}
