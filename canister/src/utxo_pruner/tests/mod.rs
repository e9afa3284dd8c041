mod damage;
mod large;
mod runs;
mod service;
