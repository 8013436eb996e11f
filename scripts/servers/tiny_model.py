"""Creates the model for the server tests: a Qwen3 with 164,288 random weights and a byte-level BPE tokenizer.

    python tiny_model.py <directory>

Runs in the environment of a server, which has torch, transformers and tokenizers. Nothing is downloaded: the tokenizer
is trained on the help texts of Python. The weights are identical wherever torch generates the same numbers from seed 0.
"""

import pathlib
import sys

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def paragraphs():
    from pydoc_data import topics

    for key in sorted(topics.topics):
        yield from topics.topics[key].split("\n\n")


def make_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(paragraphs(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # vLLM has no attention kernel for 16 on a CPU
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.08,  # with the usual 0.02, all tokens are almost equally likely and greedy samples are ties
    )
    model = Qwen3ForCausalLM(config).to(torch.float32)
    model.config.dtype = "float32"
    return model


directory = pathlib.Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
tokenizer = make_tokenizer()
tokenizer.save_pretrained(directory)
make_model(tokenizer).save_pretrained(directory, safe_serialization=True)
