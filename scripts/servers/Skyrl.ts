/** SkyRL's Tinker API on JAX: JSON only, no authentication, and identical losses in every run. */
import { Effect } from "effect"
import { join } from "node:path"
import { apiKey, modelName, type Server } from "./Server.ts"
import { freePort, printed, start } from "./Shell.ts"

export const skyrl: Server = {
  name: "skyrl",
  title: "SkyRL 0.3.0",
  recipe: {
    // SkyRL imports types of the official SDK and does not work with newer releases of it. It starts its engine with
    // uv.
    installs: [["skyrl[tinker,jax]==0.3.0", "tinker<=0.24.1", "uv"]],
    patches: [
      {
        // Before Python 3.12, pydantic accepts this class only from typing_extensions.
        file: "skyrl/tinker/types.py",
        line: "from typing import Annotated, Any, Literal, TypedDict",
        instead: "from typing import Annotated, Any, Literal; from typing_extensions import TypedDict",
      },
    ],
  },
  start: (home, run) =>
    Effect.gen(function* () {
      const host = "127.0.0.1"
      const port = yield* freePort(host)
      const log = join(run, "server.log")
      const settings = {
        max_lora_adapters: 32,
        max_lora_rank: 8,
        train_micro_batch_size: 4,
        sample_max_num_sequences: 4,
      }
      yield* start(
        {
          // SkyRL requires uv as its parent process; with these flags uv uses the environment as is and downloads
          // nothing.
          command: join(home.bin, "uv"),
          args: [
            "run",
            "--active",
            "--no-project",
            "-m",
            "skyrl.tinker.api",
            `--host=${host}`,
            `--port=${port}`,
            `--base-model=${modelName}`,
            "--backend=jax",
            `--backend-config=${JSON.stringify(settings)}`,
            `--database-url=sqlite:///${join(run, "tinker.db")}`,
            `--checkpoints-base=${join(run, "checkpoints")}`,
          ],
          // The model name is a path relative to this directory.
          cwd: home.path,
          env: {
            VIRTUAL_ENV: join(home.path, "venv"),
            PATH: `${home.bin}:${process.env["PATH"]}`,
            HF_HUB_OFFLINE: "1",
            TRANSFORMERS_OFFLINE: "1",
            JAX_PLATFORMS: "cpu",
            UV_OFFLINE: "1",
          },
          log,
        },
        // The server answers before its engine has loaded the model.
        printed(log, "Initialized TinkerEngine"),
        "5 minutes",
      )
      return { baseUrl: `http://${host}:${port}`, apiKey }
    }),
}
