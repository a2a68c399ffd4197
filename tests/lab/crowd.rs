//! A great many small files, made the fastest way: by the engine in this process, without a mount.

use std::{path::Path, sync::Arc, time::Duration};

use dataset::{
    admin::Datasets,
    fs::{Caller, FileSystem, ROOT},
    name::DatasetName,
};
use pool::{
    admin::{OpenOptions, open},
    device::{Access, FileDevice},
    env::SystemEnv,
    txg::Committer,
};

/// The number of files in a directory.
pub(crate) const PER_DIRECTORY: usize = 1000;
/// The sizes of the files in bytes, in turn: some inline in the tree, some with blocks of their own.
const SIZES: [usize; 4] = [64, 500, 1500, 5000];

/// Fills a dataset of an exported pool with `files` files, and exports the pool again.
pub(crate) fn fill(image: &Path, dataset: &str, files: usize) {
    let name: DatasetName = dataset.parse().unwrap();
    let device = Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap());
    let pool = open(vec![device], &OpenOptions::default(), Arc::new(SystemEnv)).unwrap();
    let datasets = Datasets::open(pool.engine().clone(), pool.name().parse().unwrap()).unwrap();
    let committer = Committer::spawn(pool.engine().clone(), Duration::from_secs(5));
    populate(datasets.open_dataset(&name).unwrap().fs(), files);
    drop(committer);
    datasets.close_all().unwrap();
    pool.engine().commit().unwrap();
    pool.export().unwrap();
}

fn populate(fs: &FileSystem, files: usize) {
    let caller = Caller::default();
    let mut directory = ROOT;
    for index in 0..files {
        if index % PER_DIRECTORY == 0 {
            let name = format!("directory-{}", index / PER_DIRECTORY);
            directory = fs.mkdir(&caller, ROOT, name.as_bytes(), 0o755).unwrap().ino;
        }
        let file = fs.create(&caller, directory, format!("file-{index}").as_bytes(), 0o644, true).unwrap().ino;
        let line = format!("this is file {index}\n");
        let content: Vec<u8> = line.bytes().cycle().take(SIZES[index % SIZES.len()]).collect();
        fs.write(file, 0, &content, false).unwrap();
    }
}
