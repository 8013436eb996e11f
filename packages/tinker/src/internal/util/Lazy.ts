/** Schemas that are built when they are first used. */
import * as Schema from "effect/Schema"

/** The properties of all kinds of schemas that are built lazily; `test/Lazy.test.ts` finds one that is missing. */
const properties: ReadonlyArray<string | symbol> = [
  "ast",
  "annotations",
  "toString",
  "make",
  "fields",
  "records",
  "pick",
  "omit",
  "members",
  "literals",
  "from",
  "to",
  "filter",
  "key",
  "value",
  "elements",
  "rest",
  "typeParameters",
  Schema.RefineSchemaId,
]

/** A schema class whose properties are getters, as the `ast` of `Schema.Class` is. */
class LazySchema extends Schema.Never {
  static readonly schema: () => object = () => Schema.Never
}

for (const name of properties) {
  Object.defineProperty(LazySchema, name, {
    get(this: typeof LazySchema) {
      return Reflect.get(this.schema(), name)
    },
  })
}

/**
 * Builds a schema on first use. A program uses only some of the schemas, and building one takes longer than loading its
 * code: building all of them adds a sixth to the start-up time of a bundled program.
 */
export const lazy = <S extends Schema.Schema.Any>(build: () => S): S => {
  let built: S | undefined
  return class extends LazySchema {
    static override readonly schema = () => (built ??= build())
  } as unknown as S
}
