// Sends HTTP requests to a host until SIGTERM: half over new connections, half over kept connections,
// which each send a request in turn. Requests are sent at their time, whether or not earlier ones
// were answered, unless the kept connection waits or 500 new connections do: such a request has the
// reason `not sent`. Prints a line of JSON for each request, after its end.
//
// A request on a connection that was used before and breaks without one byte of an answer is sent
// once more on a new connection, as curl, browsers and the HTTP clients of Go and Java do for GET.
import { Agent, request } from 'node:http';

const [host, port = '80', rate = '200'] = process.argv.slice(2);
/** Time between two requests over new connections, and between two over kept ones. */
const PERIOD_MS = 2_000 / Number(rate);
const MAX_PENDING = 500;
const KEPT_CONNECTIONS = 16;
const ANSWER_WITHIN_MS = 5_000;

let isStopping = false;
/** The kept connections, and the replica that answered last on each. */
const kept = Array.from({ length: KEPT_CONNECTIONS }, () => ({
  agent: new Agent({ keepAlive: true, maxSockets: 1 }),
  replica: '',
  isBusy: false,
}));

const now = () => performance.timeOrigin + performance.now();

/** Sends a request. Resolves with the answer or the reason of the failure. */
const send = (agent) =>
  new Promise((resolve) => {
    let bytes = 0;
    const fail = (reason) =>
      resolve({ reason: reason.code ?? reason.message, bytes, reused: sent.reusedSocket });
    const sent = request({ host, port, agent, timeout: ANSWER_WITHIN_MS }, (response) => {
      let body = '';
      bytes = 1;
      response.setEncoding('utf8').on('data', (text) => (body += text));
      response.once('error', fail).once('end', () => {
        const { version, replica } = JSON.parse(body);
        resolve({ version, replica, reused: sent.reusedSocket });
      });
    });
    sent.once('timeout', () => sent.destroy(new Error('no answer within 5 s')));
    sent.once('error', fail).end();
  });

/** Sends a request, repeats it when clients do, and prints the outcome. */
async function measure(kind, connection) {
  const sentAtMs = now();
  const before = connection?.replica ?? '';
  const isBusy = connection === undefined ? pending.size >= MAX_PENDING : connection.isBusy;
  if (isBusy) {
    const none = { version: '', replica: '', before, broken: '', reason: 'not sent' };
    return console.log(JSON.stringify({ kind, sentAtMs, tookMs: 0, ...none }));
  }
  if (connection !== undefined) connection.isBusy = true;
  let outcome = await send(connection?.agent ?? false);
  let broken = '';
  if (outcome.reason !== undefined && outcome.reused && outcome.bytes === 0) {
    broken = outcome.reason;
    outcome = await send(false);
  } else if (connection !== undefined) connection.replica = outcome.replica ?? '';
  if (connection !== undefined) connection.isBusy = false;
  const { version = '', replica = '', reason = '' } = outcome;
  const tookMs = Math.round((now() - sentAtMs) * 10) / 10;
  console.log(JSON.stringify({ kind, sentAtMs, tookMs, version, replica, before, broken, reason }));
}

process.on('SIGTERM', () => (isStopping = true));
const beganMs = now();
const pending = new Set();
const track = (outcome) => {
  pending.add(outcome);
  outcome.finally(() => pending.delete(outcome));
};
for (let count = 0; !isStopping;) {
  for (; count * PERIOD_MS <= now() - beganMs; count += 1) {
    track(measure('new'));
    track(measure('kept', kept[count % KEPT_CONNECTIONS]));
  }
  await new Promise((resolve) => setTimeout(resolve, PERIOD_MS / 2));
}
await Promise.all(pending);
process.exit(0);
