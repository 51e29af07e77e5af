"""Answer assistants over the Model Context Protocol (docs/assistants.md).

``tools`` lists the tools, ``mcp_server`` serves them over stdio, ``http_transport`` over HTTP. Every answer
comes from ``sfapp.service``, is bounded, and marks text from packets as data (``bounded_answer``).
"""
