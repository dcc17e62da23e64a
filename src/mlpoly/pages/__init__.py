"""Pages about networks and studies, each one self-contained HTML file."""
