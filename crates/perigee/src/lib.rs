//! perigee
