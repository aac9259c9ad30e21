import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { ManualClock } from '@cloudless/base/testing';
import { CoordinatorDialler } from './coordinator-dialler.js';

/** An empty SETTINGS frame of HTTP/2, with which a server begins. */
const SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
const never = new AbortController().signal;

/** Accepts connections, and then answers neither calls nor pings. */
let silent: Server;
const sockets: Socket[] = [];
beforeEach(async () => {
  silent = createServer((socket) => {
    sockets.push(socket.on('error', () => undefined));
    socket.write(SETTINGS);
    socket.resume();
  }).listen(0, '127.0.0.1');
  await once(silent, 'listening');
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  silent.close();
});

describe('CoordinatorDialler', () => {
  it.each(['loses its coordinator', 'is closed'])(
    'ends a call that waits for its response when the connection %s',
    async (cause) => {
      const clock = new ManualClock();
      const { port } = silent.address() as AddressInfo;
      const dialler = new CoordinatorDialler({
        clock,
        tls: () => {
          throw new Error('the address has no https');
        },
        addresses: () => [`http://127.0.0.1:${port}`],
      });
      const connection = await dialler.connect(never);
      const call = connection.client.syncNetwork(waitForEver())[Symbol.asyncIterator]().next();
      const failure = call.then(() => 'answered', String);
      await new Promise(setImmediate);
      if (cause === 'is closed') connection.close();
      else for (let ping = 0; ping < 2; ping += 1) await clock.advance(60_000);
      expect(await failure).toContain('the connection to the coordinator');
    },
  );
});

async function* waitForEver(): AsyncGenerator<never> {
  await new Promise(() => undefined);
}
