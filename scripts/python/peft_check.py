"""Loads an adapter trained on our server with `peft` and compares its log probabilities with those of the server.

Needs torch, transformers and peft in addition to tinker, so it is run manually and not in CI:
    pip install tinker torch transformers peft
    tinkerfx serve --port 8000 &
    python scripts/python/peft_check.py http://127.0.0.1:8000 packages/engine/model
"""

import os
import sys
import tempfile
import urllib.request

BASE_URL, MODEL_DIR = sys.argv[1], sys.argv[2]
os.environ.update(TINKER_BASE_URL=BASE_URL, TINKER_API_KEY="tml-peft", HF_HUB_OFFLINE="1")

import tinker  # noqa: E402
import torch  # noqa: E402
from peft import PeftModel  # noqa: E402
from tinker import types  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

service = tinker.ServiceClient()
name = service.get_server_capabilities().supported_models[0].model_name
training = service.create_lora_training_client(base_model=name, rank=8, seed=1)
tokens = [10, 20, 30, 40, 50, 60]
data = [
    types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * 5},
    )
]
for _ in range(10):
    training.forward_backward(data, "cross_entropy").result()
    training.optim_step(types.AdamParams(learning_rate=5e-3)).result()
expected = torch.tensor(training.forward(data, "cross_entropy").result().loss_fn_outputs[0]["logprobs"].data)

path = training.save_weights_external("peft").result().path
urls = tinker.RestClient().get_external_weights_urls(path).result().urls
with tempfile.TemporaryDirectory() as folder:
    for file, url in urls.items():
        urllib.request.urlretrieve(url, os.path.join(folder, file))
    base = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32)


    def logprobs(model):
        with torch.no_grad():
            rows = torch.log_softmax(model(torch.tensor([tokens[:-1]])).logits[0].float(), -1)
        return rows[range(5), tokens[1:]]


    before = logprobs(base)
    after = logprobs(PeftModel.from_pretrained(base, folder))
worst = (after - expected).abs().max().item()
print(f"largest difference from the server {worst:.2e}; from the base model without the adapter {(before - expected).abs().max().item():.2f}")
ok = worst < 1e-3
print("ok   peft and server give the same log probabilities" if ok else "FAIL peft and server give different log probabilities")
os._exit(0 if ok else 1)
