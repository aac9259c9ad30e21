// A server for tests under load. It answers which version and replica it is, finishes what is under
// way when it is asked to end, and keeps a ledger: when it was about to listen and when it was
// asked to end, by the machine's clock, whoever watches or not.
//   VERSION         what it calls itself
//   HOST            the address that it listens at; default: 127.0.0.1
//   LEDGER file that it appends to: `<milliseconds> up|down <version> <replica>`; none: no ledger
//   ANSWER_MS how long a request takes
//   LISTEN          `no`: it runs, and never becomes ready
//   CRASH_AFTER_MS  it ends with code 3 then, after some last words
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
let ending = false;

const server = createServer((_, response) => {
  setTimeout(() => {
    if (ending) response.setHeader('connection', 'close');
    response.end(JSON.stringify({ version: VERSION, replica }));
  }, Number(ANSWER_MS));
});
// Longer than any client of these tests leaves a connection idle: no request crosses with the
// closing of its connection.
server.keepAliveTimeout = 300_000;
server.headersTimeout = 300_000;

function note(what) {
  if (LEDGER !== undefined)
    appendFileSync(
      LEDGER,
      `${performance.timeOrigin + performance.now()} ${what} ${VERSION} ${replica}\n`,
    );
}

process.on('SIGTERM', () => {
  if (!ending && LISTEN !== 'no') note('down');
  ending = true;
  // Closes idle connections; those that answer close with their answer.
  server.close(() => process.exit(0));
  if (LISTEN === 'no') process.exit(0);
});

if (LISTEN === 'no') {
  console.log(`version ${VERSION} waits for something that never comes`);
  setInterval(() => undefined, 60_000);
} else {
  // Before it listens, so that nobody takes it for ready before it is in the ledger.
  note('up');
  server.listen(Number(PORT), HOST, () => console.log(`version ${VERSION} listens`));
}
if (CRASH_AFTER_MS !== undefined) {
  setTimeout(() => {
    console.error(`version ${VERSION} cannot go on`);
    console.error('fatal: no such table');
    process.exit(3);
  }, Number(CRASH_AFTER_MS));
}
