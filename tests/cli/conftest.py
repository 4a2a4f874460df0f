from tests.data.conftest import own_cache, real, real_data  # noqa: F401
