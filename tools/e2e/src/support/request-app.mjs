// An HTTP server for tests under load. Answers with its version and replica id, and finishes
// running requests on SIGTERM. Records in a ledger file when it is about to listen and when it
// receives SIGTERM, so that tests need no watch for that. Environment variables:
//   VERSION         version in the answers; default 1
//   HOST            address to listen on; default 127.0.0.1
//   LEDGER          file for lines `<milliseconds> up|down <version> <replica>`; default: none
//   ANSWER_MS       duration of each request in milliseconds; default 15
//   LISTEN          `no`: runs without listening, so that the replica never becomes ready
//   CRASH_AFTER_MS  exits with code 3 after this time, after two lines on stderr
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const {
  VERSION = '1',
  CLOUDLESS_REPLICA_ID: replica = '',
  PORT,
  HOST = '127.0.0.1',
  LEDGER,
  ANSWER_MS = '15',
  LISTEN,
  CRASH_AFTER_MS,
} = process.env;
let isStopping = false;

const server = createServer((_, response) => {
  setTimeout(() => {
    if (isStopping) response.setHeader('connection', 'close');
    response.end(JSON.stringify({ version: VERSION, replica }));
  }, Number(ANSWER_MS));
});
// Longer than any test keeps a connection idle, so that the server never closes a connection on
// which a request is on its way.
server.keepAliveTimeout = 300_000;
server.headersTimeout = 300_000;

function record(event) {
  if (LEDGER !== undefined)
    appendFileSync(
      LEDGER,
      `${performance.timeOrigin + performance.now()} ${event} ${VERSION} ${replica}\n`,
    );
}

process.on('SIGTERM', () => {
  if (!isStopping && LISTEN !== 'no') record('down');
  isStopping = true;
  // closes idle connections at once, and each other connection after its response
  server.close(() => process.exit(0));
  if (LISTEN === 'no') process.exit(0);
});

if (LISTEN === 'no') {
  console.log(`version ${VERSION} waits for something that never comes`);
  setInterval(() => undefined, 60_000);
} else {
  // before listening, so that no replica is ready before its line is in the ledger
  record('up');
  server.listen(Number(PORT), HOST, () => console.log(`version ${VERSION} listens`));
}
if (CRASH_AFTER_MS !== undefined) {
  setTimeout(() => {
    console.error(`version ${VERSION} cannot go on`);
    console.error('fatal: no such table');
    process.exit(3);
  }, Number(CRASH_AFTER_MS));
}
