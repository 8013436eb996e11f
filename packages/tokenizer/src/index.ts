/**
 * The public modules of `@effect-tinker/tokenizer`.
 *
 * @since 0.1.0
 */
export * as ChatTemplate from "./ChatTemplate.ts"
export * as DataLint from "./DataLint.ts"
export * as Dataset from "./Dataset.ts"
export * as Datums from "./Datums.ts"
export * as ExactJson from "./ExactJson.ts"
export * as Generic from "./renderers/Generic.ts"
export * as GptOss from "./renderers/GptOss.ts"
export * as Llama3 from "./renderers/Llama3.ts"
export * as Message from "./Message.ts"
export * as Qwen3 from "./renderers/Qwen3.ts"
export * as Renderer from "./Renderer.ts"
export * as RendererError from "./RendererError.ts"
export * as Renderers from "./Renderers.ts"
export * as RoleColon from "./renderers/RoleColon.ts"
export * as TemplateError from "./TemplateError.ts"
export * as TemplateLimits from "./TemplateLimits.ts"
export * as Tokenizer from "./Tokenizer.ts"
export * as TokenizerBackend from "./TokenizerBackend.ts"
export * as TokenizerChoice from "./TokenizerChoice.ts"
export * as TokenizerError from "./TokenizerError.ts"
export * as TokenizerFiles from "./TokenizerFiles.ts"
export * as TokenizerHub from "./TokenizerHub.ts"
export * as Tokenizers from "./Tokenizers.ts"
export * as TokenStream from "./TokenStream.ts"
