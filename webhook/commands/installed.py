"""What the cluster's Tutti was configured with, read from where it is installed."""

from typing import Final

from webhook.config import Config, parse
from webhook.core.notation import names
from webhook.kube.api import Api
from webhook.kube.finding import find
from webhook.untyped import paths

_CONFIG: Final = f"{names.CONFIG_MAPS}/tutti-config"


async def stored_config(api: Api) -> Config:
    """Return the configuration that the cluster's Tutti ran with; the defaults where none is stored.

    Raises Forbidden for who may not read it.
    """
    stored = await find(api, _CONFIG)
    return parse(paths.find_mapping(stored, ("data",)).get("config.yaml", ""), "ConfigMap tutti-config")
