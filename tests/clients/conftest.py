import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "serving"))

from sluice_server import TINY, Server  # noqa: E402


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The bundled model in float32, so that answers repeat."""
    log = tmp_path_factory.mktemp("tiny") / "server.log"
    with Server(TINY, "--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536", log=log) as s:
        yield s
