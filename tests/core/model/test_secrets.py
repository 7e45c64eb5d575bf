from __future__ import annotations

import pytest

from lakeward.model.secrets import MASK, SecretTexts, is_secret_name, mask_text, mask_uri


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/dir?region=x", "s3://bucket/dir?region=x"),
        ("jdbc://me:hush@host/db", f"jdbc://{MASK}@host/db"),
        ("from http://a:b@c to http://d:e@f", f"from http://{MASK}@c to http://{MASK}@f"),
        ("me@host", "me@host"),
        ("abfss://lake@shop.dfs.core.windows.net/t", "abfss://lake@shop.dfs.core.windows.net/t"),
        ("abfss://me:hush@shop.dfs.core.windows.net/t", f"abfss://{MASK}@shop.dfs.core.windows.net/t"),
        ("'wasbs://lake@shop' at xabfs://me@host", f"'wasbs://lake@shop' at xabfs://{MASK}@host"),
        ("s3://b/d?secret_key=x&region=eu&Access-Key=y#z", f"s3://b/d?secret_key={MASK}&region=eu&Access-Key={MASK}#z"),
        ("a=b? password=c", "a=b? password=c"),
        ("'/tok?pw=x' and \"/a?sig=y\"", f"'/tok?pw={MASK}' and \"/a?sig={MASK}\""),
    ],
)
def test_the_secrets_of_a_uri_are_hidden(text: str, shown: str) -> None:
    assert mask_uri(text) == shown


def test_the_query_of_a_uri_is_hidden_where_it_is_asked_for() -> None:
    assert mask_uri("https://a:b@c/d?token=e&f=g#h", query=True) == f"https://{MASK}@c/d?{MASK}#h"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("s3.secret-access-key", True),
        ("PASSWORD", True),
        ("spark.executorEnv.DB_PW", True),
        ("pwd", True),
        ("api_key", True),
        ("tls.private-key", True),
        ("passphrase", True),
        ("region", False),
        ("upward", False),
        ("signed", False),
    ],
)
def test_a_name_that_sounds_secret_is_one(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no bucket of token", "no bucket of token"),
        ("password=a b", f"password={MASK} b"),
        ("{'access_key': 'a b', 'x': 1}", f"{{'access_key': {MASK}, 'x': 1}}"),
        ("Token: Bearer abc, next", f"Token: Bearer {MASK}, next"),
        ("at http://a:b@c", f"at http://{MASK}@c"),
        ("Authorization: Bearer abc, next", f"Authorization: Bearer {MASK}, next"),
        ("'authorization': 'Basic dXNl'", f"'authorization': {MASK}"),
        ("authorization=Basic dXNl next", f"authorization=Basic {MASK} next"),
    ],
)
def test_values_after_secret_names_are_hidden_in_any_text(text: str, shown: str) -> None:
    assert mask_text(text) == shown


def test_secrets_are_masked_in_texts_lists_and_dicts_and_short_ones_are_no_secrets() -> None:
    secrets = SecretTexts(["hush", "hush-hush", "no"])
    found = secrets.hide_in({"a": ["hush-hush", 1, {"b": "no hush"}], "c": None})
    assert found == {"a": [MASK, 1, {"b": f"no {MASK}"}], "c": None}
