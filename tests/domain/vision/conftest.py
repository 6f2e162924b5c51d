import pytest

from tests.support.oracles import read_oracle


@pytest.fixture(scope="session")
def oracle():
    return read_oracle
