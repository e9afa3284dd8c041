mod create;
mod world;
