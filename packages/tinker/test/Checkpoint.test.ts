import { readFileSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import { Either, Equal, FastCheck } from "effect"
import { Checkpoint } from "effect-tinker"

interface Case {
  readonly path: string
  readonly parsed?: {
    readonly tinker_path: string
    readonly training_run_id: string
    readonly checkpoint_type: string
    readonly checkpoint_id: string
  }
}

const recorded = (file: string): ReadonlyArray<Case> =>
  JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8")).expect.cases

const problem = (result: Either.Either<unknown, { readonly problem: string }>) =>
  Either.match(result, { onLeft: (error) => error.problem, onRight: String })

describe("Checkpoint.parse", () => {
  // The reference accepts a path with no training run and no name; see differences.md.
  const isNameless = ({ path }: Case) => path === "tinker:///weights/"
  const cases = recorded("behaviours/tinker_path_parsing.json")

  it("the recording has many paths, exactly one of them without a training run and a name", () => {
    expect(cases.length).toBeGreaterThan(10)
    expect(cases.filter(isNameless).length).toBe(1)
  })

  it.each(cases.map((recorded) => [recorded.path, recorded] as const))(
    "Checkpoint.parse agrees with the recording on %s",
    (text, recorded) => {
      const parsed = Checkpoint.parse(text)
      if (recorded.parsed === undefined || isNameless(recorded)) return expect(Either.isLeft(parsed)).toBe(true)
      const path = Either.getOrThrow(parsed)
      expect({
        tinker_path: path.toString(),
        training_run_id: path.trainingRunId,
        checkpoint_type: path.kind,
        checkpoint_id: path.checkpointId,
      }).toEqual({ ...recorded.parsed, $type: undefined })
    },
  )

  it("Checkpoint.parse errors name the expected form and the actual problem", () => {
    const expected = "expected tinker://<training run>/<weights, sampler_weights or external_weights>/<name>"
    expect(problem(Checkpoint.parse("run/weights/a"))).toBe(`${expected}, but it does not start with tinker://`)
    expect(problem(Checkpoint.parse("tinker://run/a"))).toBe(`${expected}, but it has 2 parts`)
    expect(problem(Checkpoint.parse("tinker://run/other/a"))).toBe(`${expected}, but the folder is unknown`)
    expect(problem(Checkpoint.parse("tinker:///weights/a"))).toBe(`${expected}, but the training run is empty`)
    expect(problem(Checkpoint.parse("tinker://run/weights/"))).toBe(`${expected}, but the name is empty`)
    expect(problem(Checkpoint.parse("tinker://../weights/a"))).toBe(
      `${expected}, but the training run must not be . or ..`,
    )
    expect(Either.flip(Checkpoint.parse("", "load.path")).pipe(Either.getOrThrow)).toMatchObject({
      _tag: "InvalidInput",
      path: "load.path",
    })
  })

  it("Checkpoint.from and Checkpoint.make reject untyped values without throwing", () => {
    const untyped: ReadonlyArray<unknown> = [undefined, null, 7, {}, { trainingRunId: "r", kind: "sampler" }]
    for (const value of untyped) {
      expect(Either.isLeft(Checkpoint.from(value as string))).toBe(true)
      expect(Either.isLeft(Checkpoint.make({ trainingRunId: "r", kind: "training", name: value as string }))).toBe(true)
    }
    expect(Either.isLeft(Checkpoint.make({ trainingRunId: "r", kind: "toString" as "sampler", name: "n" }))).toBe(true)
  })
})

describe("Checkpoint.fromServer", () => {
  it("Checkpoint.fromServer reads a two-part path as sampler weights and prints it unchanged", () => {
    const path = Either.getOrThrow(Checkpoint.fromServer("tinker://run/name"))
    expect(path).toMatchObject({ trainingRunId: "run", kind: "sampler", name: "name", form: "short" })
    expect(`${path}`).toBe("tinker://run/name")
    expect(path.checkpointId).toBe("sampler_weights/name")
    expect(Checkpoint.from(path)).toEqual(Either.right(path))
  })

  it("Checkpoint.fromServer otherwise accepts the same paths as Checkpoint.parse", () => {
    expect(Either.getOrThrow(Checkpoint.fromServer("tinker://run/weights/a")).form).toBe("full")
    for (const text of ["tinker://run", "tinker://run/weights", "tinker:///a", "tinker://run/", "tinker://r/x/y"]) {
      expect(Either.isLeft(Checkpoint.fromServer(text)), text).toBe(true)
    }
  })
})

describe("checkpoint paths", () => {
  const part = FastCheck.string({ minLength: 1 }).filter((text) => !/^\.{1,2}$|\//.test(text))
  const parts = FastCheck.oneof(
    FastCheck.record({
      trainingRunId: part,
      kind: FastCheck.constantFrom("training", "sampler", "external" as const),
      name: part,
    }),
    FastCheck.record({
      trainingRunId: part,
      kind: FastCheck.constant("sampler" as const),
      name: part.filter((name) => !/^(sampler_|external_)?weights$/.test(name)),
      form: FastCheck.constant("short" as const),
    }),
  )

  it("parsing a printed checkpoint path gives an equal path", () => {
    FastCheck.assert(
      FastCheck.property(parts, (parts) => {
        const path = Either.getOrThrow(Checkpoint.make(parts as Checkpoint.Parts))
        const again = Either.getOrThrow(Checkpoint.fromServer(path.toString()))
        return Equal.equals(path, again) && JSON.stringify({ path }) === JSON.stringify({ path: `${path}` })
      }),
    )
  })

  it("Checkpoint.fromServer either rejects a string or prints it back unchanged", () => {
    FastCheck.assert(
      FastCheck.property(FastCheck.oneof(FastCheck.string(), FastCheck.webUrl()), (text) =>
        Either.match(Checkpoint.fromServer(`tinker://${text}`), {
          onLeft: (error) => error._tag === "InvalidInput",
          onRight: (path) => path.toString() === `tinker://${text}`,
        }),
      ),
    )
  })

  it("Checkpoint.isPathLike distinguishes checkpoint paths from model names", () => {
    expect(Checkpoint.isPathLike("tinker://anything")).toBe(true)
    expect(Checkpoint.isPathLike("Qwen/Qwen3-8B")).toBe(false)
  })
})
