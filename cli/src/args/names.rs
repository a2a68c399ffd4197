//! How tables of devices print names: `-g`, `-L` and `-P`.

use std::fs;

use clap::Args;
use protocol::VdevRecord;

/// The options for the names of devices.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DeviceNames {
    /// Print GUIDs instead of the names of vdevs and devices
    #[arg(short = 'g')]
    guids: bool,
    /// Resolve symbolic links in the paths of devices
    #[arg(short = 'L')]
    resolved: bool,
    /// Print full paths of devices; by default those in /dev are shortened
    #[arg(short = 'P')]
    full: bool,
}

impl DeviceNames {
    /// Whether GUIDs are printed.
    pub fn needs_guids(self) -> bool {
        self.guids
    }

    /// The printed name of a vdev or device.
    pub fn name(self, path: &str, guid: u64) -> String {
        if self.guids {
            return guid.to_string();
        }
        let real = Some(path).filter(|path| self.resolved && path.starts_with('/'));
        let real = real.and_then(|path| Some(fs::canonicalize(path).ok()?.to_string_lossy().into_owned()));
        let path = real.as_deref().unwrap_or(path);
        let in_dev = path.strip_prefix("/dev/").filter(|_| !self.full);
        in_dev.and_then(|path| path.rsplit('/').next()).unwrap_or(path).to_owned()
    }

    /// Gives a vdev and its members their printed names.
    pub fn apply(self, vdev: &mut VdevRecord) {
        vdev.path = self.name(&vdev.path, vdev.guid);
        vdev.members.iter_mut().for_each(|member| self.apply(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_in_dev_have_short_names_and_images_full_paths() {
        let (short, guids) = (DeviceNames::default(), DeviceNames { guids: true, ..DeviceNames::default() });
        let full = DeviceNames { full: true, ..short };
        assert_eq!(short.name("/dev/loop5", 7), "loop5");
        assert_eq!(short.name("/dev/disk/by-id/wwn-0x5", 7), "wwn-0x5");
        assert_eq!(short.name("/srv/tank.img", 7), "/srv/tank.img");
        assert_eq!(short.name("mirror-0", 7), "mirror-0");
        assert_eq!((full.name("/dev/loop5", 7), guids.name("/dev/loop5", 7)), ("/dev/loop5".into(), "7".into()));
        let links = DeviceNames { resolved: true, full: true, ..short };
        assert_eq!(links.name("/proc/self/exe/absent", 7), "/proc/self/exe/absent");
        assert_eq!(links.name("/dev/./null", 7), "/dev/null");
    }
}
