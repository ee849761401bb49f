//! Parses lines of JSON objects: finds the fields of a line without copying their values.

use super::row_source::{CellKind, CellSpan, ColumnNames};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Finds the fields of an object. `cells` gets a cell for each column of `columns`; without a field
/// it is [`CellSpan::NULL`]. An unknown field becomes a new column, or is an error if the columns
/// are fixed.
pub fn parse_fields(
    line: &str,
    columns: &mut ColumnNames,
    cells: &mut Vec<CellSpan>,
) -> Result<(), String> {
    cells.clear();
    cells.resize(columns.names().len(), CellSpan::NULL);
    let mut parser = serde_json::Deserializer::from_str(line);
    let fields = Fields { columns, cells, line_start: line.as_ptr() as usize };
    let parsed = fields.deserialize(&mut parser).and_then(|()| parser.end());
    parsed.map_err(|e| {
        // The line is one of the file, so its number in the message of serde would be wrong.
        let text = e.to_string();
        let position = format!(" at line {} column {}", e.line(), e.column());
        match (text.strip_suffix(&position), e.is_data()) {
            (Some(reason), true) => reason.to_owned(),
            (Some(reason), false) => {
                format!("not a JSON object: {reason} at column {}", e.column())
            }
            (None, _) => format!("not a JSON object: {text}"),
        }
    })
}

struct Fields<'a> {
    columns: &'a mut ColumnNames,
    cells: &'a mut Vec<CellSpan>,
    /// Address of the line: values are slices of it.
    line_start: usize,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(position) = map.next_key_seed(FieldName(self.columns))? {
            let raw: &'de RawValue = map.next_value()?;
            let raw = raw.get();
            let start = raw.as_ptr() as usize - self.line_start;
            self.cells.resize(self.columns.names().len(), CellSpan::NULL);
            let cell = &mut self.cells[position];
            if cell.end > 0 {
                let name = &self.columns.names()[position];
                return Err(A::Error::custom(format!("the field {name:?} occurs twice")));
            }
            let kind = if raw == "null" { CellKind::Null } else { CellKind::Json };
            *cell = CellSpan { kind, start, end: start + raw.len() };
        }
        Ok(())
    }
}

/// The name of a field; deserializes to the position of its column.
struct FieldName<'a>(&'a mut ColumnNames);

impl<'de> DeserializeSeed<'de> for FieldName<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName<'_> {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.0.position_or_add(name).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let (mut columns, mut cells) = (ColumnNames::default(), Vec::new());
        let line = r#" {"b": [1, 2], "a\n": null, "c":"x"} "#;
        parse_fields(line, &mut columns, &mut cells).unwrap();
        assert_eq!(columns.names(), ["b", "a\n", "c"]);
        let found: Vec<&str> = cells.iter().map(|c| &line[c.start..c.end]).collect();
        assert_eq!(found, ["[1, 2]", "null", "\"x\""]);
        assert_eq!(cells[1].kind, CellKind::Null);
        parse_fields(r#"{"c":1}"#, &mut columns, &mut cells).unwrap();
        assert_eq!(
            (cells.len(), cells[0].kind, cells[2].kind),
            (3, CellKind::Null, CellKind::Json)
        );
    }

    #[test]
    fn other_lines_are_refused() {
        let (mut columns, mut cells) = (ColumnNames::fixed(&["a".to_owned()]), Vec::new());
        let mut reason = |line: &str| parse_fields(line, &mut columns, &mut cells).unwrap_err();
        assert!(reason("[1]").contains("object"));
        assert!(reason("{\"a\":").contains("column 5"));
        assert!(reason(r#"{"a":1} x"#).contains("trailing"));
        assert!(reason(r#"{"a":1,"a":2}"#).contains("\"a\" occurs twice"));
        assert!(reason(r#"{"b":1}"#).contains("no column \"b\""));
    }
}
