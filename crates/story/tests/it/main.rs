//! The tests of answers: one program, because each would be built and linked with all of it.

mod adopt;
mod doctor;
mod pdb;
