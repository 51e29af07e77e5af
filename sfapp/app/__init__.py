"""The web application: pages, their panels and the JSON API, served by NiceGUI."""
