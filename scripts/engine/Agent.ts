/**
 * Tasks for a model that calls tools, made from `agent.json` like the training text of the bundled model. The questions
 * of held-out tasks never occur in that text. A task has facts of its own, which only its tools know.
 */
import { Data, Effect, Schema } from "effect"
import { crc32 } from "node:zlib"
import { readFileSync } from "node:fs"
import { Random } from "@effect-tinker/engine"
import { Environment, type Evaluate } from "@effect-tinker/recipes"
import { Message, type Renderer, type RendererError } from "@effect-tinker/tokenizer"
import type { SamplingClient } from "effect-tinker"

const Strings = Schema.Array(Schema.String)
const Words = Schema.transform(Schema.String, Strings, {
  decode: (text) => text.split(" "),
  encode: (all) => all.join(" "),
})

const Spec = Schema.parseJson(
  Schema.Struct({
    names: Words,
    towns: Words,
    items: Words,
    syllables: Words,
    ranges: Schema.Record({ key: Schema.String, value: Schema.Tuple(Schema.Number, Schema.Number) }),
    tools: Schema.Record({
      key: Schema.String,
      value: Schema.Struct({
        names: Strings,
        parameters: Schema.Array(Strings),
        description: Schema.String,
        takes: Strings,
        returns: Strings,
      }),
    }),
    kinds: Schema.Record({
      key: Schema.String,
      value: Schema.Struct({
        questions: Strings,
        steps: Schema.Array(Strings),
        answer: Schema.String,
        share: Schema.Number,
      }),
    }),
  }),
)

const spec = Schema.decodeSync(Spec)(readFileSync(new URL("agent.json", import.meta.url), "utf8"))

/** Makes the model reason before it acts. */
export const think = "Think first."

type Facts = Readonly<Record<string, string | number>>

const below = (random: Random.Random, count: number) => Math.floor(random() * count)

const pick = <A>(random: Random.Random, all: ReadonlyArray<A>): A => {
  const one = all[below(random, all.length)]
  if (one === undefined) throw new Error("expected at least one value to choose from")
  return one
}

/** Returns the values in random order. */
export const shuffled = <A>(random: Random.Random, all: ReadonlyArray<A>): Array<A> => {
  const rest = [...all]
  return all.map(() => rest.splice(below(random, rest.length), 1)).flat()
}

const number = (random: Random.Random, range: string): number => {
  const [low, high] = spec.ranges[range] ?? [0, 0]
  return low + below(random, high - low + 1)
}

const madeUp = (random: Random.Random): string => {
  const word = Array.from({ length: 2 + below(random, 2) }, () => pick(random, spec.syllables)).join("")
  return word.slice(0, 1).toUpperCase() + word.slice(1)
}

const factsOf = (random: Random.Random, kind: string): Facts => {
  const [item = "", other = ""] = shuffled(random, spec.items)
  const numbers = Object.fromEntries(
    ["degrees", "hour", "price", "stock", "age", "phone"].map((range) => [range, number(random, range)]),
  )
  const [a, b, otherPrice] = [number(random, "term"), number(random, "term"), number(random, "price")]
  return {
    ...numbers,
    name: random() < 0.5 ? pick(random, spec.names) : madeUp(random),
    town: random() < 0.3 ? pick(random, spec.towns) : madeUp(random),
    item,
    other,
    a,
    b,
    other_price: otherPrice,
    sum: kind === "total" ? (numbers["price"] ?? 0) + otherPrice : a + b,
  }
}

const filled = (template: string, facts: Facts) =>
  template.replace(/\{(\w+)\}/g, (_, key: string) => String(facts[key]))

class NotFound extends Data.TaggedError("NotFound")<{ readonly message: string }> {}

/** The tool of a task, under one of its names and with one name for each parameter. */
const toolOf = (
  random: Random.Random,
  key: string,
  facts: Facts,
): Environment.Tool<Environment.InvalidArguments | NotFound> => {
  const found = spec.tools[key]
  if (found === undefined) throw new Error(`agent.json has no tool ${key}`)
  const { description, names, returns, takes } = found
  const parameters = pick(random, found.parameters)
  const value = key === "add" ? Schema.Number : Schema.String
  return Environment.tool({
    name: pick(random, names),
    description,
    parameters: Schema.Struct(Object.fromEntries(parameters.map((parameter) => [parameter, value]))),
    run: (args: Readonly<Record<string, string | number>>): Effect.Effect<unknown, NotFound> => {
      const given = parameters.map((parameter) => args[parameter])
      if (key === "add") return Effect.succeed(Number(given[0]) + Number(given[1]))
      if (key === "price" && given[0] === facts["other"]) return Effect.succeed({ price: facts["other_price"] })
      if (given[0] !== facts[takes[0] ?? ""]) return new NotFound({ message: "not found" })
      return Effect.succeed(Object.fromEntries(returns.map((field) => [field, facts[field]])))
    },
  })
}

