//! What an event says of a device.

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A disk or partition, by its kernel name, came, went or changed.
    Changed { name: String },
    /// udev has written down what it knows of the device; the device itself may be as it was.
    Described { name: String },
    /// Something was lost: anything may have changed.
    Overflow,
}
