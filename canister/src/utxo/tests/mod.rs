mod create;
mod large;
mod memory;
mod pages;
mod states;
pub mod world;
