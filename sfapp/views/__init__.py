"""Figures, table rows and sentences for diagnoses, comparisons and findings.

Everything here is a pure function of measures, diagnoses and rows of the store: no files, clock, environment
or log. Figures are plain dicts in plotly.js's schema, so that the app, the report and the notebook draw the
same plots. ``format`` is the only place that turns numbers into text. Tables and sentences are plain text,
never markup; the surface that shows them escapes them. Figures escape text from files themselves.
"""
