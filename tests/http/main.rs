//! The real collector over HTTP: the pages of a job that trains, and attacks by unauthorised clients.

mod api;
mod client;
mod compat;
mod hostile;
mod job;
mod memory;
mod metrics;
mod otlp;
mod page;
mod relay;
mod what_if;
