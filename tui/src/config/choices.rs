//! The user's initial choices for the screen, and those at its end, for the next screen.

use xpu_client::filter::Filter;

use super::{Config, State};
use crate::{
    app::{App, Column, Metric, Sort},
    page::Page,
    prompt::Kind,
    prompt_command,
};

impl App {
    pub fn configure(&mut self, config: &Config) {
        self.keymap = config.keymap.clone();
        self.job_view.price = config.price;
        self.page = config.page.unwrap_or(self.page);
        self.maps = config.metric.map_or(self.maps, |metric| self.maps.showing(metric));
        self.listing.sort = config.sort.unwrap_or(self.listing.sort);
        self.listing.filter = config.filter.clone().or_else(|| self.listing.filter.take());
    }

    /// Continues with the choices of an earlier screen, as far as they are understood.
    pub fn resume(&mut self, state: &State) {
        let page = Page::first().find(|(name, _)| *name == state.page);
        self.page = page.map_or(self.page, |(_, page)| page);
        let metric = Metric::called(&state.metric);
        // Every screen begins with the default metric, so the default is no choice of the user.
        let metric = metric.filter(|metric| *metric != Metric::default());
        self.maps = metric.map_or(self.maps, |metric| self.maps.showing(metric));
        self.listing.sort = prompt_command::sort(&state.sort).unwrap_or(self.listing.sort);
        if let Ok(filter) = Filter::read(&state.filter) {
            self.listing.filter = Some(filter);
        }
        for (kind, lines) in [(Kind::Filter, &state.filters), (Kind::Command, &state.commands)] {
            for line in lines {
                self.overlay.lines.keep(kind, line);
            }
        }
    }

    /// The choices with which the next screen continues.
    pub fn state(&self) -> State {
        let lines = |kind| self.overlay.lines.of(kind).map(str::to_owned).collect();
        let Sort { column, reversed } = self.listing.sort;
        State {
            page: self.page.name().to_owned(),
            metric: self.maps.metrics(&self.job_view.reported())[0].word().to_owned(),
            sort: format!("{}{}", Column::word(column), if reversed { " reversed" } else { "" }),
            filter: self.listing.filter.as_ref().map_or_else(String::new, |filter| filter.text().to_owned()),
            filters: lines(Kind::Filter),
            commands: lines(Kind::Command),
        }
    }
}
