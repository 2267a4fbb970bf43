//! Custom resources: registration from CRD objects, schemas, conversion.

mod conversion;
mod definition;
mod schema;

pub(crate) use conversion::{from_storage, to_storage};
pub(crate) use definition::{establish, id, react};
pub(crate) use schema::Schema;
