// The Vercel AI SDK: its provider of OpenAI's API by the base URL.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, streamText, tool as defineTool } from "ai";
import { z } from "zod";
import { baseURL, PROMPT, run } from "./checks.mjs";

const openai = createOpenAI({ baseURL, apiKey: "any" });
const City = z.object({ city: z.enum(["Ulm", "Bonn"]) });

function options(model) {
  return { model: openai.chat(model), prompt: PROMPT, temperature: 0, maxOutputTokens: 64, maxRetries: 0 };
}

async function whole(model) {
  return (await generateText(options(model))).text;
}

async function streamed(model) {
  const pieces = [];
  for await (const piece of streamText(options(model)).textStream) pieces.push(piece);
  return pieces;
}

async function tool(model) {
  const tools = { weather: defineTool({ description: "Return a city's weather.", inputSchema: City }) };
  const made = await generateText({ ...options(model), tools, toolChoice: "required" });
  const call = made.toolCalls[0];
  return { name: call.toolName, arguments: call.input };
}

async function structured(model) {
  const made = await generateText({ ...options(model), output: Output.object({ schema: City }) });
  return made.output.city;
}

await run({ whole, streamed, tool, structured });
