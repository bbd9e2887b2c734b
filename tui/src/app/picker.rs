//! A list to choose from, over the page: the quantity of the maps, the column to sort by, a job.

use xpu_model::{figure, job::Job};

use super::{App, order::Sortable};
use crate::action::{Action, Choosing, Motion};

/// Lines by which a page key moves.
const PAGE: usize = 10;

/// The list as it was when opened, so that arriving data does not move lines under the cursor.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    pub title: &'static str,
    pub items: Vec<Item>,
    at: usize,
}

/// A line of the list.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub text: String,
    pub about: String,
    /// Whether it is the present choice.
    pub is_current: bool,
    pub action: Action,
}

impl Picker {
    /// The cursor starts on the present choice.
    fn new(title: &'static str, items: Vec<Item>) -> Self {
        let at = items.iter().position(|item| item.is_current).unwrap_or(0);
        Self { title, items, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn travel(&mut self, motion: Motion) {
        self.at = motion.from(self.at, self.items.len(), PAGE);
    }

    /// Moves to the next line that begins with this letter; `false` if there is none.
    pub(crate) fn jump(&mut self, letter: char) -> bool {
        let begins = |item: &Item| {
            item.text.chars().next().is_some_and(|first| first.to_lowercase().eq(letter.to_lowercase()))
        };
        let after = (self.at + 1..self.items.len()).chain(0..=self.at);
        let found = after.into_iter().find(|&at| self.items.get(at).is_some_and(begins));
        self.at = found.unwrap_or(self.at);
        found.is_some()
    }

    /// The action of choosing this line.
    pub(crate) fn action(&self, line: usize) -> Option<Action> {
        self.items.get(line).map(|item| item.action.clone())
    }
}

impl App {
    /// The list to choose from, or the reason why there is nothing to choose.
    pub(crate) fn choices(&self, of: Choosing) -> Result<Picker, String> {
        match of {
            Choosing::Metric => self.metrics(),
            Choosing::Sort => self.columns(),
            Choosing::Job => self.job_choices(),
        }
    }

    fn metrics(&self) -> Result<Picker, String> {
        let shown = self.mapped();
        let item = |metric: super::Metric| Item {
            text: metric.title().to_owned(),
            about: metric.means().trim().to_owned(),
            is_current: shown.contains(&metric),
            action: Action::ShowMetric(metric),
        };
        let items: Vec<_> = self.job_view.reported().into_iter().map(item).collect();
        if items.is_empty() {
            Err("no rank has reported yet".to_owned())
        } else {
            Ok(Picker::new("Maps show", items))
        }
    }

    fn columns(&self) -> Result<Picker, String> {
        let items = self.page.view().columns(self);
        if items.is_empty() {
            Err("this page cannot be sorted".to_owned())
        } else {
            Ok(Picker::new("Sort by", items))
        }
    }

    fn job_choices(&self) -> Result<Picker, String> {
        let shown = self.job().map(Job::name);
        let jobs: Vec<_> = self.observed.jobs.iter().collect();
        if let [] | [_] = jobs[..] {
            return Err(shown.map_or_else(|| "no job yet".to_owned(), |job| format!("{job} is the only job")));
        }
        let item = |job: &Job| {
            let (living, of) = (job.living(), job.world_size() as usize);
            let about = match living {
                0 => "ended".to_owned(),
                living if living < of => {
                    format!("{} of {} ranks", figure::count(living as u64), figure::count(of as u64))
                }
                _ => figure::counted(of, "rank", "ranks"),
            };
            let name = job.name().clone();
            Item {
                text: name.to_string(),
                about,
                is_current: Some(&name) == shown,
                action: Action::ChooseJob(name),
            }
        };
        Ok(Picker::new("Jobs", jobs.into_iter().map(item).collect()))
    }
}

/// The columns of a page's list.
pub(crate) fn columns<C: Sortable>(current: C) -> Vec<Item> {
    let item = |(nth, &column): (usize, &C)| Item {
        text: column.title().to_owned(),
        about: String::new(),
        is_current: column == current,
        action: Action::SortColumn(nth),
    };
    C::ALL.iter().enumerate().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker(texts: &[&str]) -> Picker {
        let item = |(nth, text): (usize, &&str)| Item {
            text: (*text).to_owned(),
            about: String::new(),
            is_current: nth == 1,
            action: Action::SortColumn(nth),
        };
        Picker::new("Sort by", texts.iter().enumerate().map(item).collect())
    }

    #[test]
    fn a_letter_goes_round_the_lines_that_begin_with_it() {
        let mut picker = picker(&["memory", "power", "Memory of all", "late"]);
        assert_eq!(picker.at(), 1, "the current one");
        let mut visited = Vec::new();
        for _ in 0..3 {
            assert!(picker.jump('m'));
            visited.push(picker.at());
        }
        assert_eq!(visited, [2, 0, 2]);
        assert!(!picker.jump('x'));
        assert_eq!(picker.at(), 2);
        picker.travel(Motion::Last);
        assert!(matches!(picker.action(picker.at()), Some(Action::SortColumn(3))));
    }
}