/** Whether the question belongs to the tests, by the same rule as in make_text.py. */
export const isHeldOut = (question: string): boolean => crc32(question) % 12 === 0

/** The environment of one rollout. */
export type Played = Environment.Environment<RendererError.Failure>

/** A task and what is asked. */
export interface AgentTask {
  readonly kind: string
  readonly question: string
  readonly answer: string
  readonly tools: ReadonlyArray<Environment.Tool<Environment.InvalidArguments | NotFound>>
  readonly task: Environment.Task<RendererError.Failure>
}

const kinds = Object.entries(spec.kinds)
const shares = kinds.reduce((sum, [, { share }]) => sum + share, 0)

const kindOf = (random: Random.Random) => {
  let rest = random() * shares
  const found = kinds.find(([, { share }]) => (rest -= share) < 0)
  if (found === undefined) throw new Error("the shares of the kinds do not add up")
  return found
}

/** Makes the task with a number. The same number always gives the same task. */
export const make = (
  renderer: Renderer.Renderer,
  index: number,
  options: { readonly heldOut: boolean; readonly instructions?: string },
): AgentTask => {
  const random = Random.make(options.heldOut ? 1 : 2, index)
  const [kind, { answer, questions, steps }] = kindOf(random)
  const draw = (): readonly [string, Facts] => {
    const facts = factsOf(random, kind)
    const question = filled(pick(random, questions), facts)
    return isHeldOut(question) === options.heldOut ? [question, facts] : draw()
  }
  const [question, facts] = draw()
  const needed = [...new Set(steps.flat().map((call) => call.split(" ")[0] ?? ""))]
  const others = shuffled(
    random,
    Object.keys(spec.tools).filter((key) => !needed.includes(key)),
  )
  const count = Math.max(needed.length, 2 + below(random, 2)) - needed.length
  const tools = shuffled(random, [...needed, ...others.slice(0, count)]).map((key) => toolOf(random, key, facts))
  const expected = filled(answer, facts)
  const system = options.instructions === undefined ? [] : [Message.system(options.instructions)]
  const task = Environment.tools({
    renderer,
    messages: [...system, Message.user(question)],
    tools,
    reward: (answer) => (answer === expected ? 1 : 0),
    tags: [kind],
  })
  return { kind, question, answer: expected, tools, task }
}

/** The limits of a rollout. */
export const limits = { maxTokens: 96, maxTurns: 5 }

/** Runs the loop: samples, lets the environment act, and continues with what it shows. Returns the reward. */
const play = (sampler: SamplingClient.Service, { task }: AgentTask, temperature: number, seed: number) =>
  Effect.gen(function* () {
    const environment = yield* task.make
    let shown: Environment.Observation | undefined = yield* environment.start
    let reward = 0
    for (let turn = 0; shown !== undefined && turn < limits.maxTurns; turn++) {
      const { sequences } = yield* sampler.sample({
        prompt: shown.prompt,
        params: { maxTokens: limits.maxTokens, temperature, seed: seed + turn, stop: shown.stop },
      })
      const [sequence] = sequences
      if (sequence === undefined) return yield* Effect.dieMessage("the server returned no sequence")
      const outcome: Environment.Outcome = yield* environment.act(sequence)
      reward += outcome.reward
      shown = outcome.next
    }
    return reward
  }).pipe(Effect.scoped)

/** Evaluates an agent on held-out tasks. Its first metric is the share of tasks that are solved. */
export const evaluation = (
  renderer: Renderer.Renderer,
  options: { readonly count: number; readonly temperature?: number; readonly instructions?: string },
): Evaluate.Evaluation<number> => ({
  name: "agent",
  metrics: [{ name: "solved", better: "highest" }],
  questions: Effect.succeed(
    Array.from({ length: options.count }, (_, index) => {
      const made = make(renderer, index, {
        heldOut: true,
        ...(options.instructions !== undefined && { instructions: options.instructions }),
      })
      return {
        name: `${made.kind}: ${made.question}`,
        ask: (sampler, seed) =>
          Effect.map(play(sampler, made, options.temperature ?? 0, seed), (answer) => ({
            scores: { solved: answer, [made.kind]: answer },
            answer,
          })),
      }
    }),
  ),
})

/** Returns the share of solved tasks of each kind. */
export const byKind = (result: Evaluate.Result<number>): Readonly<Record<string, number>> => {
  const found = new Map<string, Array<number>>()
  for (const outcome of result.outcomes) {
    const [kind = ""] = outcome.question.split(":", 1)
    found.set(kind, [...(found.get(kind) ?? []), outcome._tag === "Answered" ? outcome.answer : 0])
  }
  return Object.fromEntries(
    [...found].toSorted().map(([kind, all]) => [kind, all.reduce((sum, one) => sum + one, 0) / all.length]),
  )
}
