//! `gesta` through its front door: the real binary, real files, real databases.

mod demo;
mod doctor;
mod errors;
mod export;
mod help;
mod init;
mod keys;
mod log;
mod postgres;
mod sample;
mod verify;
mod world;
