//! Why there is no such device.

use std::fmt;

/// A model that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelError {
    /// A parameter has a value with which no device could work.
    Parameter {
        /// Which one, as the field is called.
        name: &'static str,
        /// What it has to be.
        must: &'static str,
    },
    /// There is no preset of that name.
    Name(String),
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::Parameter { name, must } => {
                write!(f, "the device's parameter {name} must be {must}")
            }
            ModelError::Name(name) => {
                let known = crate::Model::NAMES.join(", ");
                write!(f, "there is no device called {name:?}; there are: {known}")
            }
        }
    }
}

impl std::error::Error for ModelError {}

/// An error unless the parameter is as it must be.
pub(crate) fn require(
    holds: bool,
    name: &'static str,
    must: &'static str,
) -> Result<(), ModelError> {
    if holds {
        Ok(())
    } else {
        Err(ModelError::Parameter { name, must })
    }
}
