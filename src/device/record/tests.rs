//! Tests of the record on a disk in memory.
