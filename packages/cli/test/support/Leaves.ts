/** The names of all commands that do something, e.g. `auth login`. */
import type { Node } from "../../src/internal/Arguments.js"
import { tree } from "../../src/internal/Commands.js"

const below = (node: Node, path: ReadonlyArray<string>): ReadonlyArray<string> =>
  node.children.length === 0 ? [path.join(" ")] : node.children.flatMap((child) => below(child, [...path, child.name]))

export const leaves = below(tree, [])
