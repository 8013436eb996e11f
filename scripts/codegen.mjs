// Generates TypeScript from the .proto files. With --check, nothing is written; exits with 1 if the committed code
// differs.
import { fileDesc } from "@bufbuild/protobuf/codegenv2"
import { execFileSync } from "node:child_process"
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
const target = join(root, "packages/tinker/src/internal/codec/proto")
const bin = (name) => join(root, "node_modules/.bin", name)

/** See src/internal/codec/ProtoFile.ts for the reason. */
const declaredAsJson = (code) => {
  const [call, base64] = /fileDesc\("([^"]+)"\)/.exec(code) ?? []
  const named = "import { enumDesc, fileDesc, messageDesc } from "
  if (base64 === undefined || !code.includes(named))
    throw new Error("unexpected output of protoc-gen-es; adapt scripts/codegen.mjs")
  return code
    .replace(call, () => `protoFile(${JSON.stringify(JSON.stringify(fileDesc(base64).proto))})`)
    .replace(named, 'import { protoFile } from "../ProtoFile.ts";\nimport { enumDesc, messageDesc } from ')
}

const generated = mkdtempSync(join(tmpdir(), "codegen-"))
try {
  const template = {
    version: "v2",
    plugins: [
      {
        local: [bin("protoc-gen-es")],
        out: generated,
        // Enums as plain objects: the code base allows only erasable syntax.
        opt: ["target=ts", "import_extension=ts", "erasable_syntax=true"],
      },
    ],
  }
  execFileSync(bin("buf"), ["generate", "packages/tinker/proto", "--template", JSON.stringify(template)], {
    cwd: root,
    stdio: "inherit",
  })

  const files = readdirSync(generated).toSorted()
  for (const file of files) {
    const path = join(generated, file)
    writeFileSync(path, declaredAsJson(readFileSync(path, "utf8")))
  }
  if (process.argv.includes("--check")) {
    const committed = readdirSync(target).toSorted()
    const same =
      files.join() === committed.join() &&
      files.every((file) => readFileSync(join(generated, file)).equals(readFileSync(join(target, file))))
    if (!same) {
      console.error("the generated code differs from the committed code; run `pnpm codegen`")
      process.exitCode = 1
    }
  } else {
    rmSync(target, { recursive: true, force: true })
    cpSync(generated, target, { recursive: true })
  }
} finally {
  rmSync(generated, { recursive: true, force: true })
}
