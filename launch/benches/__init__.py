"""One measurement a file; `launch.bench` says what they have in common."""
