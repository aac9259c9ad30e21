import { once } from 'node:events';
import * as http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { createContextValues } from '@connectrpc/connect';
import { toUniversalRequest } from './universal-request.js';

let server: http2.Http2Server | undefined;
let session: http2.ClientHttp2Session | undefined;

afterEach(() => {
  session?.destroy();
  server?.close();
});

/** Sends a request, and returns both ends and the signal of the request. */
async function openRequest() {
  server = http2.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const received = once(server, 'request') as Promise<
    [http2.Http2ServerRequest, http2.Http2ServerResponse]
  >;
  session = http2.connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ':method': 'POST', ':path': '/a/B?c=d', 'x-name': 'value' });
  stream.on('error', () => undefined);
  const [request, response] = await received;
  request.on('error', () => undefined);
  const universal = toUniversalRequest(request, response, createContextValues());
  return { stream, request, response, universal, port };
}

describe('toUniversalRequest', () => {
  it('returns method, address and fields of a request', async () => {
    const { universal, port } = await openRequest();
    const url = `http://127.0.0.1:${port}/a/B?c=d`;
    expect(universal).toMatchObject({ httpVersion: '2.0', method: 'POST', url });
    expect([...universal.header]).toEqual([['x-name', 'value']]);
  });

  it('does not abort the signal at the end of a complete call', async () => {
    const { stream, request, response, universal } = await openRequest();
    stream.resume().end();
    request.resume();
    response.end('done');
    await Promise.all([once(request, 'close'), once(stream, 'close')]);
    expect(universal.signal.aborted).toBe(false);
  });

  it.each([
    { name: 'cancels the call', code: http2.constants.NGHTTP2_CANCEL },
    { name: 'resets the stream without an error', code: http2.constants.NGHTTP2_NO_ERROR },
  ])('aborts the signal when the client $name before the response', async ({ code }) => {
    const { stream, universal } = await openRequest();
    const aborted = once(universal.signal, 'abort');
    stream.close(code);
    await aborted;
    expect(universal.signal.aborted).toBe(true);
  });

  it('aborts the signal when the connection breaks before the end of the response', async () => {
    const { stream, response, universal } = await openRequest();
    const aborted = once(universal.signal, 'abort');
    response.write('part');
    await once(stream, 'data');
    session?.destroy();
    await aborted;
    expect(universal.signal.aborted).toBe(true);
  });
});
