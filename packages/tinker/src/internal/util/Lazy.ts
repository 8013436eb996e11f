/**
 * A schema that is built when it is first looked at. A program uses a few of all that there are, and to build one takes
 * longer than to load the code for it: it was a fifth of the start of a bundled program.
 */
export const lazy = <S extends object>(build: () => S): S => {
  let built: S | undefined
  const schema = (): S => (built ??= build())
  // Schemas are classes, so this is a function; all that is asked of it is asked of the schema.
  return new Proxy<S>(function () {} as unknown as S, {
    get: (_, key) => Reflect.get(schema(), key),
    has: (_, key) => Reflect.has(schema(), key),
    set: (_, key, value) => Reflect.set(schema(), key, value),
    // What can't be changed any more has to be in the proxy's target, too.
    defineProperty: (target, key, property) =>
      Reflect.defineProperty(schema(), key, property) && Reflect.defineProperty(target, key, property),
    ownKeys: () => [...new Set([...Reflect.ownKeys(schema()), "prototype"])],
    getOwnPropertyDescriptor: (target, key) => {
      const property = Reflect.getOwnPropertyDescriptor(key === "prototype" ? target : schema(), key)
      if (property === undefined || Reflect.getOwnPropertyDescriptor(target, key)?.configurable === false)
        return property
      return { ...property, configurable: true }
    },
    getPrototypeOf: () => Reflect.getPrototypeOf(schema()),
    apply: (_, self, args) => Reflect.apply(schema() as never, self, args),
  })
}
