//! Clock, Entropy and CloudProvider: what the shell needs from the outside world.
