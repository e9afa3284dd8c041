mod create;
mod memory;
mod pages;
mod states;
pub mod world;
