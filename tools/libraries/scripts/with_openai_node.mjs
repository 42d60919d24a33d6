// The npm package openai, by its base URL.

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { baseURL, PROMPT, run } from "./checks.mjs";

const client = new OpenAI({ baseURL, apiKey: "any" });
const City = z.object({ city: z.enum(["Ulm", "Bonn"]) });

function options(model) {
  return { model, messages: [{ role: "user", content: PROMPT }], temperature: 0, max_tokens: 64 };
}

async function whole(model) {
  return (await client.chat.completions.create(options(model))).choices[0].message.content;
}

async function streamed(model) {
  const pieces = [];
  for await (const chunk of await client.chat.completions.create({ ...options(model), stream: true })) {
    pieces.push(chunk.choices[0]?.delta.content);
  }
  return pieces;
}

async function tool(model) {
  const tools = [zodFunction({ name: "weather", parameters: City })];
  // One call, as OpenAI advises for strict schemas: a small model goes on to call until its limit.
  const one = { tools, tool_choice: "required", parallel_tool_calls: false };
  const made = await client.chat.completions.parse({ ...options(model), ...one });
  const call = made.choices[0].message.tool_calls[0].function;
  return { name: call.name, arguments: call.parsed_arguments };
}

async function structured(model) {
  const form = zodResponseFormat(City, "City");
  const made = await client.chat.completions.parse({ ...options(model), response_format: form });
  return made.choices[0].message.parsed.city;
}

await run({ whole, streamed, tool, structured });
