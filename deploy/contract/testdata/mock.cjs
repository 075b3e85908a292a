// Serves the OpenAPI document of the last argument with Prism: every operation that the document has, with its examples or made-up bodies.
// Requests are not checked against schemas, because the gateway does not check them either. Prints the address when it serves.
const { createLogger } = require("@stoplight/prism-core");
const { getHttpOperationsFromSpec } = require("@stoplight/prism-http");
const { createServer } = require("@stoplight/prism-http-server");

async function main() {
  const config = {
    isProxy: false, checkSecurity: false, validateRequest: false, validateResponse: false, upstreamProxy: undefined, errors: false,
    mock: { dynamic: false },
  };
  const operations = await getHttpOperationsFromSpec(process.argv.at(-1));
  const server = createServer(operations, { cors: false, config, components: { logger: createLogger("mock", { level: "silent" }) } });
  console.log(await server.listen(0, "127.0.0.1"));
}

main();
