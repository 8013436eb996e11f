export { Completion as OneShot } from "./Completion.ts"
