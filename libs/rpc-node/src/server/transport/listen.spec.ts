import { createServer } from 'node:net';
import { Worker } from 'node:worker_threads';
import { listen } from './listen.js';

const CLIENTS = 1_000;
/** Opens connections on another thread and counts those that the system has accepted. */
const CLIENT_THREAD = `
  const { connect } = require('node:net');
  const { workerData } = require('node:worker_threads');
  for (let client = 0; client < workerData.clients; client += 1)
    connect(workerData.port, '127.0.0.1', () => {
      Atomics.add(workerData.connected, 0, 1);
      Atomics.notify(workerData.connected, 0);
    }).on('error', () => undefined);
`;

test('the system accepts 1,000 clients while the event loop is busy', async () => {
  const server = createServer((socket) => socket.on('error', () => undefined));
  const address = { host: '127.0.0.1', port: 0, portOption: '--port', tls: false };
  const { port } = await listen(server, address);
  const connected = new Int32Array(new SharedArrayBuffer(4));
  const clients = new Worker(CLIENT_THREAD, {
    eval: true,
    workerData: { port, connected, clients: CLIENTS },
  });
  try {
    await new Promise((resolve) => clients.once('online', resolve));
    // Blocks this thread, so that the server takes none of the connections.
    for (;;) {
      const count = Atomics.load(connected, 0);
      if (count === CLIENTS) break;
      if (Atomics.wait(connected, 0, count, 10_000) === 'timed-out') break;
    }
    expect(Atomics.load(connected, 0)).toBe(CLIENTS);
  } finally {
    await clients.terminate();
    server.close();
  }
});
