/** A stand-in for the Hugging Face Hub: repositories with branches, small files in commits, large ones beside them. */
import { createServer } from "node:http"
import { Effect, type Scope } from "effect"
import * as Loopback from "./Loopback.ts"

export const token = "hf_secret_token"

export interface Hub {
  readonly url: string
  readonly repositories: () => ReadonlyArray<{ readonly name: string; readonly private: boolean }>
  readonly files: (repo: string, branch: string) => ReadonlyArray<string>
  readonly bytes: (repo: string, branch: string, file: string) => Buffer
  readonly text: (repo: string, branch: string, file: string) => string
  readonly write: (repo: string, branch: string, file: string, text: string) => void
}

interface Answer {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

interface Repository {
  readonly private: boolean
  readonly branches: Map<string, Map<string, Buffer>>
}

export const make: Effect.Effect<Hub, never, Scope.Scope> = Effect.gen(function* () {
  const repositories = new Map<string, Repository>()
  const objects = new Map<string, Buffer>()
  const branchOf = (repo: string, branch: string) => repositories.get(repo)?.branches.get(branch)
  let url = ""

  const routes: ReadonlyArray<readonly [RegExp, (match: ReadonlyArray<string>, body: Buffer) => Answer]> = [
    [
      /^GET \/api\/whoami-v2$/,
      () => ({ body: { type: "user", id: "1", name: "me", fullname: "Me", orgs: [], auth: {} } }),
    ],
    [
      /^POST \/api\/repos\/create$/,
      (_, body) => {
        const { name, organization, private: isPrivate } = JSON.parse(String(body))
        const full = `${organization ?? "me"}/${name}`
        if (repositories.has(full)) return { status: 409, body: { error: "You already created this model repo" } }
        repositories.set(full, { private: isPrivate === true, branches: new Map([["main", new Map()]]) })
        return { body: { url: `${url}/${full}` } }
      },
    ],
    [
      /^POST \/api\/models\/([^/]+\/[^/]+)\/branch\/([^/]+)$/,
      ([, repo = "", branch = ""]) => {
        const branches = repositories.get(repo)?.branches
        if (!branches?.has(branch)) branches?.set(branch, new Map(branches.get("main")))
        return { body: {} }
      },
    ],
    [
      /^(?:GET|HEAD) \/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/,
      ([, repo = "", branch = "", file = ""]) => {
        const content = branchOf(repo, branch)?.get(file)
        return content === undefined
          ? { status: 404, headers: { "x-error-code": "EntryNotFound" }, body: { error: "Entry not found" } }
          : { headers: { etag: '"1"' }, body: content }
      },
    ],
    [
      /^POST \/api\/models\/([^/]+\/[^/]+)\/preupload\/([^/]+)$/,
      ([, repo = "", branch = ""], body) => {
        if (branchOf(repo, branch) === undefined) return { status: 404, body: { error: "Revision not found" } }
        const { files } = JSON.parse(String(body)) as { files: ReadonlyArray<{ path: string }> }
        const mode = (path: string) => (path.endsWith(".safetensors") ? "lfs" : "regular")
        return { body: { files: files.map(({ path }) => ({ path, uploadMode: mode(path), shouldIgnore: false })) } }
      },
    ],
    [
      /^POST \/[^/]+\/[^/]+\.git\/info\/lfs\/objects\/batch$/,
      (_, body) => {
        const request = JSON.parse(String(body)) as { objects: ReadonlyArray<{ oid: string; size: number }> }
        return {
          headers: { "content-type": "application/vnd.git-lfs+json" },
          body: {
            transfer: "basic",
            objects: request.objects.map(({ oid, size }) => ({
              oid,
              size,
              actions: { upload: { href: `${url}/lfs/${oid}` } },
            })),
          },
        }
      },
    ],
    [
      /^PUT \/lfs\/(\w+)$/,
      ([, oid = ""], body) => {
        objects.set(oid, body)
        return { body: {} }
      },
    ],
    [
      /^POST \/api\/models\/([^/]+\/[^/]+)\/commit\/([^/]+)$/,
      ([, repo = "", branch = ""], body) => {
        const files = branchOf(repo, branch)
        for (const line of String(body)
          .split("\n")
          .filter((line) => line !== "")) {
          const { key, value } = JSON.parse(line)
          if (key === "file") files?.set(value.path, Buffer.from(value.content, value.encoding))
          if (key === "lfsFile") files?.set(value.path, objects.get(value.oid) ?? Buffer.alloc(0))
        }
        return {
          body: { success: true, commitOid: "0".repeat(40), commitUrl: `${url}/${repo}/commit/0`, hookOutput: "" },
        }
      },
    ],
  ]

  const server = createServer((request, response) => {
    const parts: Array<Buffer> = []
    request.on("data", (part: Buffer) => parts.push(part))
    request.on("end", () => {
      const { pathname } = new URL(request.url ?? "", "http://hub")
      const line = `${request.method} ${decodeURIComponent(pathname)}`
      const isOpen = line.startsWith("PUT /lfs/")
      const found = routes.find(([route]) => route.test(line))
      const answer: Answer =
        !isOpen && request.headers.authorization !== `Bearer ${token}`
          ? { status: 401, body: { error: "Invalid token" } }
          : (found?.[1](found[0].exec(line) ?? [], Buffer.concat(parts)) ?? { status: 501, body: { error: line } })
      const content = Buffer.isBuffer(answer.body) ? answer.body : Buffer.from(JSON.stringify(answer.body ?? {}))
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "")
      const isPart = range !== null && answer.status === undefined
      const part = isPart ? content.subarray(Number(range[1]), Number(range[2]) + 1) : content
      response.writeHead(isPart ? 206 : (answer.status ?? 200), {
        "content-type": "application/json",
        ...(isPart ? { "content-range": `bytes ${range[1]}-${range[2]}/${content.length}` } : {}),
        ...answer.headers,
      })
      response.end(part)
    })
  })
  url = `http://127.0.0.1:${yield* Loopback.listen(server)}`
  const bytes = (repo: string, branch: string, file: string) => branchOf(repo, branch)?.get(file) ?? Buffer.alloc(0)
  return {
    url,
    repositories: () => [...repositories].map(([name, { private: isPrivate }]) => ({ name, private: isPrivate })),
    files: (repo, branch) => [...(branchOf(repo, branch)?.keys() ?? [])].toSorted(),
    bytes,
    text: (repo, branch, file) => String(bytes(repo, branch, file)),
    write: (repo, branch, file, text) => void branchOf(repo, branch)?.set(file, Buffer.from(text)),
  }
})
