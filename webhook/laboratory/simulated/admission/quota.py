"""ResourceQuota enforcement: the last admission step of a CREATE, and the used amounts that a quota's status shows.

Written apart from ``core.quota.fences`` on purpose, from the rules of ``pkg/quota/v1/evaluator/core``: the simulation
judges by it what the fences decided, and a judge must not share the code it judges. Only the price of a pod is shared.
Enforcement is exact: usage follows the stored pods, and the check and the commit are one step.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core.model.gang import PodPrice
from webhook.core.notation import quantity
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Event, Store, Stored
from webhook.laboratory.simulated.requests.refusals import Json, forbidden

PODS: Final = ("", "pods")
QUOTAS: Final = ("", "resourcequotas")
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


class _Account:
    """One quota's limits and what counted pods use of it."""

    __slots__ = ("hard", "quota", "used")

    def __init__(self, quota: Json, pods: Iterable[tuple[Json, PodPrice]]) -> None:
        self.quota = quota
        self.hard = {key: quantity.parse(value) for key, value in (quota["spec"].get("hard") or {}).items()}
        self.used = dict.fromkeys(self.hard, 0)
        for _, price in pods:
            self.add(price, 1)

    def add(self, price: PodPrice, sign: int) -> None:
        for key, amount in self.charge(price).items():
            self.used[key] += sign * amount

    def matches(self, price: PodPrice) -> bool:
        return all(_scope_holds(*scope, price) for scope in _scopes(self.quota["spec"]))

    def charge(self, price: PodPrice) -> dict[str, int]:
        if not self.matches(price):
            return {}
        return {key: amount for key in self.hard if (amount := _cost(key, price))}


