"""What the cluster's Tutti was configured with, read from where it is installed."""

from typing import Final

import orjson

from webhook.config import Config, parse
from webhook.core.notation import names
from webhook.errors import NotFound
from webhook.kube.api import Api

_CONFIG: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/tutti-config"


async def stored_config(api: Api) -> Config:
    """Return the configuration that the cluster's Tutti ran with; the defaults where none is stored.

    Raises Forbidden for who may not read it.
    """
    try:
        stored = orjson.loads(await api.request("GET", _CONFIG))
    except NotFound:
        return Config()
    return parse((stored.get("data") or {}).get("config.yaml", ""), "ConfigMap tutti-config")
