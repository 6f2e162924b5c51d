import json

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers import models as tokenizer_models

from gateway.models.exact_text import ExactText
from gateway.models.melting import Melting

LINE_ENDS = ["\n", "\n\n", "\n\n\n", "\n\n\n\n"]
PICTURE = "<start_of_image>"
TEMPLATE = (
    "{%- for message in messages -%}{{ message['role'] + '\n' }}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}<start_of_image>{%- else -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- endfor -%}"
)


def tokenizer(*plain: str) -> Tokenizer:
    """A letter is a token."""
    made = Tokenizer(tokenizer_models.BPE(vocab={letter: place for place, letter in enumerate("user x")}, merges=[]))
    made.add_special_tokens([AddedToken(PICTURE, special=True, normalized=False)])
    made.add_tokens([AddedToken(token, normalized=False) for token in plain])
    return made


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("x", 0),
        ("x\n\nx", 0),
        (f"x{PICTURE}x", 0),
        (f"\n{PICTURE}x", 1),
        (f"x{PICTURE}\n", 1),
        (f"\n{PICTURE}\n\n", 2),
        (f"x{PICTURE}{PICTURE}x", 1),
        (f"x{PICTURE}{PICTURE}{PICTURE}x", 2),
        (f"{PICTURE}\n{PICTURE}", 1),
        (f"\n\n\n{PICTURE}", 0),
    ],
)
def test_a_line_end_beside_a_picture_melts_into_its_blank_line(text, lost):
    with_line_ends = tokenizer(*LINE_ENDS)
    melting = Melting.of(with_line_ends, {"boi_token_index": with_line_ends.token_to_id(PICTURE)})
    assert melting.lost(with_line_ends.encode(text).ids) == lost


@pytest.mark.parametrize(
    ("plain", "config"), [(LINE_ENDS, {}), (LINE_ENDS[:3], {"boi_token_id": 6}), ([], {"boi_token_id": 6})]
)
def test_other_models_melt_nothing(plain, config):
    assert Melting.of(tokenizer(*plain), config) is None


def test_text_is_counted_without_what_melts(tmp_path):
    made = tokenizer(*LINE_ENDS)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    (tmp_path / "config.json").write_text(json.dumps({"boi_token_index": made.token_to_id(PICTURE)}))
    counter = ExactText.from_folder(tmp_path)
    picture, text = {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "x"}

    def tokens(*parts):
        return counter.count({"messages": [{"role": "user", "content": list(parts)}]}).text_tokens

    assert tokens(text, picture) == len("user") + 1 + 1 + 1
    assert tokens(picture, text) == len("user") + 1 + 1 + 1 - 1
