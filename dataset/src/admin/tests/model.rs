//! Random sequences of all operations on datasets, compared with a model of plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{Files, World, name, noise};
use crate::admin::Assignment;

/// The operation of a step. Numbers select among the existing objects.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8, u32),
    /// Small files, enough for a tree of several leaves.
    Many(usize, u8),
    Remove(usize, u8),
    /// Copies a file over a file of another dataset, or of the same.
    Copy((usize, u8), (usize, u8)),
    /// Copies a part of a file: offsets in quarters of a record, and the number of quarters.
    CopyPart((usize, u8, u8), (usize, u8, u8), u8),
    Commit,
    Snapshot(usize),
    DestroySnapshot(usize),
    Rollback(usize),
    Clone(usize),
    Promote(usize),
    DestroyDataset(usize),
    Work,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..9usize, 0..6u8, 0..90_000u32).prop_map(|(at, file, len)| Step::Write(at, file, len)),
        1 => (0..9usize, 0..3u8).prop_map(|(at, group)| Step::Many(at, group)),
        3 => (0..9usize, 0..6u8).prop_map(|(at, file)| Step::Remove(at, file)),
        4 => ((0..9usize, 0..6u8), (0..9usize, 0..6u8)).prop_map(|(from, to)| Step::Copy(from, to)),
        4 => ((0..9usize, 0..6u8, 0..20u8), (0..9usize, 0..6u8, 0..20u8), 1..20u8)
            .prop_map(|(from, to, count)| Step::CopyPart(from, to, count)),
        2 => Just(Step::Commit),
        6 => (0..9usize).prop_map(Step::Snapshot),
        3 => (0..30usize).prop_map(Step::DestroySnapshot),
        2 => (0..30usize).prop_map(Step::Rollback),
        3 => (0..30usize).prop_map(Step::Clone),
        2 => (0..9usize).prop_map(Step::Promote),
        1 => (0..9usize).prop_map(Step::DestroyDataset),
        2 => Just(Step::Work),
        1 => Just(Step::Reopen),
    ]
}

/// The expected state of a dataset.
#[derive(Clone, Debug, Default)]
struct Model {
    files: Files,
    snapshots: Vec<(String, Files)>,
    /// For a clone: the origin's dataset and snapshot.
    origin: Option<(String, String)>,
}

struct Run {
    world: World,
    models: BTreeMap<String, Model>,
    /// Makes names and contents unique.
    count: u64,
}

