/** Compares the metrics of two runs. */

export type Row = Readonly<Record<string, unknown>>

/** Numbers may differ by this much, because the cookbook adds up in single precision. */
export const tolerance = 1e-6

const isNumber = (value: unknown): value is number => typeof value === "number"

/** Joins the lines of each step. */
export const bySteps = (rows: ReadonlyArray<Row>): ReadonlyMap<number, Row> => {
  const steps = new Map<number, Row>()
  for (const row of rows) {
    const step = Number(row["step"])
    steps.set(step, { ...steps.get(step), ...row })
  }
  return steps
}

export interface Compared {
  readonly name: string
  readonly steps: number
  /** The largest difference. */
  readonly difference: number
  /** The value of the first and of the last step on our side. */
  readonly first: number
  readonly last: number
}

/** Compares every metric that both sides have at the same step. */
export const metrics = (ours: ReadonlyArray<Row>, theirs: ReadonlyArray<Row>): ReadonlyArray<Compared> => {
  const [own, other] = [bySteps(ours), bySteps(theirs)]
  const found = new Map<string, Array<readonly [number, number]>>()
  for (const [step, row] of own) {
    const paired = other.get(step) ?? {}
    for (const [name, value] of Object.entries(row)) {
      const counterpart = paired[name]
      if (name === "step" || !isNumber(value) || !isNumber(counterpart)) continue
      found.set(name, [...(found.get(name) ?? []), [value, counterpart]])
    }
  }
  return [...found].map(([name, pairs]) => ({
    name,
    steps: pairs.length,
    difference: Math.max(...pairs.map(([a, b]) => Math.abs(a - b))),
    first: pairs[0]?.[0] ?? Number.NaN,
    last: pairs.at(-1)?.[0] ?? Number.NaN,
  }))
}

/** Returns the names that only the first rows have. */
export const onlyIn = (rows: ReadonlyArray<Row>, others: ReadonlyArray<Row>): ReadonlyArray<string> => {
  const known = new Set(others.flatMap((row) => Object.keys(row)))
  return [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !known.has(name)).toSorted()
}
