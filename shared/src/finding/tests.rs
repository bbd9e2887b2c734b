mod cluster;
mod hang;
mod healthy;
mod slow;
