"""Whole templates in the manner of the families in use, in our own words, and conversations to render."""

CHATML = """{#- turns between marks, a system turn always first -#}
{%- if messages[0]['role'] == 'system' -%}
    {%- set intro = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set intro = 'Be useful.' -%}
    {%- set rest = messages -%}
{%- endif -%}
{{- '<|im_start|>system\\n' + intro + '<|im_end|>\\n' -}}
{%- for m in rest -%}
    {{- '<|im_start|>' + m.role + '\\n' -}}
    {% generation %}{{- m.content | string + '<|im_end|>' -}}{% endgeneration %}
    {{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

CHATML_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "## Functions\\n\\nThese may be called; their signatures stand between the marks:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nAnswer a call as <tool_call>{\\"name\\": ..., \\"arguments\\": ...}</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

THINKING = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "user" or message.role == "system" %}
        {{- '[' + message.role + ']\\n' + content + '[end]\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '[assistant]\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '[assistant]\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '[assistant]\\n' + content }}
        {%- endif %}
        {{- '[end]\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "1 Jan 2025" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system text is taken out, so that it can be put where it belongs. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|header|>system<|/header|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: functions\\n" }}
{%- endif %}
{{- "Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|header|>' + message['role'] + '<|/header|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time, please") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|header|>assistant<|/header|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header|>ipython<|/header|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header|>assistant<|/header|>\\n\\n' }}
{%- endif %}
"""

INSTRUCTION = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULT] {"content": ' + content|string + "}[/RESULT]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial system message!") }}
    {%- endif %}
{%- endfor %}
"""

TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

ONE_LINE = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}"
    "{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}"
    "{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}"
    "{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}"
    "{% set content = message['content'] %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}"
    "{{'<|User|>' + content + '<|Assistant|>'}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and content is not none and not message.tool_calls %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{content + eos_token}}{%- endif %}{%- endfor -%}"
    "{% if add_generation_prompt and not ns.is_tool %}{{'<think>\\n'}}{% endif %}"
)

PIPES = """{% for message in messages %}
{% if message['role'] == 'system' and message['content'] %}
{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}
{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}
{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>
' }}{% else %}
{{ eos_token }}
{% endif %}
"""

MACROS = """{%- macro render_type(schema) -%}
    {%- if schema.type is defined and schema.type == 'array' -%}
        list of {{ render_type(schema['items']) }}
    {%- elif schema.enum -%}
        {{ schema.enum | map('tojson') | join(' | ') }}
    {%- elif schema.type is string -%}
        {{ schema.type }}
    {%- else -%}
        {{ schema.type | join(' | ') }}
    {%- endif -%}
{%- endmacro -%}
{%- macro render_tool(tool, depth=0) %}
// {{ tool.description | replace('\\n', '\\n// ') }}
{{ tool.name }}({% for name, schema in tool.parameters.properties.items() %}
{{- name }}{{ '?' if name not in (tool.parameters.required or []) }}: {{ render_type(schema) }}
{%- if schema.default is defined %} = {{ schema.default | tojson }}{% endif %}
{{- ', ' if not loop.last }}
{%- endfor %})
{%- endmacro -%}
{%- for t in tools or [] %}{{ render_tool(t.function) | indent(2) }}
{% endfor %}
{%- for message in messages %}
{{ loop.index }}. {{ message.role | title }}: {{ message.content if message.content is string else message.content | tojson }}
{%- if message.tool_calls is defined %} -> {{ message.tool_calls | map(attribute='function.name') | join(', ') }}{% endif %}
{%- endfor %}
"""

TEMPLATES = {
    "chatml": CHATML, "chatml tools": CHATML_TOOLS, "thinking": THINKING, "headers": HEADERS, "instruction": INSTRUCTION,
    "turns": TURNS, "one line": ONE_LINE, "pipes": PIPES, "macros": MACROS,
}

USER = {"role": "user", "content": "  What is 2 + 2? <|im_end|> é 你\n"}
SYSTEM = {"role": "system", "content": "Be terse.\n"}
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather\nof a place", "parameters": {
            "type": "object", "required": ["place"], "properties": {
                "place": {"type": "string", "description": "A <b>city</b> & country"},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": ["integer", "null"]}, "tags": {"type": "array", "items": {"type": "string"}}}},
        "return": "str"}},
    {"type": "function", "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2, "x": 1.50, "y": None}}}]}

CONVERSATIONS = [
    {"messages": [USER], "add_generation_prompt": True},
    {"messages": [SYSTEM, USER], "add_generation_prompt": False},
    {"messages": [SYSTEM, USER, {"role": "assistant", "content": "<think>\nsum\n</think>\n\n4"}, USER], "add_generation_prompt": True},
    {"messages": [USER, {"role": "assistant", "content": "\n\n4  ", "reasoning_content": "\nadd\n"}], "add_generation_prompt": True,
     "enable_thinking": False},
    {"messages": [USER, USER], "add_generation_prompt": True},
    {"messages": [SYSTEM, USER, CALL, {"role": "tool", "content": "{\"t\": 21}"}, {"role": "tool", "content": "22"},
                  {"role": "assistant", "content": "21 C"}], "tools": TOOLS, "add_generation_prompt": False},
    {"messages": [SYSTEM, USER], "tools": TOOLS, "add_generation_prompt": True, "date_string": "2 Feb 2025"},
    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " look "}]}], "add_generation_prompt": True},
    {"messages": [], "add_generation_prompt": True},
    {"messages": [{"role": "robot", "content": "x"}], "add_generation_prompt": False},
]
