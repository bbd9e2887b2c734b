mod cluster;
mod hang;
mod healthy;
mod longer_steps;
mod recorded;
mod slow;
