mod damage;
mod heights;
mod large;
mod runs;
mod service;
