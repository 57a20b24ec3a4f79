"""How a configuration that does not hold is refused."""

import pytest

from corag_ray.config_file import load_config
from corag_ray.errors import ConfigError


def refusal(tmp_path, text):
    """The sentence with which a YAML text is refused, without the file's name."""
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert message.endswith((".", "?"))
    assert str(path) in message
    return message.replace(str(path), "FILE")
