/** Chat templates written for these tests in the formats of the families, as an independent reference for renderers. */

/** The format of Llama 3. */
export const llama3 = String.raw`
{{- bos_token }}
{%- for message in messages -%}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}`

/**
 * The format of Qwen3. `has_reasoning` is false for models without reasoning. Reasoning is kept in the last answer
 * only, and framed if there is a user message; a tool call starts on a new line; each tool result is a separate
 * message.
 */
export const qwen3 = String.raw`
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list | length > 0 -%}
{%- set thinks = has_reasoning is not defined or has_reasoning -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' }}
  {%- for tool in tools -%}{{- tool | tojson(ensure_ascii=true) + '\n' }}{%- endfor -%}
  {{- '<|im_end|>' }}
{%- endif -%}
{%- for message in messages -%}
  {{- '\n' if tools or not loop.first else '' }}
  {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\n' }}
  {%- if message.role == 'tool' -%}
    {{- '<tool_response>\n' + message.content + '\n</tool_response>' }}
  {%- elif message.role != 'assistant' -%}
    {{- message.content }}
  {%- else -%}
    {%- set thought = (message.reasoning_content or '') if loop.last else '' -%}
    {%- if thinks and asked and loop.last -%}
      {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + message.content.lstrip('\n') }}
    {%- else -%}
      {{- ('<think>' + thought + '</think>' if thought else '') + message.content }}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {{- '\n' if not loop.first or message.content or thought else '' }}
      {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
      {{- call.function.arguments | tojson(ensure_ascii=true) + '}\n</tool_call>' }}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- ('\n' if tools or messages else '') + '<|im_start|>assistant\n' }}
  {%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' }}{%- endif -%}
{%- endif -%}`

/** The Harmony format. `opening` is an optional message at the start of every conversation. Keeps all reasoning. */
export const gptOss = String.raw`
{{- opening or '' }}
{%- if tools -%}
  {{- '<|start|>developer<|message|>' }}{%- for tool in tools -%}{{- tool | tojson }}{%- endfor -%}{{- '<|end|>' }}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- if message.reasoning_content -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.reasoning_content + '<|end|>' }}
    {%- endif -%}
    {%- if not message.tool_calls -%}
      {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + ('<|return|>' if loop.last else '<|end|>') }}
    {%- elif message.content -%}
      {{- '<|start|>assistant<|channel|>commentary<|message|>' + message.content + '<|end|>' }}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {{- '<|start|>assistant to=functions.' + call.function.name + '<|channel|>commentary <|constrain|>json' }}
      {{- '<|message|>' + (call.function.arguments | tojson) + '<|call|>' }}
    {%- endfor -%}
  {%- elif message.role == 'tool' -%}
    {{- '<|start|>functions.' + message.name + ' to=assistant<|channel|>commentary<|message|>' + message.content }}
    {{- '<|end|>' }}
  {%- elif message.role == 'system' -%}
    {{- '<|start|>developer<|message|># Instructions\n\n' + message.content + '\n\n<|end|>' }}
  {%- else -%}
    {{- '<|start|>' + ('system' if message.role == '_system' else message.role) + '<|message|>' + message.content }}
    {{- '<|end|>' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' }}{%- endif -%}`
