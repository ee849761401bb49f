//! The generated implementation of `Row`. Each field is encoded and decoded by the functions of its
//! own type, selected by a `match` over the number of the field.

use crate::field::{Direction, RowField};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit};

fn order_tokens(direction: Direction) -> TokenStream {
    match direction {
        Direction::Ascending => quote!(::perigee_tables::Order::Ascending),
        Direction::Descending => quote!(::perigee_tables::Order::Descending),
    }
}

/// Returns the call that adds a field to the schema.
fn column_declaration(field: &RowField) -> TokenStream {
    let (name, ty) = (&field.column, &field.column_type);
    let key = match field.key {
        Some(direction) => {
            let order = order_tokens(direction);
            quote!(::core::option::Option::Some(#order))
        }
        None => quote!(::core::option::Option::None),
    };
    let default = match &field.default {
        None => quote!(::core::option::Option::None),
        // So that text columns can have a literal as default.
        Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => {
            quote!(::core::option::Option::Some(::core::convert::Into::into(#text)))
        }
        Some(value) => quote!(::core::option::Option::Some(#value)),
    };
    quote_spanned! { ty.span() =>
        let schema = ::perigee_tables::derive_support::declare_column::<#ty>(
            schema, #name, #key, #default,
        );
    }
}

/// Returns `impl Row for #name`.
pub fn row_impl(name: &Ident, fields: &[RowField]) -> TokenStream {
    let declarations = fields.iter().map(column_declaration);
    let key_types = fields.iter().filter(|f| f.key.is_some()).map(|f| &f.column_type);
    let count = fields.len();
    let keys = fields.iter().enumerate().filter_map(|(i, f)| Some((i, f, f.key?)));
    let (mut write_key, mut read_key) = (Vec::new(), Vec::new());
    for (i, field, direction) in keys {
        let (ident, ty, order) = (&field.ident, &field.column_type, order_tokens(direction));
        let local = format_ident!("key_{i}");
        write_key.push(quote_spanned! { ty.span() =>
            ::perigee_tables::ColumnValue::write_ordered(&self.#ident, #order, out);
        });
        read_key.push(quote_spanned! { ty.span() =>
            let #local: #ty = <#ty as ::perigee_tables::KeyValue>::read_ordered(&mut key, #order)?;
        });
    }
    let (mut write_column, mut write_component) = (vec![], vec![]);
    let (mut read_field, mut replace_field) = (vec![], vec![]);
    for (i, field) in fields.iter().enumerate() {
        let (ident, ty) = (&field.ident, &field.column_type);
        write_component.push(quote_spanned! { ty.span() => #i => {
            ::perigee_tables::ColumnValue::write_ordered(&self.#ident, component.order, out);
            ::perigee_tables::ColumnValue::is_null(&self.#ident)
        } });
        if field.key.is_some() {
            let local = format_ident!("key_{i}");
            read_field.push(quote!(#ident: #local));
            replace_field.push(quote!(self.#ident = #local;));
            continue;
        }
        write_column.push(quote_spanned! { ty.span() =>
            #i => ::perigee_tables::ColumnValue::write_stored(&self.#ident, writer),
        });
        read_field.push(quote_spanned! { ty.span() =>
            #ident: <#ty as ::perigee_tables::ColumnValue>::read_stored(fields[#i])?
        });
        replace_field.push(quote_spanned! { ty.span() =>
            ::perigee_tables::ColumnValue::replace_by_stored(&mut self.#ident, fields[#i])?;
        });
    }
    quote! {
        #[automatically_derived]
        impl ::perigee_tables::Row for #name {
            type Key = (#(#key_types,)*);
            fn declared_schema() -> ::core::option::Option<::perigee_tables::Schema> {
                let schema = ::perigee_tables::Schema::new();
                #(#declarations)*
                ::core::option::Option::Some(schema)
            }
            #[inline]
            fn write_key(
                &self,
                _: &::perigee_tables::derive_support::Binding,
                out: &mut ::std::vec::Vec<u8>,
            ) {
                #(#write_key)*
            }
            #[inline]
            fn write_column(
                &self,
                field: usize,
                writer: &mut ::perigee_tables::derive_support::ColumnWriter<'_>,
            ) {
                match field {
                    #(#write_column)*
                    _ => {}
                }
            }
            fn write_component(
                &self,
                field: usize,
                component: ::perigee_tables::derive_support::Component,
                out: &mut ::std::vec::Vec<u8>,
            ) -> bool {
                match field {
                    #(#write_component)*
                    _ => false,
                }
            }
            #[inline]
            fn read(
                stored: &::perigee_tables::derive_support::StoredRow<'_>,
            ) -> ::core::result::Result<Self, ::perigee_tables::derive_support::Malformed> {
                let mut fields: [::core::option::Option<&[u8]>; #count] =
                    [::core::option::Option::None; #count];
                stored.split(&mut fields)?;
                let mut key = stored.key();
                #(#read_key)*
                key.finish()?;
                ::core::result::Result::Ok(Self { #(#read_field,)* })
            }
            #[inline]
            fn replace_by(
                &mut self,
                stored: &::perigee_tables::derive_support::StoredRow<'_>,
            ) -> ::core::result::Result<(), ::perigee_tables::derive_support::Malformed> {
                let mut fields: [::core::option::Option<&[u8]>; #count] =
                    [::core::option::Option::None; #count];
                stored.split(&mut fields)?;
                let mut key = stored.key();
                #(#read_key)*
                key.finish()?;
                #(#replace_field)*
                ::core::result::Result::Ok(())
            }
        }
    }
}
