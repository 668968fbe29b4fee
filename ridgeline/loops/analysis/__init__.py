"""What can be known of loops without running them: counts, bounds, footprints, aliasing."""
