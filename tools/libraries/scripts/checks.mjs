// The common part of the scripts of npm packages; see checks.py.

const TEXT = "The quick brown fox jumps over the lazy dog.";
const CITIES = ["Ulm", "Bonn"];

export const PROMPT = "What is the weather?";
export const baseURL = process.env.OPENAI_BASE_URL;

function verify(check, hosted, got) {
  if (check === "streamed") {
    const pieces = got.filter((piece) => piece);
    if (pieces.length < 2) throw new Error(`the stream has ${pieces.length} pieces`);
    got = pieces.join("");
  }
  if (check === "tool") {
    if (got.name !== "weather" || !CITIES.includes(got.arguments.city)) {
      throw new Error(`the tool call is ${JSON.stringify(got)}`);
    }
  } else if (check === "structured") {
    if (!CITIES.includes(got)) throw new Error(`the structured output is ${JSON.stringify(got)}`);
  } else if (typeof got !== "string" || !got || (hosted && got !== TEXT)) {
    throw new Error(`the answer is ${JSON.stringify(got)}`);
  }
}

// Runs a package's functions at the servers of the command line, and prints the results as checks.py does.
export async function run(functions) {
  const servers = JSON.parse(process.argv[3]);
  for (const [server, [model, toolModel]] of Object.entries(servers)) {
    for (const [check, ask] of Object.entries(functions)) {
      let error = null;
      try {
        verify(check, server === "canned", await ask(check === "tool" ? toolModel : model));
      } catch (caught) {
        console.error(caught);
        error = `${caught.name}: ${caught.message}`.slice(0, 300);
      }
      // The runner looks for the separators that Python writes.
      console.log("\n" + JSON.stringify({ server, check, error }).replaceAll('":', '": '));
    }
  }
  process.exit(0);
}
