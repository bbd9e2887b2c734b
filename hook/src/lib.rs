//! Watches one training process from inside.
