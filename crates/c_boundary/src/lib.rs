//! What the two C libraries of Perigee share: the tables behind the handles that C holds
//! ([`handle`]), and the scopes in which callbacks of the program run ([`callback`]). Contains
//! nothing that is specific to one of the two interfaces.
#![allow(unsafe_code)] // Access to the slots of the handle tables; each block has its reason.

pub mod callback;
pub mod handle;
