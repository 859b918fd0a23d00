"""Any text that Tutti reads is read, or refused by one kind of error: ledger, lease, policy, configuration."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml
from hypothesis import event, example, given, reject
from hypothesis import strategies as st

from tests.fuzz.costs import bounded, counted
from tests.fuzz.objects import POLICY
from tests.fuzz.strategies import JSON, SCALARS, changed, json_bytes
from webhook import config
from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger
from webhook.dialects import compiler, config_map
from webhook.errors import WrongInput
from webhook.kube import election
from webhook.kube.connecting import connect
from webhook.untyped.yaml_text import VALUES_MAX, UnreadableYaml, documents


@given(st.dictionaries(st.sampled_from(["meta", "claims", "bookings", "uid-1"]), json_bytes(JSON).map(bytes.decode)))
def test_a_ledger_is_read_or_corrupt(data: Mapping[str, str]) -> None:
    for text in (data, {**data, "meta": ledger_text.encode_meta(Ledger(1, 1), ledger_text.checksum(data))}):
        try:
            bounded(lambda text=text: ledger_text.decode(text))
        except ledger_text.LedgerCorrupt:
            event("corrupt")


NUMBERS = st.sampled_from(["1e999", "-1e999", "1e300", "1" + "0" * 400, "1" * 5_000, "NaN", "-1", "1.5", "[]"])


@example({"schema": "1", "epoch": "1e999"})
@given(st.fixed_dictionaries({"schema": st.just("1")}, optional=dict.fromkeys(("epoch", "seq", "seen"), NUMBERS)))
def test_a_ledger_of_an_impossible_number_is_corrupt_and_says_no_epoch(meta: Mapping[str, str]) -> None:
    """What is rebuilt from it counts on from there."""
    good = {"epoch": "1", "seq": "1", "checksum": '"0"'}
    seen = {"seen": f'{{"tutti-ledger":{meta["seen"]}}}'} if "seen" in meta else {}
    said = ",".join(f'"{key}":{value}' for key, value in (good | meta | seen).items())
    data = {"meta": f"{{{said}}}"}
    assert bounded(lambda: ledger_text.epoch_of(data)) in (0, 1)
    try:
        assert ledger_text.decode(data).version == (1, 1)
    except ledger_text.LedgerCorrupt:
        event("corrupt")


@given(st.dictionaries(st.sampled_from(["meta", "pages", "uid-1"]), json_bytes(JSON).map(bytes.decode)), st.data())
def test_index_and_pages_are_read_corrupt_or_misplaced(page: Mapping[str, str], data: st.DataObject) -> None:
    names = data.draw(json_bytes(JSON).map(bytes.decode) | st.just('{"page-1":"uid-of-page-1"}'))
    summed = {**page, "meta": ledger_text.encode_meta(Ledger(1, 1), ledger_text.checksum(page))}
    for content in (page, summed):
        index = {"pages": names}
        index["meta"] = ledger_text.encode_meta(Ledger(1, 1, pages={"page-1": "u"}), ledger_text.checksum(index))
        book = LedgerBook(index=index, pages={"page-1": Found("uid-of-page-1", content)})
        try:
            bounded(book.read)
        except (ledger_text.LedgerCorrupt, PagesMismatch) as error:
            event(type(error).__name__)


@given(json_bytes(JSON).map(bytes.decode) | st.text())
def test_a_lease_is_read_or_nobodys(text: str) -> None:
    bounded(lambda: election.parse(text))


CONFIG_MAP_BYTES_MAX = 1 << 20
"""The API server stores no longer one."""
YAML_CALLS = 40
"""Calls that a byte may cost: the reader of YAML is Python's own, and a line of "a.b/1: null" takes it some hundred."""
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def dumped(*documents: Any) -> str:
    return yaml.dump_all(documents, Dumper=DUMPER)


YAML = st.text(max_size=80) | JSON.map(dumped) | json_bytes(JSON).map(bytes.decode)
LAUGHS = st.integers(2, 12).map(
    lambda levels: "\n".join(
        ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels))]
    )
)


@example("20000000000000000000")
@given(YAML | LAUGHS)
def test_yaml_is_read_within_bounds_or_refused(text: str) -> None:
    try:
        found = bounded(lambda: documents(text), YAML_CALLS * len(text))
    except UnreadableYaml:
        event("refused")
        return
    # As Python writes it: YAML has values that JSON has none of, such as whole numbers beyond 64 bits.
    assert len(repr(found)) < 100 * VALUES_MAX + 10 * len(text)


@given(st.lists(changed(st.sampled_from(POLICY)), max_size=4) | (YAML | LAUGHS))
def test_any_policy_in_a_config_map_compiles_to_a_policy_with_problems(written: list[Any] | str) -> None:
    """Calls are counted wherever it runs: it is read in a turn of the loop, which is as long as an administrator's text
    is. Nobody else writes it.
    """
    text = written if isinstance(written, str) else dumped(*written)
    if len(text) > CONFIG_MAP_BYTES_MAX:
        reject()

    def compiled() -> object:
        objects, _ = config_map.objects_of({"metadata": {"name": "tutti-policy"}, "data": {"a": text}})
        return compiler.compile_policy(objects)

    counted(compiled, YAML_CALLS * len(text))


@given(st.lists(changed(st.sampled_from(POLICY)), max_size=5))
def test_any_policy_objects_compile_to_a_policy_with_problems(objects: list[Any]) -> None:
    size = len(orjson.dumps(objects, option=orjson.OPT_NON_STR_KEYS))
    bounded(lambda: compiler.compile_policy([each for each in objects if isinstance(each, dict)]), 10 * size)


CONFIGURED = st.dictionaries(st.sampled_from([*config.Config.model_fields, "fairSharing", "x"]), JSON, max_size=4)


@given(YAML | LAUGHS | CONFIGURED.map(dumped))
def test_a_configuration_is_read_or_refused(text: str) -> None:
    said = ""
    try:
        bounded(lambda: config.parse(text, "config.yaml"), YAML_CALLS * len(text))
    except WrongInput as error:
        said = str(error)
    assert len(said) < 1_000 + 10 * len(text)


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


@st.composite
def kubeconfigs(draw: st.DrawFn) -> str:
    part = draw(st.sampled_from(sorted(KUBECONFIG)))
    inner = draw(JSON | SCALARS)
    return dumped({**KUBECONFIG, part: draw(st.sampled_from([inner, [inner], [{"name": "c", "context": inner}]]))})


@given(kubeconfigs() | YAML)
def test_a_kubeconfig_connects_or_is_refused(text: str) -> None:
    async def tried(path: Path) -> None:
        try:
            await (await connect(path)).close()
        except WrongInput:
            event("refused")

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kubeconfig"
        path.write_bytes(text.encode("utf-8", "replace"))
        asyncio.run(tried(path))
