"""What is jitted here today must not become open."""

from tests.closed import none_is_open as none_is_open
