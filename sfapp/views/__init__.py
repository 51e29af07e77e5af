"""What a diagnosis looks like: plain Plotly figures, table rows and sentences.

Everything here is a pure function of measures, a diagnosis, or rows of the store: no file, clock, environment
or log. Figures are plain dicts in plotly.js's schema, so that the app, the report and the notebook draw the
same ones. ``format`` is the only place that turns numbers into text. Tables and sentences are plain text,
never markup: whoever shows them escapes them. Figures escape what comes from files themselves.
"""
