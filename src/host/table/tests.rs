//! Tests of the table on a disk in memory.
