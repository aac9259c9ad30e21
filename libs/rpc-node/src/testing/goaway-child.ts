/**
 * A program whose client closes its connection as the reaction to calls that the GOAWAY of the
 * server has refused, while other calls run. Prints the errors of the refused calls, and ends when
 * the connection has ended.
 */
import { once } from 'node:events';
import { createServer, type ServerHttp2Session } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { errorKindOf } from '@cloudless/base';
import { coordinatorTransport } from '../client/index.js';

const server = createServer().listen(0, '127.0.0.1');
await once(server, 'listening');
const opened = once(server, 'session');
const { port } = server.address() as AddressInfo;
const address = `http://127.0.0.1:${port}`;
const connection = await coordinatorTransport.connect(address, new AbortController().signal);
const [atServer] = (await opened) as [ServerHttp2Session];

const calls = Array.from({ length: 5 }, () => () => connection.enroll({} as never));
let received = 0;
const running = new Promise<void>((resolve) =>
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    received += 1;
    if (received === 2) resolve();
  }),
);
for (const call of calls.slice(0, 2)) call().catch(() => undefined);
await running;
atServer.close();
const ended = once(atServer, 'close');
for (const call of calls.slice(2)) {
  call().catch((reason: unknown) => {
    process.stdout.write(`${errorKindOf(reason)}\n`);
    connection.close();
  });
}
await ended;
server.close();