impl Run {
    fn new() -> Run {
        let world = World::new(7);
        // Small records, so that files have several.
        let small = Assignment { property: "recordsize".into(), value: "16K".into() };
        world.datasets.set(&["tank".parse().unwrap()], &[small]).unwrap();
        let models = [("tank".to_owned(), Model::default())].into();
        Run { world, models, count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn dataset(&self, at: usize) -> String {
        self.models.keys().nth(at % self.models.len()).unwrap().clone()
    }

    /// One of all snapshots: its dataset and its index there.
    fn snapshot(&self, at: usize) -> Option<(String, usize)> {
        let all: Vec<_> = self
            .models
            .iter()
            .flat_map(|(name, model)| (0..model.snapshots.len()).map(move |index| (name.clone(), index)))
            .collect();
        (!all.is_empty()).then(|| all[at % all.len()].clone())
    }

    fn clones(&self, dataset: &str, snapshot: &str) -> Vec<String> {
        let of = (dataset.to_owned(), snapshot.to_owned());
        self.models
            .iter()
            .filter(|(_, model)| model.origin.as_ref() == Some(&of))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Write(at, file, len) => {
                let (dataset, file) = (self.dataset(at), format!("file{file}"));
                let content = noise(self.next() * 77, len as usize);
                self.world.write(&dataset, &file, &content);
                self.models.get_mut(&dataset).unwrap().files.insert(file, content);
            }
            Step::Many(at, group) => {
                let dataset = self.dataset(at);
                for index in 0..150 {
                    let (file, content) = (format!("many{group}-{index}"), noise(self.next(), 300));
                    self.world.write(&dataset, &file, &content);
                    self.models.get_mut(&dataset).unwrap().files.insert(file, content);
                }
            }
            Step::Remove(at, file) => {
                let (dataset, file) = (self.dataset(at), format!("file{file}"));
                if self.models.get_mut(&dataset).unwrap().files.remove(&file).is_some() {
                    self.world.remove(&dataset, &file);
                }
            }
            Step::Copy(from, to) => self.copy(from, to),
            Step::CopyPart(from, to, count) => self.copy_part(from, to, count),
            Step::Commit => drop(self.world.engine.commit().unwrap()),
            Step::Snapshot(at) => self.take_snapshot(&self.dataset(at)),
            Step::DestroySnapshot(at) => self.destroy_snapshot(at),
            Step::Rollback(at) => self.roll_back(at),
            Step::Clone(at) => self.clone_snapshot(at),
            Step::Promote(at) => self.promote(&self.dataset(at)),
            Step::DestroyDataset(at) => self.destroy_dataset(&self.dataset(at)),
            Step::Work => drop(self.world.datasets.background_step_of(3).unwrap()),
            Step::Reopen => self.world.reopen(),
        }
    }

    fn copy(&mut self, (from, source): (usize, u8), (to, target): (usize, u8)) {
        let (from, to) = (self.dataset(from), self.dataset(to));
        let (source, target) = (format!("file{source}"), format!("file{target}"));
        let Some(content) = self.models[&from].files.get(&source).cloned() else { return };
        if (&from, &source) != (&to, &target) {
            self.world.copy(&from, &source, &to, &target);
            self.models.get_mut(&to).unwrap().files.insert(target, content);
        }
    }

    fn copy_part(&mut self, (from, source, at): (usize, u8, u8), (to, target, place): (usize, u8, u8), count: u8) {
        let (from, to) = (self.dataset(from), self.dataset(to));
        let (source, target) = (format!("file{source}"), format!("file{target}"));
        let [at, place, len] = [at, place, count].map(|quarters| usize::from(quarters) << 12);
        let Some(content) = self.models[&from].files.get(&source) else { return };
        let part = content[at.min(content.len())..(at + len).min(content.len())].to_vec();
        let overlap = (&from, &source) == (&to, &target) && at < place + len && place < at + len;
        let Some(file) = self.models.get_mut(&to).unwrap().files.get_mut(&target).filter(|_| !overlap) else { return };
        let ends = ((from.as_str(), source.as_str(), at as u64), (to.as_str(), target.as_str(), place as u64));
        assert_eq!(self.world.copy_range(ends.0, ends.1, len as u64), part.len() as u64);
        if !part.is_empty() {
            file.resize(file.len().max(place + part.len()), 0);
            file[place..place + part.len()].copy_from_slice(&part);
        }
    }

    fn take_snapshot(&mut self, dataset: &str) {
        let snapshot = format!("s{}", self.next());
        self.world.snapshot(&format!("{dataset}@{snapshot}")).unwrap();
        let model = self.models.get_mut(dataset).unwrap();
        model.snapshots.push((snapshot, model.files.clone()));
    }

    fn destroy_snapshot(&mut self, at: usize) {
        let Some((dataset, index)) = self.snapshot(at) else { return };
        let snapshot = self.models[&dataset].snapshots[index].0.clone();
        let destroyed = self.world.destroy(&format!("{dataset}@{snapshot}"), false, false);
        assert_eq!(destroyed.is_ok(), self.clones(&dataset, &snapshot).is_empty());
        if destroyed.is_ok() {
            self.models.get_mut(&dataset).unwrap().snapshots.remove(index);
        }
    }

    fn roll_back(&mut self, at: usize) {
        let Some((dataset, index)) = self.snapshot(at) else { return };
        let model = self.models[&dataset].clone();
        let later = &model.snapshots[index + 1..];
        let is_free = later.iter().all(|(snapshot, _)| self.clones(&dataset, snapshot).is_empty());
        let done = self.world.rollback(&format!("{dataset}@{}", model.snapshots[index].0), true, false);
        assert_eq!(done.is_ok(), is_free, "{done:?}");
        if is_free {
            let model = self.models.get_mut(&dataset).unwrap();
            model.snapshots.truncate(index + 1);
            model.files = model.snapshots[index].1.clone();
        }
    }

    fn clone_snapshot(&mut self, at: usize) {
        let Some((dataset, index)) = self.snapshot(at).filter(|_| self.models.len() < 7) else { return };
        let (snapshot, files) = self.models[&dataset].snapshots[index].clone();
        let clone = format!("tank/c{}", self.next());
        self.world.clone(&format!("{dataset}@{snapshot}"), &clone).unwrap();
        let origin = Some((dataset, snapshot));
        self.models.insert(clone, Model { files, snapshots: Vec::new(), origin });
    }

    fn promote(&mut self, dataset: &str) {
        let Some((former, snapshot)) = self.models[dataset].origin.clone() else { return };
        self.world.datasets.promote(&name(dataset)).unwrap();
        let old = self.models.get_mut(&former).unwrap();
        let index = old.snapshots.iter().position(|(name, _)| *name == snapshot).unwrap();
        let moved: Vec<_> = old.snapshots.drain(..=index).collect();
        let above = old.origin.replace((dataset.to_owned(), snapshot));
        for model in self.models.values_mut() {
            if let Some((of, name)) = &mut model.origin
                && *of == former
                && moved.iter().any(|(moved, _)| moved == name)
            {
                dataset.clone_into(of);
            }
        }
        let new = self.models.get_mut(dataset).unwrap();
        new.snapshots.splice(0..0, moved);
        new.origin = above;
    }

    fn destroy_dataset(&mut self, dataset: &str) {
        if dataset == "tank" {
            return;
        }
        let snapshots = &self.models[dataset].snapshots;
        let is_free = snapshots.iter().all(|(snapshot, _)| self.clones(dataset, snapshot).is_empty());
        let done = self.world.destroy(dataset, true, false);
        assert_eq!(done.is_ok(), is_free, "{done:?}");
        if is_free {
            self.models.remove(dataset);
        }
    }

    fn compare(&self) {
        for (dataset, model) in &self.models {
            assert!(self.world.files(dataset) == model.files, "the files of {dataset} differ");
            for (snapshot, files) in &model.snapshots {
                let name = format!("{dataset}@{snapshot}");
                assert!(self.world.files(&name) == *files, "the files of {name} differ");
            }
        }
        let snapshots = self.models.values().map(|model| model.snapshots.len()).sum::<usize>();
        assert_eq!(self.world.names().len(), self.models.len() + snapshots);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_leaves_what_the_model_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run::new();
        let start = run.world.datasets.read(|tx| tx.master()).unwrap().physical;
        for (index, step) in steps.iter().enumerate() {
            run.take(step);
            if index % 12 == 11 {
                run.world.judge();
            }
        }
        run.compare();
        run.world.judge();
        // After everything is destroyed, all space is free again. The root dataset stays, so the root must not be a
        // clone.
        while run.models["tank"].origin.is_some() {
            run.promote("tank");
        }
        let files: Vec<String> = run.models["tank"].files.keys().cloned().collect();
        files.iter().for_each(|file| run.world.remove("tank", file));
        let clones: Vec<String> = run.models.keys().filter(|name| *name != "tank").cloned().collect();
        for clone in clones {
            if run.world.names().contains(&clone) {
                run.world.destroy(&clone, false, true).unwrap();
            }
        }
        if run.world.names().len() > 1 {
            run.world.destroy("tank@%", false, true).unwrap();
        }
        run.world.work();
        run.world.judge();
        let end = run.world.datasets.read(|tx| tx.master()).unwrap();
        prop_assert_eq!(end.physical.allocated, start.allocated);
        prop_assert_eq!(end.freeing.allocated, 0);
        prop_assert_eq!(run.world.sharing(), (0, 0));
    }
}
