"""Print the findings of HolisticTraceAnalysis in a folder of Kineto traces as JSON: peers_hta.py FOLDER.

Started by ``benchmarks.peers`` with the Python of an environment in which HolisticTraceAnalysis is installed;
it has its own versions of pandas and Plotly, so it does not share sfapp's.
"""

import importlib.metadata
import json
import sys


def main() -> None:
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    found: dict[str, object] = {"version": importlib.metadata.version("HolisticTraceAnalysis")}
    try:
        found["stragglers"] = [int(rank) for rank in analysis.get_potential_stragglers(num_candidates=1)]
    except (ValueError, IndexError, KeyError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
