//! The order of steps: each after what it needs, and otherwise as they stand in the file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use gesta_core::ids::StepId;

/// How many cycles are named: each costs a sort.
const MAX_CYCLES: usize = 8;

/// The steps and what each of them needs, in the order of the file.
pub(super) struct Graph {
    ids: Vec<StepId>,
    /// By the number of the step: the numbers of those it needs.
    needs: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// Needs of steps that are not among these are left out.
    pub(super) fn new(steps: Vec<(StepId, BTreeSet<StepId>)>) -> Self {
        let numbers: BTreeMap<StepId, usize> =
            steps.iter().enumerate().map(|(number, (id, _))| (id.clone(), number)).collect();
        let (ids, needs) = steps
            .into_iter()
            .map(|(id, needs)| {
                (id, needs.iter().filter_map(|id| numbers.get(id).copied()).collect())
            })
            .unzip();
        Self { ids, needs }
    }

    /// The numbers of the steps in the order of the plan, or the cycles that leave them without one.
    pub(super) fn order(&self) -> Result<Vec<usize>, Vec<Vec<usize>>> {
        let mut cycles: Vec<Vec<usize>> = Vec::new();
        let mut removed = BTreeSet::new();
        loop {
            let (order, left) = self.sort(&removed);
            let Some(cycle) = self.cycle(&left) else {
                return if cycles.is_empty() { Ok(order) } else { Err(cycles) };
            };
            removed.extend(cycle.iter().copied());
            cycles.push(cycle);
            if cycles.len() == MAX_CYCLES {
                return Err(cycles);
            }
        }
    }

    /// Sorts all steps but the removed ones; hands back those that need themselves in the end, too.
    fn sort(&self, removed: &BTreeSet<usize>) -> (Vec<usize>, BTreeSet<usize>) {
        let mut left: BTreeSet<usize> =
            (0..self.needs.len()).filter(|number| !removed.contains(number)).collect();
        let mut dependents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        let mut ready = BinaryHeap::new();
        for number in &left {
            let needs = self
                .needs
                .get(*number)
                .into_iter()
                .flatten()
                .filter(|need| !removed.contains(need));
            let mut count = 0;
            for need in needs {
                dependents.entry(*need).or_default().push(*number);
                count += 1;
            }
            missing.insert(*number, count);
            if count == 0 {
                ready.push(Reverse(*number));
            }
        }
        let mut order = Vec::with_capacity(left.len());
        while let Some(Reverse(number)) = ready.pop() {
            left.remove(&number);
            order.push(number);
            for dependent in dependents.remove(&number).unwrap_or_default() {
                if let Some(count) = missing.get_mut(&dependent) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(Reverse(dependent));
                    }
                }
            }
        }
        (order, left)
    }

    /// A cycle among steps that could not be sorted, from its first step in the file.
    fn cycle(&self, left: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        let mut here = *left.first()?;
        loop {
            if let Some(at) = path.iter().position(|number| *number == here) {
                let mut cycle = path.split_off(at);
                let first = cycle.iter().enumerate().min_by_key(|(_, number)| **number);
                let turn = first.map_or(0, |(at, _)| at);
                cycle.rotate_left(turn);
                return Some(cycle);
            }
            path.push(here);
            // Every step that is left needs another one that is left, or it would have been sorted.
            here = *self.needs.get(here)?.iter().find(|need| left.contains(need))?;
        }
    }

    /// The steps that no other needs.
    pub(super) fn leaves(&self) -> Vec<usize> {
        let needed: BTreeSet<usize> = self.needs.iter().flatten().copied().collect();
        (0..self.ids.len()).filter(|number| !needed.contains(number)).collect()
    }

    pub(super) fn id(&self, number: usize) -> Option<&StepId> {
        self.ids.get(number)
    }

    /// What a step needs, by id.
    pub(super) fn needs(&self, number: usize) -> Vec<StepId> {
        let needs = self.needs.get(number).into_iter().flatten();
        let mut ids: Vec<StepId> = needs.filter_map(|need| self.ids.get(*need).cloned()).collect();
        ids.sort();
        ids
    }
}
