"""Robots that move, in one HTML file."""

from jaxdyn.viz.export import export_html as export_html
