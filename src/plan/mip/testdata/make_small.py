#!/usr/bin/env python3
"""Writes small.json: six equal layers on a small device behind a slow link, so that nothing is free and all tiers help."""
import json
import pathlib

UNITS = 6
FORWARD_S = 0.08
MENU = [([], 0.0, 0.06, 0.01), (["ao"], 0.003, 0.055, 0.01), (["xm"], 0.002, 0.05, 0.01), (["gu", "xm"], 0.016, 0.014, 0.01),
        (["gu", "xm", "ao", "qkv"], 0.022, 0.0, 0.01)]

instance = {
    "name": "small", "formulation": "lazytrain", "units": UNITS,
    "forward_s": [FORWARD_S] * UNITS, "backward_s": [2 * FORWARD_S] * UNITS, "boundary_gb": [0.002] * UNITS,
    "weight_gb": [0.05] * UNITS, "grad_gb": [0.05] * UNITS, "update_s": [0.03] * UNITS,
    "device_home_gb": [0.25] * UNITS, "device_update_s": [0.001] * UNITS,
    "menu": [[{"retained": names, "retained_gb": gb, "recompute_s": seconds, "workspace_gb": workspace}
              for names, gb, seconds, workspace in MENU]] * UNITS,
    "forward_workspace_gb": [0.01] * UNITS,
    "head": {"compute_s": 0.1, "weight_gb": 0.03, "grad_gb": 0.03},
    "links_gbs": {"h2d": 0.5, "d2h": 0.5, "joint": 0.8, "disk_read": 0.2, "disk_write": 0.2},
    "budget_gb": {"device": 0.1, "host": 0.03, "disk": 0.05},
    "max_block": 4, "gap": 0.002,
}
path = pathlib.Path(__file__).with_name("small.json")
path.write_text(json.dumps(instance, indent=1) + "\n")
