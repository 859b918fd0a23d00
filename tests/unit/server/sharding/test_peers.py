"""The other replicas, from EndpointSlices."""

import orjson

from webhook.server.sharding.peers import decode


def slice_of(*endpoints: dict[str, object], address_type: str = "IPv4") -> bytes:
    metadata = {"uid": "u", "namespace": "tutti-system", "name": "tutti-webhook-x", "resourceVersion": "5"}
    return orjson.dumps(
        {
            "metadata": metadata,
            "addressType": address_type,
            "ports": [{"name": "https", "port": 9443}],
            "endpoints": list(endpoints),
        }
    )


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, object]:
    return {"addresses": [address], "targetRef": {"kind": "Pod", "name": name}, "conditions": conditions}


def test_replicas_are_named_by_their_pods() -> None:
    """A pod's name is the identity that each replica knows itself by."""
    raw = slice_of(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", ready=False, serving=True))
    assert decode(raw).replicas == {"a": "https://10.0.0.1:9443", "b": "https://10.0.0.2:9443"}


def test_what_is_known_not_to_serve_is_left_out() -> None:
    """A pod that has ended, and an endpoint that is no pod."""
    raw = slice_of(endpoint("a", "10.0.0.1", serving=False), {"addresses": ["10.0.0.9"]})
    assert decode(raw).replicas == {}


def test_addresses_of_the_newer_protocol_are_bracketed() -> None:
    """A URL needs them."""
    assert decode(slice_of(endpoint("a", "fd00::1"), address_type="IPv6")).replicas == {"a": "https://[fd00::1]:9443"}