class Quotas:
    """Charges new objects against the ResourceQuotas of their namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._prices: dict[str, PodPrice] = {}
        store.subscribe(self._quota_changed, QUOTAS)
        store.subscribe(self._pod_changed, PODS)

    def charge(self, resource: Resource, item: Json) -> None:
        """Refuse a new object that some ResourceQuota has no room for. Raises Refused (403)."""
        accounts = self._accounts.get(item["metadata"].get("namespace", ""))
        if not accounts:
            return
        price = _price(item["spec"]) if resource.storage == PODS else None
        for name in sorted(accounts):
            account = accounts[name]
            if price is not None and not account.matches(price):
                continue
            if price is not None:
                _check_stated(resource, item, account)
            asked = _count(account, resource) if price is None else account.charge(price)
            used = self._counted(account, resource) if price is None else account.used
            over = [key for key, amount in sorted(asked.items()) if used.get(key, 0) + amount > account.hard[key]]
            if over:
                parts = (("requested", asked), ("used", used), ("limited", account.hard))
                shown = ", ".join(f"{word}: {_listed(amounts, over)}" for word, amounts in parts)
                raise forbidden(resource, item["metadata"]["name"], f"exceeded quota: {name}, {shown}")

    def status(self, namespace: str, name: str) -> Json | None:
        """Return ``status`` of a quota as its controller writes it, None for an unknown one."""
        account = self._accounts.get(namespace, {}).get(name)
        if account is None:
            return None
        used = dict(account.used)
        for key in account.hard:
            if key.startswith("count/") and key != "count/pods":
                group, plural = _count_key(key)
                used[key] = quantity.MILLI * sum(1 for _ in self._store.items((group, plural), namespace))
        shown = {key: quantity.render(amount, key.rpartition(".")[2]) for key, amount in used.items()}
        return {"hard": dict(account.quota["spec"].get("hard") or {}), "used": shown}

    def _counted(self, account: _Account, resource: Resource) -> dict[str, int]:
        namespace = account.quota["metadata"]["namespace"]
        return {_count_name(resource): quantity.MILLI * sum(1 for _ in self._store.items(resource.storage, namespace))}

    # -- following the store ----------------------------------------------------------------------------------------

    def _quota_changed(self, event: Event) -> None:
        namespace, name = event.current.key
        if event.type == "DELETED":
            self._accounts.get(namespace, {}).pop(name, None)
            return
        known = self._accounts.get(namespace, {}).get(name)
        if known is not None and known.quota["spec"] == event.current.object["spec"]:
            return
        pods = [(s.object, self._priced(s)) for s in self._store.unordered(PODS, namespace) if _is_counted(s.object)]
        self._accounts.setdefault(namespace, {})[name] = _Account(event.current.object, pods)

    def _pod_changed(self, event: Event) -> None:
        accounts = self._accounts.get(event.current.key[0])
        if accounts:
            before = event.previous is not None and _is_counted(event.previous.object)
            after = event.type != "DELETED" and _is_counted(event.current.object)
            if before is not after:
                price = self._priced(event.current)
                for account in accounts.values():
                    account.add(price, 1 if after else -1)
        if event.type == "DELETED":
            self._prices.pop(event.current.uid, None)

    def _priced(self, stored: Stored) -> PodPrice:
        price = self._prices.get(stored.uid)
        if price is None:
            price = self._prices[stored.uid] = _price(stored.object["spec"])
        return price


def _price(spec: Json) -> PodPrice:
    from webhook.jobs.pricing.pod_requests import price  # noqa: PLC0415 - the job kinds are loaded only where quotas are used

    return price(spec)


def _is_counted(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _cost(key: str, price: PodPrice) -> int:
    if key in ("pods", "count/pods"):
        return quantity.MILLI
    if key.startswith("requests."):
        return price.requests.get(key.removeprefix("requests."), 0)
    if key.startswith("limits."):
        return price.limits.get(key.removeprefix("limits."), 0)
    return price.requests.get(key, 0) if key in _COMPUTE else 0


def _scopes(spec: Json) -> list[tuple[str, str, list[str]]]:
    scopes: list[tuple[str, str, list[str]]] = [(scope, "Exists", []) for scope in spec.get("scopes") or ()]
    for expression in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        scopes.append((expression["scopeName"], expression["operator"], expression.get("values") or []))
    return scopes


def _scope_holds(scope: str, operator: str, values: list[str], price: PodPrice) -> bool:
    if scope == "PriorityClass":
        return {
            "Exists": bool(price.priority_class),
            "DoesNotExist": not price.priority_class,
            "In": price.priority_class in values,
            "NotIn": price.priority_class not in values,
        }[operator]
    return {
        "Terminating": price.has_deadline,
        "NotTerminating": not price.has_deadline,
        "BestEffort": price.best_effort,
        "NotBestEffort": not price.best_effort,
        "CrossNamespacePodAffinity": price.cross_namespace_affinity,
    }.get(scope, False)


def _check_stated(resource: Resource, item: Json, account: _Account) -> None:
    """Every container must state the compute resources that a quota limits, unless the pod as a whole states any."""
    whole = item["spec"].get("resources") or {}
    if whole.get("requests") or whole.get("limits"):
        return
    missing = []
    for key in sorted(account.hard):
        kind, name = ("limits", key[7:]) if key.startswith("limits.") else ("requests", key.removeprefix("requests."))
        if name not in ("cpu", "memory"):
            continue
        silent = [
            c["name"] for c in _containers(item["spec"]) if name not in ((c.get("resources") or {}).get(kind) or {})
        ]
        if silent:
            missing.append(f"{key} for: {','.join(silent)}")
    if missing:
        name = account.quota["metadata"]["name"]
        raise forbidden(resource, item["metadata"]["name"], f"failed quota: {name}: must specify {'; '.join(missing)}")


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _count_name(resource: Resource) -> str:
    return f"count/{resource.qualified}"


def _count_key(key: str) -> tuple[str, str]:
    plural, _, group = key.removeprefix("count/").partition(".")
    return group, plural


def _count(account: _Account, resource: Resource) -> dict[str, int]:
    name = _count_name(resource)
    return {name: quantity.MILLI} if name in account.hard else {}


def _listed(amounts: Mapping[str, Any], keys: list[str]) -> str:
    return ",".join(f"{key}={quantity.render(amounts.get(key, 0), key.rpartition('.')[2])}" for key in keys)
