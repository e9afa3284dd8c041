mod create;
mod pages;
mod states;
mod world;
