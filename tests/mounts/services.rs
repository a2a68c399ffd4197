//! Pools whose service is gone, or stands still.
