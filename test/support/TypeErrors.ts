/** Type-checks TypeScript that is not in a file of its own, such as the code of the documentation. */
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript"

export const root = fileURLToPath(new URL("../..", import.meta.url))

export interface Source {
  /** An absolute path inside the workspace, from which imports are resolved. The file need not exist. */
  readonly name: string
  readonly text: string
}

const optionsOf = (project: string): ts.CompilerOptions => {
  const config = ts.getParsedCommandLineOfConfigFile(
    project,
    { noEmit: true, composite: false, incremental: false, noUnusedLocals: false },
    {
      ...ts.sys,
      onUnRecoverableConfigFileDiagnostic: ({ messageText }) => {
        throw new Error(ts.flattenDiagnosticMessageText(messageText, "\n"))
      },
    },
  )
  if (config === undefined) throw new Error(`failed to read ${project}`)
  return config.options
}

/** Returns the type errors of all sources, which are checked as one program. */
export const typeErrors = (sources: ReadonlyArray<Source>): ReadonlyArray<string> => {
  const options = optionsOf(join(root, "tsconfig.json"))
  const host = ts.createCompilerHost(options)
  const texts = new Map(sources.map(({ name, text }) => [name, text]))
  const { fileExists, readFile } = host
  host.fileExists = (name) => texts.has(name) || fileExists(name)
  host.readFile = (name) => texts.get(name) ?? readFile(name)
  const program = ts.createProgram({ rootNames: [...texts.keys()], options, host })
  return sources.flatMap(({ name }) =>
    ts
      .getPreEmitDiagnostics(program, program.getSourceFile(name))
      .map(({ messageText }) => `${name}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`),
  )
}
