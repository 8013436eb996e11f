/**
 * SkyRL's Tinker API on JAX: JSON only, no authentication, and exactly the same losses in every run.
 */
import { Effect } from "effect"
import { join } from "node:path"
import { apiKey, modelName, type Server } from "./Server.ts"
import { freePort, printed, start } from "./Shell.ts"

export const skyrl: Server = {
  name: "skyrl",
  title: "SkyRL 0.3.0",
  recipe: {
    // Newer releases of the vendor's SDK, whose types it imports, fit no longer. It starts its engine with uv.
    installs: [["skyrl[tinker,jax]==0.3.0", "tinker<=0.24.1", "uv"]],
    patches: [
      {
        // Before Python 3.12 pydantic takes this class only from the other package.
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
          // It refuses to run unless uv is its parent; so told, uv uses the environment as it is and downloads nothing.
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
          // The model's name is its directory from here.
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
        // It answers before its engine has loaded the model.
        printed(log, "Initialized TinkerEngine"),
        "5 minutes",
      )
      return { baseUrl: `http://${host}:${port}`, apiKey }
    }),
}
