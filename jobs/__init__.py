"""Programs to run: `python -m jobs.NAME`."""

import os

from corag_ray.models.torch_setup import SLEEPING_THREADS

os.environ.update(SLEEPING_THREADS)  # here, since most jobs load torch with their imports
