//! Fields of a struct that derives `Row`, with their attributes. Errors point to the wrong token.

use crate::limits::KEY_COLUMNS_MAX;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Meta, Result, Type};

/// The direction of a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

/// A field with its attributes.
pub struct RowField {
    pub ident: Ident,
    pub column_type: Type,
    pub column: String,
    pub key: Option<Direction>,
    pub default: Option<Expr>,
}

/// Returns the fields of a struct, or the first error.
pub fn parse_fields(input: &DeriveInput) -> Result<Vec<RowField>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "`Row` can be derived for structs only"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new(input.ident.span(), "`Row` needs a struct with named fields"));
    };
    if !input.generics.params.is_empty() {
        let text = "`Row` cannot be derived for a generic struct: a table has one schema";
        return Err(Error::new(input.generics.span(), text));
    }
    let fields = named.named.iter().map(parse_field).collect::<Result<Vec<RowField>>>()?;
    let keys = fields.iter().filter(|f| f.key.is_some()).count();
    if keys == 0 {
        let text = "a row needs a primary key: mark at least one field with #[key]";
        return Err(Error::new(input.ident.span(), text));
    }
    if keys > KEY_COLUMNS_MAX {
        let text = format!("a primary key has at most {KEY_COLUMNS_MAX} columns");
        return Err(Error::new(input.ident.span(), text));
    }
    for (i, field) in fields.iter().enumerate() {
        if fields[..i].iter().any(|earlier| earlier.column == field.column) {
            let text = format!("two fields have the column name {:?}", field.column);
            return Err(Error::new(field.ident.span(), text));
        }
    }
    Ok(fields)
}

fn parse_field(field: &syn::Field) -> Result<RowField> {
    let ident = field.ident.clone().ok_or_else(|| Error::new(field.span(), "a name is missing"))?;
    let raw = ident.to_string();
    let mut parsed = RowField {
        column: raw.strip_prefix("r#").unwrap_or(&raw).to_owned(),
        ident,
        column_type: field.ty.clone(),
        key: None,
        default: None,
    };
    for attribute in &field.attrs {
        if attribute.path().is_ident("key") {
            parse_key(attribute, &mut parsed)?;
        } else if attribute.path().is_ident("row") {
            parse_options(attribute, &mut parsed)?;
        }
    }
    if let (Some(_), Some(default)) = (parsed.key, &parsed.default) {
        let text = "a key column has no default: it cannot be added to an existing table";
        return Err(Error::new(default.span(), text));
    }
    Ok(parsed)
}

/// Parses `#[key]` or `#[key(desc)]`.
fn parse_key(attribute: &Attribute, field: &mut RowField) -> Result<()> {
    if field.key.is_some() {
        return Err(Error::new(attribute.span(), "the field is marked as a key twice"));
    }
    field.key = Some(Direction::Ascending);
    if let Meta::Path(_) = attribute.meta {
        return Ok(());
    }
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("desc") {
            field.key = Some(Direction::Descending);
            return Ok(());
        }
        Err(meta.error("expected #[key] or #[key(desc)]"))
    })
}

/// Parses `#[row(rename = "...", default = ...)]`.
fn parse_options(attribute: &Attribute, field: &mut RowField) -> Result<()> {
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("rename") {
            let name: LitStr = meta.value()?.parse()?;
            if name.value().is_empty() {
                return Err(Error::new(name.span(), "the name of a column is not empty"));
            }
            field.column = name.value();
            return Ok(());
        }
        if meta.path.is_ident("default") {
            field.default = Some(meta.value()?.parse()?);
            return Ok(());
        }
        Err(meta.error("expected `rename = \"...\"` or `default = ...`"))
    })
}
