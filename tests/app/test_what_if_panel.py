"""The what-if beside the gates: choose what is made typical, and see what a step would take then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, Ints, reduced, window_of
from click.testing import CliRunner
from nicegui.testing import User
from page_elements import chooser, href, number, one, slider
from recorded_job import job_window, put
from simulation import simulated

from sfapp.accounting import WhatIf
from sfapp.cli import main
from sfapp.model import Fix, Window
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text import what_if_text
