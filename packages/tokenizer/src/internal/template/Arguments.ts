/** Binds arguments to parameters by Python's rules. */
import { typeError } from "./Failure.ts"
import type { Arguments, Value } from "./Value.ts"

export const none: Arguments = { positional: [], keyword: new Map() }

/**
 * Returns the arguments in the order of the parameters, undefined where none was given. The first `required` parameters
 * must be given. With `positionalOnly`, none can be passed by name, as in most methods of `str`.
 */
export const bind = (
  name: string,
  parameters: ReadonlyArray<string>,
  { positional, keyword }: Arguments,
  required = 0,
  positionalOnly = false,
): ReadonlyArray<Value | undefined> => {
  if (positional.length > parameters.length) {
    return typeError(`${name}() takes at most ${parameters.length} arguments (${positional.length} given)`)
  }
  if (keyword.size === 0 && positional.length >= required) return positional
  if (positionalOnly && keyword.size > 0) return typeError(`${name}() takes no keyword arguments`)
  const bound: Array<Value | undefined> = [...positional]
  for (const [key, value] of keyword) {
    const index = parameters.indexOf(key)
    if (index === -1) return typeError(`${name}() got an unexpected keyword argument '${key}'`)
    if (bound[index] !== undefined) return typeError(`${name}() got multiple values for argument '${key}'`)
    bound[index] = value
  }
  for (let index = 0; index < required; index++) {
    if (bound[index] === undefined) return typeError(`${name}() missing required argument: '${parameters[index]}'`)
  }
  return bound
}
