import { once } from 'node:events';
import {
  connect,
  createServer,
  type ClientHttp2Session,
  type Http2Server,
  type ServerHttp2Session,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { Code, ConnectError } from '@connectrpc/connect';
import { isRefusedStream } from './refused-stream.js';

let server: Http2Server;
let atServer: ServerHttp2Session;
let client: ClientHttp2Session;
beforeEach(async () => {
  server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const opened = once(server, 'session') as Promise<[ServerHttp2Session]>;
  client = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await once(client, 'remoteSettings');
  [atServer] = await opened;
});
afterEach(async () => {
  // `destroy` never returns while Node.js handles a GOAWAY and the session has open streams.
  await new Promise(setImmediate);
  client.destroy();
  atServer.destroy();
  server.close();
});

/** Sends a request, and returns its error as a transport of Connect does. */
async function sendRequest(): Promise<ConnectError> {
  const cause = await new Promise<unknown>((resolve) => {
    try {
      const stream = client.request({ ':method': 'POST', ':path': '/late' });
      stream.once('error', resolve);
      stream.once('close', () => resolve(`closed with HTTP/2 error ${stream.rstCode}`));
    } catch (reason) {
      resolve(reason);
    }
  });
  return new ConnectError(String(cause), Code.Internal, undefined, undefined, cause);
}

describe('isRefusedStream', () => {
  it.each([0, 1])(
    'is true for a request that crossed the GOAWAY of a server with %i running requests',
    async (running) => {
      const received: string[] = [];
      server.on('stream', (_stream, { ':path': path }) => received.push(path ?? ''));
      if (running === 1) {
        const begun = once(server, 'stream');
        client.request({ ':path': '/running' }).on('error', () => undefined);
        await begun;
      }
      atServer.close();
      expect(isRefusedStream(await sendRequest())).toBe(true);
      expect(received).not.toContain('/late');
    },
  );

  it.each([
    ['is closing', () => client.close()],
    ['was destroyed', () => client.destroy()],
  ])('is true for a request in a session that %s', async (_name, end) => {
    const answer = once(client.request({ ':path': '/' }), 'close').catch(() => undefined);
    end();
    expect(isRefusedStream(await sendRequest())).toBe(true);
    client.destroy();
    await answer;
  });

  it('is false when the connection breaks after the server has received the request', async () => {
    const processing = once(server, 'stream');
    const error = sendRequest();
    await processing;
    atServer.destroy();
    expect(isRefusedStream(await error)).toBe(false);
  });

  it('is false for an error without a code of HTTP/2', () => {
    expect(isRefusedStream(new ConnectError('reset', Code.Unavailable))).toBe(false);
    expect(isRefusedStream('reset')).toBe(false);
  });
});
