mod create;
mod memory;
mod pages;
mod states;
mod world;
