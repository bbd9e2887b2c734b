"""Prints the figures of Holistic Trace Analysis (HTA) for a folder of traces, as JSON. Needs the Python of an
environment with HTA."""

import json
import sys

from hta.common.trace import Trace
from hta.trace_analysis import TraceAnalysis

folder = sys.argv[1]
analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
ranks = sorted(analysis.t.traces)
kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
idle, _ = analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
launches = analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
trace = Trace(trace_dir=folder)
trace.parse_traces()
json.dump(
    {
        "temporal": analysis.get_temporal_breakdown(visualize=False).to_dict("records"),
        "kinds": kinds.to_dict("records"),
        "kernels": kernels.to_dict("records"),
        "idle": idle.to_dict("records"),
        "overlap": analysis.get_comm_comp_overlap(visualize=False).to_dict("records"),
        "launches": {rank: len(table) for rank, table in launches.items()},
        "iterations": {
            rank: sorted({int(step) for step in table.loc[table["stream"] > 0, "iteration"]})
            for rank, table in trace.traces.items()
        },
    },
    sys.stdout,
    default=float,
)
