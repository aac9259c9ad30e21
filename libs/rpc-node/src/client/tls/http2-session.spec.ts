import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http2';
import { connect, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { connectHttp2Session } from './http2-session.js';

/** A server that accepts no connection, so that the kernel keeps a few and leaves others waiting. */
const NOT_ACCEPTING = `
  const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 });
  server.on('listening', () => {
    require('node:fs').writeSync(1, server.address().port + '\\n');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });`;

const countConnecting = (): number =>
  process.getActiveResourcesInfo().filter((resource) => resource.endsWith('ConnectWrap')).length;

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('connectHttp2Session', () => {
  it('leaves no socket connecting when an attempt in plaintext is aborted', async () => {
    const server = spawn(process.execPath, ['-e', NOT_ACCEPTING]);
    const [line] = (await once(server.stdout, 'data')) as [Buffer];
    const port = Number(line.toString());
    // The kernel accepts one connection more than the backlog; the others wait for the server.
    const waiting = Array.from({ length: 5 }, () => connect(port, '127.0.0.1').on('error', ignore));
    try {
      await Promise.all(waiting.slice(0, 2).map((socket) => once(socket, 'connect')));
      await nextTurn();
      const before = countConnecting();
      const attempt = new AbortController();
      const session = connectHttp2Session(`http://127.0.0.1:${port}`, undefined, attempt.signal);
      await nextTurn();
      expect(countConnecting()).toBe(before + 1);
      attempt.abort(new Error('too slow'));
      await expect(session).rejects.toMatchObject({ kind: 'unavailable' });
      await nextTurn();
      expect(countConnecting()).toBe(before);
    } finally {
      for (const socket of waiting) socket.destroy();
      server.kill('SIGKILL');
    }
  });

  it('opens a session in plaintext and says when the server was reached', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    let reached = 0;
    const session = await connectHttp2Session(
      `http://127.0.0.1:${port}`,
      undefined,
      new AbortController().signal,
      () => (reached += 1),
    );
    expect(reached).toBe(1);
    await new Promise((resolve) => session.ping(resolve));
    session.destroy();
    server.close();
    await once(server, 'close');
  });
});

/** The attempts end with an error when their server ends. */
const ignore = (): void => undefined;

describe('destroyInNextTurn', () => {
  it('ends a connection with running calls when the GOAWAY of the server refuses other calls', async () => {
    // The program runs in a process of its own: the fault in Node.js would keep the thread of the
    // test busy, so that no timeout of Jest could end the test.
    const program = fileURLToPath(new URL('../../testing/goaway-child.ts', import.meta.url));
    const node = ['--conditions=@cloudless/source', '--import', 'tsx', program];
    const options = { timeout: 30_000, killSignal: 'SIGKILL' } as const;
    const result = await new Promise((resolve) => {
      execFile(process.execPath, node, options, (reason, stdout) =>
        resolve({ signal: reason?.signal, stdout }),
      );
    });
    expect(result).toEqual({
      signal: undefined,
      stdout: 'unavailable\n'.repeat(3),
    });
  });
});
