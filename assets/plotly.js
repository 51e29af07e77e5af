// What NiceGUI's plotly component imports: the cartesian bundle instead of the whole one.
import "./vendor/plotly-cartesian-3.7.0.min.js";

export const Plotly = window.Plotly;
