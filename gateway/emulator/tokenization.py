"""POST /tokenize and /detokenize: the true count of a prompt, images expanded."""

from typing import Any

from gateway.emulator.errors import bad_request
from gateway.emulator.exchange import Exchange
from gateway.emulator.prompt import expand, image_refs, render_chat
from gateway.emulator.schema import DetokenizeRequest, TokenizeChatRequest, TokenizePromptRequest, parse_request
from gateway.emulator.server_state import ServerState
from gateway.emulator.tokens import VOCABULARY_SIZE, Tokens, decode, encode, token_strings


async def tokenize(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """Chat messages or a prompt. Does not refuse what is too long. Raises ApiError."""
    if isinstance(data, dict) and "messages" in data:
        chat = parse_request(TokenizeChatRequest, data)
        state.check_model(chat.model)
        tokens, wants_strings = await _chat_tokens(state, chat), chat.return_token_strs
    else:
        text = parse_request(TokenizePromptRequest, data)
        state.check_model(text.model)
        tokens, wants_strings = encode(text.prompt), text.return_token_strs
    answer = {
        "count": len(tokens),
        "max_model_len": state.config.max_model_len,
        "tokens": tokens.tolist(),
        "token_strs": token_strings(tokens) if wants_strings else None,
    }
    await exchange.respond_json(200, answer)


async def _chat_tokens(state: ServerState, request: TokenizeChatRequest) -> Tokens:
    rendered = render_chat(
        request.messages,
        add_generation_prompt=request.add_generation_prompt,
        image_limit=state.config.image_limit,
        video_limit=state.config.video_limit,
    )
    refs = image_refs(rendered)
    pictures = await state.preprocessor.process(refs, await state.preprocessor.decode(refs))
    return expand(rendered, pictures, state.config.vision).tokens


async def detokenize(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """Token ids to text. Raises ApiError."""
    request = parse_request(DetokenizeRequest, data)
    state.check_model(request.model)
    if any(not 0 <= token < VOCABULARY_SIZE for token in request.tokens):
        raise bad_request(f"Token id {max(request.tokens)} is out of vocabulary")
    await exchange.respond_json(200, {"prompt": decode(request.tokens)})
