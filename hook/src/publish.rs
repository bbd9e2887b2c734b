//! The work of the hook's thread: it reads the records, keeps the budget, and reports to the collector.

pub(crate) mod bell;
pub(crate) mod budget;
pub(crate) mod fold;
pub(crate) mod governor;
pub(crate) mod identity;
pub(crate) mod line;
pub(crate) mod publisher;
pub(crate) mod rate;
