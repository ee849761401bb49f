//! The derive macro `Row` of `perigeedb-tables`: writes the code that encodes and decodes the
//! fields of a struct. The trait documents the attributes.
#![forbid(unsafe_code)]

mod limits;
mod field;
mod generate;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `perigee_tables::Row` for a struct with named fields: see the trait for the attributes
/// `#[key]`, `#[key(desc)]`, `#[row(rename = "...")]` and `#[row(default = ...)]`.
#[proc_macro_derive(Row, attributes(key, row))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match field::parse_fields(&input) {
        Ok(fields) => generate::row_impl(&input.ident, &fields).into(),
        Err(e) => e.into_compile_error().into(),
    }
}
