/**
 * Builds a schema on first use. A program uses only some of the schemas, and building one takes longer than loading its
 * code: it used to be a fifth of the start-up time of a bundled program.
 */
export const lazy = <S extends object>(build: () => S): S => {
  let built: S | undefined
  const schema = (): S => (built ??= build())
  // Schemas are classes, so the target is a function; all operations are forwarded to the schema.
  return new Proxy<S>(function () {} as unknown as S, {
    get: (_, key) => Reflect.get(schema(), key),
    has: (_, key) => Reflect.has(schema(), key),
    set: (_, key, value) => Reflect.set(schema(), key, value),
    // Proxies require non-configurable properties to exist on the target, too.
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
