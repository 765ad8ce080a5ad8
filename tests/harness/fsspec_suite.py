"""fsspec's own abstract tests, against the place in FSSPEC_PLACE. tests/test_fsspec.py runs this file with pytest on a host."""

import json
import os

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

PLACE = json.loads(os.environ["FSSPEC_PLACE"])


class Far(AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls):
        fs, _ = fsspec.url_to_fs(PLACE["url"], **PLACE["options"])
        return fs

    @pytest.fixture
    def fs_path(self, fs):
        path = fs._strip_protocol(PLACE["url"])
        fs.makedirs(path, exist_ok=True)
        return path

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(Far, AbstractCopyTests):
    pass


class TestGet(Far, AbstractGetTests):
    pass


class TestPut(Far, AbstractPutTests):
    pass


class TestPipe(Far, AbstractPipeTests):
    pass


class TestOpen(Far, AbstractOpenTests):
    pass
