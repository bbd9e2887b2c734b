mod cluster;
mod hang;
mod healthy;
mod recorded;
mod slow;
