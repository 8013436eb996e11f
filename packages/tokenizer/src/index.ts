/**
 * @since 0.1.0
 */
export * as ChatTemplate from "./ChatTemplate.ts"
export * as ExactJson from "./ExactJson.ts"
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
