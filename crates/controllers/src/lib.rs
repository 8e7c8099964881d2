//! Watch events fold into state, pure functions decide, execute writes.
