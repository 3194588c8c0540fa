#!/usr/bin/env python3
"""Gives deploy/skypilot and deploy/dstack to their own programs' readers (checked with skypilot 0.14.1 and dstack 0.22.5).

    python3 -m venv venv && venv/bin/pip install skypilot==0.14.1 dstack==0.22.5
    venv/bin/python scripts/deploy_check.py

Kubernetes' files are checked by tests/deploy_test.go. Exit code 1 where one is refused.
"""
import pathlib

import jsonschema
import yaml
from dstack._internal.core.models.configurations import parse_run_configuration
from sky.utils import schemas

deploy = pathlib.Path(__file__).resolve().parent.parent / "deploy"
task = yaml.safe_load((deploy / "skypilot/train.yaml").read_text())
jsonschema.validate(task, schemas.get_task_schema())
print(f"skypilot/train.yaml: a task of {task['num_nodes']} nodes")
run = parse_run_configuration(yaml.safe_load((deploy / "dstack/train.dstack.yml").read_text()))
print(f"dstack/train.dstack.yml: {type(run).__name__}, {run.nodes} nodes")
